"""An MP4 file that any browser plays, made while its frames come in."""

import contextlib
import os
import pathlib
import re
import subprocess

import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np

PARTIAL = ".partial"

# What browsers play: H.264 with colours at half the resolution, the index at the front. One
# thread: a training run needs the others.
_OUTPUT = "-c:v libx264 -preset veryfast -crf 18 -pix_fmt yuv420p -threads 1 -movflags +faststart"


class VideoWriter:
    """Streams frames to the ffmpeg that imageio brings along; none of them stays in memory.

    imageio's own writer does not tell when ffmpeg fails, as on a full disk. The file takes its name
    when it is complete.
    """

    def __init__(self, path: pathlib.Path, frames_per_second: float):
        """Remember what to make; ffmpeg starts with the first frame.

        Args:
          path: of the file; its folder is made when it is not there.
          frames_per_second: at which it plays.
        """
        self.path = path
        self._partial = path.with_name(f"{path.name}{PARTIAL}")
        self._frames_per_second = frames_per_second
        self._shape: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, frame: np.ndarray) -> None:
        """Append a frame.

        Args:
          frame: uint8 `[H, W, 3]`, RGB, H and W even and the same for all frames.

        Raises:
          ValueError: it is of another shape.
          OSError: ffmpeg cannot be started or has ended, as it does when the disk is full.
        """
        if self._process is None:
            self._process = self._start(frame)
            self._shape = frame.shape
        if frame.shape != self._shape:
            raise ValueError(f"a frame has shape {frame.shape}, those before had {self._shape}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.tobytes())
        except OSError:  # ffmpeg reads no more, and knows why.
            self._finish()
            raise

    def close(self) -> None:
        """Complete the file.

        Raises:
          OSError: it could not be written; nothing is left of it.
        """
        if self._process is not None:
            self._finish()
            self._partial.replace(self.path)

    def discard(self) -> None:
        """Leave nothing of a file that is not complete."""
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
        rate = f"{self._frames_per_second:.6g}"
        source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate} -i pipe:0"
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
            start_new_session=True,  # Ctrl-C is for us.
        )

    def _finish(self) -> None:
        """Wait until ffmpeg has written all; raise an OSError if it has not."""
        process, self._process = self._process, None
        assert process is not None
        _, messages = process.communicate()
        if process.returncode:
            self.discard()
            *_, last = ["it says nothing", *messages.decode(errors="replace").split("\n")[:-1]]
            reason = re.sub(
                r"^\[.*?\] ", "", last
            )  # The part of ffmpeg, and where it is in memory.
            raise OSError(f"ffmpeg ended with exit code {process.returncode}: {reason}")
