"""Films episodes as MP4 files while an actor plays them, with the score above the picture."""

import contextlib
import functools
import logging
import math
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

import dm_env
import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np
from acme import core
from PIL import Image, ImageDraw, ImageFont

from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.experiment import Experiment
from apex_agents.runs.files import remove, report_failure, report_success
from apex_agents.runs.workdir import VIDEOS

# Faster environments are filmed at every second agent step, or third, ..., and at the last one.
_MAX_FRAMES_PER_SECOND = 60.0

# In pixels. Small pictures are enlarged by a whole number, up to this side.
_LONGER_SIDE = 640
_MIN_WIDTH = 320
_STRIP_HEIGHT = 56
_MARGIN = 12
_BLACK, _WHITE, _GREY, _YELLOW = (16, 17, 20), (245, 245, 245), (160, 164, 172), (255, 214, 90)

_PARTIAL = ".partial"
# Browsers play H.264 with colours at half the resolution; with the index at the front they start
# before the whole file has arrived. One thread: a training run needs the other cores.
_OUTPUT = "-c:v libx264 -preset veryfast -crf 18 -pix_fmt yuv420p -threads 1 -movflags +faststart"


class FrameWriter(Protocol):
    """A receiver of the frames of an episode: a file, or a window."""

    def write(self, frame: np.ndarray) -> None:
        """Take a frame, uint8 `[H, W, 3]`, RGB; may raise an OSError."""

    def close(self) -> None:
        """Finish an episode; may raise an OSError."""

    def discard(self) -> None:
        """Give up an episode."""


MakeWriter = Callable[[pathlib.Path, float], FrameWriter]


class VideoWriter:
    """Streams frames to the ffmpeg of imageio-ffmpeg, without keeping them in memory.

    The writer of imageio-ffmpeg itself does not report that ffmpeg failed, as on a full disk. The
    file gets its name when it is complete.
    """

    def __init__(self, path: pathlib.Path, frames_per_second: float):
        """Prepare a file; the first frame creates missing folders and starts ffmpeg."""
        self.path = path
        self._partial = path.with_name(f"{path.name}{_PARTIAL}")
        self._rate = frames_per_second
        self._shape: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, frame: np.ndarray) -> None:
        """Append a frame.

        Args:
          frame: uint8 `[H, W, 3]`, RGB, H and W even and the same for all frames.

        Raises:
          ValueError: the frame has the wrong shape or dtype.
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
        remove(self._partial)

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


class EvaluationVideos:
    """Films the first environment of an evaluation whenever a video is due."""

    def __init__(
        self,
        experiment: Experiment,
        num_restarts: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Remove the incomplete videos of a process that was killed; `clock` returns seconds."""
        self._experiment = experiment
        self._clock = clock
        self._period = experiment.run.evaluation.video_period_seconds
        self._folder = pathlib.Path(experiment.workdir, VIDEOS)
        # After a restart the first video waits: videos kill the evaluator once per period at most.
        self._next = clock() + (self._period or 0.0) if num_restarts else -np.inf
        for partial in self._folder.glob(f"*{_PARTIAL}"):
            remove(partial)

    def make_vector_environment(self, num_envs: int, seed: int) -> VectorEnvironment:
        """Make the environments of the evaluator; the first one can be filmed."""
        first = self._experiment.run.num_envs  # Actors have the indices below.
        make = functools.partial(
            self._experiment.make_vector_environment,
            *(num_envs, seed),
            evaluation=True,
            env_indices=range(first, first + num_envs),
        )
        if self._period is not None:
            try:
                return make(num_rendered=1)
            except ValueError as error:
                self._on_failure(error)
        return make()

    @contextlib.contextmanager
    def film(
        self, actor: core.Actor, environment: VectorEnvironment, learner_steps: int
    ) -> Iterator[core.Actor]:
        """Film one evaluation if a video is due.

        Yields:
          The actor to evaluate: the given one, or one that films it.
        """
        if self._period is None or self._clock() < self._next:
            yield actor
            return
        self._next = self._clock() + self._period
        path = self._folder / f"learner-{learner_steps:012d}.mp4"
        captions = (self._experiment.task, f"learner step {learner_steps:,}")
        filmed = FilmedActor(actor, environment, [path], captions, self._on_failure)
        with contextlib.closing(filmed):
            yield filmed
        if filmed.finished:
            report_success(self._folder)

    def _on_failure(self, error: Exception) -> None:
        if isinstance(error, OSError):  # The disk may be full now and have room for the next one.
            report_failure(self._folder, error)
        else:
            self._period = None
            logging.warning("The run continues without videos: %s", error)


