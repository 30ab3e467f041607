"""Writes MP4 files that any browser plays, frame by frame."""

import contextlib
import os
import pathlib
import re
import subprocess

import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np

PARTIAL = ".partial"

# Browsers play H.264 with colours at half the resolution; with the index at the front they start
# before the whole file has arrived. One thread: a training run needs the other cores.
_OUTPUT = "-c:v libx264 -preset veryfast -crf 18 -pix_fmt yuv420p -threads 1 -movflags +faststart"


class VideoWriter:
    """Streams frames to the ffmpeg of imageio-ffmpeg, without keeping them in memory.

    The writer of imageio-ffmpeg itself does not report that ffmpeg failed, as on a full disk. The
    file gets its name when it is complete.
    """

    def __init__(self, path: pathlib.Path, frames_per_second: float):
        """Prepare a file; the first frame creates missing folders and starts ffmpeg."""
        self.path = path
        self._partial = path.with_name(f"{path.name}{PARTIAL}")
        self._rate = frames_per_second
        self._shape: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, frame: np.ndarray) -> None:
        """Append a frame.

        Args:
          frame: uint8 `[H, W, 3]`, RGB, H and W even and the same for all frames.

        Raises:
          ValueError: the frame has another shape or dtype.
          OSError: ffmpeg cannot be started or has exited, as it does when the disk is full.
        """
        if self._process is None:
            self._process = self._start(frame)
            self._shape = frame.shape
        if frame.shape != self._shape:
            raise ValueError(f"a frame has shape {frame.shape}, those before had {self._shape}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.tobytes())
        except OSError:  # ffmpeg has exited; its message says why.
            self._finish()
            raise

    def close(self) -> None:
        """Complete the file; raise an OSError if it could not be written, and was removed."""
        if self._process is not None:
            self._finish()
            self._partial.replace(self.path)

    def discard(self) -> None:
        """Remove the file unless it is complete."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        with contextlib.suppress(OSError):
            self._partial.unlink()

    def _start(self, frame: np.ndarray) -> subprocess.Popen[bytes]:
        height, width, colours = frame.shape
        if height % 2 or width % 2 or colours != 3 or frame.dtype != np.uint8:
            raise ValueError(f"frames have to be uint8 [even, even, 3], got {frame.shape}")
        source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {self._rate:.6g} -i pipe:0"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
        except RuntimeError as error:
            raise OSError(f"there is no ffmpeg: {error}") from error
        arguments = f"-y -loglevel error {source} {_OUTPUT} -f mp4".split()
        return subprocess.Popen(
            [ffmpeg, *arguments, f"file:{os.path.abspath(self._partial)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not reach ffmpeg.
        )

    def _finish(self) -> None:
        """Wait until ffmpeg has written the file; raise an OSError if it failed."""
        process, self._process = self._process, None
        assert process is not None
        _, messages = process.communicate()
        if process.returncode:
            self.discard()
            last_line = messages.decode(errors="replace").strip().rpartition("\n")[2]
            # ffmpeg begins a line with its component and an address in memory.
            reason = re.sub(r"^\[.*?\] ", "", last_line) or "no message"
            raise OSError(f"ffmpeg ended with exit code {process.returncode}: {reason}")
