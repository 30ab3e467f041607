"""Films what environments show while an actor acts in them, with the score above the picture."""

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import cast

import dm_env
import numpy as np
from acme import core
from PIL import Image, ImageDraw, ImageFont

from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.evaluation.video import VideoWriter

# What is faster is filmed at every second step, or third, ..., and at the last.
_MAX_FRAMES_PER_SECOND = 60.0

# Small pictures are enlarged, by a whole number, up to this many pixels.
_LONGER_SIDE = 640
_MIN_WIDTH = 320
_STRIP_HEIGHT = 56
_MARGIN = 12
_BLACK, _WHITE, _GREY, _YELLOW = (16, 17, 20), (245, 245, 245), (160, 164, 172), (255, 214, 90)


class FilmedActor(core.Actor):
    """Acts as another actor does, and films the first episodes of some environments meanwhile.

    It looks, and changes nothing of what is played. When a film cannot be made, the others end,
    too, and acting goes on without.

    Attributes:
      finished: files that are complete.
    """

    def __init__(
        self,
        actor: core.Actor,
        environment: VectorEnvironment,
        paths: Sequence[pathlib.Path],
        captions: tuple[str, str],
        on_trouble: Callable[[Exception], None],
    ):
        """Get ready; filming begins with the first time step that is observed.

        Args:
          actor: what acts.
          environment: in which it acts; environment i can be rendered if there is a path i.
          paths: where the film of environment i goes once its episode has ended.
          captions: what stands on the left above the picture, in two lines.
          on_trouble: called once with the `ValueError` of an environment that cannot be rendered,
            or with the `OSError` of a file that cannot be written.
        """
        self._actor = actor
        self._environment = environment
        self._captions = captions
        self._on_trouble = on_trouble
        self._stride = math.ceil(environment.frames_per_second / _MAX_FRAMES_PER_SECOND)
        rate = environment.frames_per_second / self._stride
        self._writers = {env_index: VideoWriter(path, rate) for env_index, path in enumerate(paths)}
        self.finished: list[pathlib.Path] = []

    def select_action(self, observation: np.ndarray) -> np.ndarray:
        return self._actor.select_action(observation)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(timestep)
        self._film(timestep)

    def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        self._actor.observe(action, next_timestep)
        self._film(next_timestep)

    def update(self, wait: bool = False) -> None:
        self._actor.update(wait)

    def close(self) -> None:
        """Leave nothing of films whose episodes did not end."""
        for writer in self._writers.values():
            writer.discard()
        self._writers = {}

    def _film(self, timestep: dm_env.TimeStep) -> None:
        try:
            for env_index, writer in list(self._writers.items()):
                episode = self._environment.current_episode(env_index)
                is_last = timestep.step_type[env_index] == dm_env.StepType.LAST
                if is_last or episode.length % self._stride == 0:
                    writer.write(
                        draw_frame(self._environment.render(env_index), self._captions, episode)
                    )
                if is_last:
                    writer.close()
                    self.finished.append(writer.path)
                    del self._writers[env_index]
        except (ValueError, OSError) as error:
            self.close()
            self._on_trouble(error)


def draw_frame(picture: np.ndarray, captions: tuple[str, str], episode: Episode) -> np.ndarray:
    """Put a strip with captions, score and step above a picture, enlarged if it is small.

    Args:
      picture: uint8 `[H, W, 3]`.
      captions: two lines for the left.
      episode: whose return and length go to the right.

    Returns:
      uint8 `[H', W', 3]`, H' and W' even.
    """
    scale = max(1, _LONGER_SIDE // max(picture.shape[:2]))
    picture = picture.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width = picture.shape[:2]
    height, width = height + height % 2, max(width + width % 2, _MIN_WIDTH)
    image = Image.new("RGB", (width, _STRIP_HEIGHT + height), _BLACK)
    image.paste(Image.fromarray(picture), ((width - picture.shape[1]) // 2, _STRIP_HEIGHT))
    draw = ImageDraw.Draw(image)
    title, subtitle = captions
    score = f"score {_format(episode.episode_return)}"
    _draw_line(draw, 18, (title, _WHITE), (score, _YELLOW), _font(20))
    _draw_line(draw, 41, (subtitle, _GREY), (f"step {episode.length:,}", _GREY), _font(14))
    return np.asarray(image)


_Text = tuple[str, tuple[int, int, int]]  # With its colour.


def _draw_line(
    draw: ImageDraw.ImageDraw, middle: int, left: _Text, right: _Text, font: ImageFont.FreeTypeFont
) -> None:
    """Write two texts into one line, the left one shortened where both are too long for it."""
    width, _ = draw.im.size
    text, colour = left
    room = width - 3 * _MARGIN - font.getlength(right[0])
    while text and font.getlength(text) > room:
        text = f"{text[:-2]}…" if len(text) > 1 else ""
    draw.text((_MARGIN, middle), text, colour, font, anchor="lm")
    draw.text((width - _MARGIN, middle), *right, font, anchor="rm")


def _format(score: float) -> str:
    return f"{score:,.0f}" if score == int(score) else f"{score:,.2f}"


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