class FilmedActor(core.Actor):
    """Forwards to another actor and films the first episode of some environments.

    Filming does not change the episodes. When a video cannot be made, all of them are discarded
    and the actor continues without; `finished` has the paths of those that are complete.
    """

    def __init__(
        self,
        actor: core.Actor,
        environment: VectorEnvironment,
        paths: Sequence[pathlib.Path],
        captions: tuple[str, str],
        on_failure: Callable[[Exception], None],
        make_writer: MakeWriter = VideoWriter,
    ):
        """Prepare the videos, which begin with the first time step observed.

        Args:
          actor: actor that chooses the actions.
          environment: environments in which it acts; those with a path can be rendered.
          paths: path i is the video of environment i, which appears when the episode has ended.
          captions: two lines of text on the left above the picture.
          on_failure: called once with the `ValueError` of an environment that cannot be rendered,
            or with the `OSError` of a file that cannot be written.
          make_writer: maker of the receiver of frames, from a path and frames per second.
        """
        self._actor = actor
        self._environment = environment
        self._captions = captions
        self._on_failure = on_failure
        self._paths = paths
        self._stride = math.ceil(environment.frames_per_second / _MAX_FRAMES_PER_SECOND)
        rate = environment.frames_per_second / self._stride
        self._writers = {i: make_writer(path, rate) for i, path in enumerate(paths)}
        self.finished: list[pathlib.Path] = []

    def select_action(self, observation: np.ndarray) -> np.ndarray:
        return self._actor.select_action(observation)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(timestep)
        if np.all(timestep.step_type == dm_env.StepType.FIRST):  # Else episodes go on.
            self._film(timestep)

    def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        self._actor.observe(action, next_timestep)
        self._film(next_timestep)

    def update(self, wait: bool = False) -> None:
        self._actor.update(wait)

    def close(self) -> None:
        """Discard the videos whose episodes have not ended."""
        for writer in self._writers.values():
            writer.discard()
        self._writers = {}

    def _film(self, timestep: dm_env.TimeStep) -> None:
        try:
            for i, writer in list(self._writers.items()):
                episode = self._environment.current_episode(i)
                is_last = timestep.step_type[i] == dm_env.StepType.LAST
                if is_last or episode.length % self._stride == 0:
                    writer.write(draw_frame(self._environment.render(i), self._captions, episode))
                if is_last:
                    writer.close()
                    self.finished.append(self._paths[i])
                    del self._writers[i]
        except (ValueError, OSError) as error:
            self.close()
            self._on_failure(error)


def draw_frame(picture: np.ndarray, captions: tuple[str, str], episode: Episode) -> np.ndarray:
    """Draw captions, score and step above a picture, which is enlarged if it is small.

    Args:
      picture: uint8 `[H, W, 3]`, RGB.
      captions: two lines of text on the left.
      episode: episode so far, whose return and length are on the right.

    Returns:
      uint8 `[H', W', 3]`, RGB, H' and W' even.
    """
    scale = max(1, _LONGER_SIDE // max(picture.shape[:2]))
    picture = picture.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width = picture.shape[:2]
    height, width = height + height % 2, max(width + width % 2, _MIN_WIDTH)
    image = Image.new("RGB", (width, _STRIP_HEIGHT + height), _BLACK)
    image.paste(Image.fromarray(picture), ((width - picture.shape[1]) // 2, _STRIP_HEIGHT))
    draw = ImageDraw.Draw(image)
    total = episode.episode_return
    score = f"score {total:,.0f}" if total == int(total) else f"score {total:,.2f}"
    steps = f"step {episode.length:,}"
    for left, right, size, middle, *colours in (
        (captions[0], score, 20, 18, _WHITE, _YELLOW),
        (captions[1], steps, 14, 41, _GREY, _GREY),
    ):
        font = _font(size)
        left = _shorten(left, font, width - 3 * _MARGIN - font.getlength(right))
        draw.text((_MARGIN, middle), left, colours[0], font, anchor="lm")
        draw.text((width - _MARGIN, middle), right, colours[1], font, anchor="rm")
    return np.asarray(image)


def _shorten(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Cut off the end of a text that is wider than `width` pixels."""
    while text and font.getlength(text) > width:
        text = f"{text[:-2]}…" if len(text) > 1 else ""
    return text


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
