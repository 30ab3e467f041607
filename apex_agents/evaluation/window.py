"""Shows frames in a window, at the frame rate of the environment."""

import os

import numpy as np
import pygame

_CLOSING_KEYS = (pygame.K_ESCAPE, pygame.K_q)


class WindowClosed(Exception):
    """The user has closed the window."""


class Window:
    """A window for frames; takes the place of an `evaluation.videos.VideoWriter`."""

    def __init__(self, title: str):
        """Open nothing yet; the first frame does."""
        self._title = title
        self._rate = 0.0
        self._clock = pygame.time.Clock()
        self._screen: pygame.Surface | None = None

    def at_rate(self, frames_per_second: float) -> "Window":
        """Show so many frames per second from now on; return this window."""
        self._rate = frames_per_second
        return self

    def write(self, frame: np.ndarray) -> None:
        """Show a frame, when it is due.

        Args:
          frame: uint8 `[H, W, 3]`, RGB.

        Raises:
          WindowClosed: the window was closed, or Escape or Q was pressed.
          OSError: no window can be opened.
        """
        height, width = frame.shape[:2]
        # An environment that draws with pygame, as CartPole does, ends it when it is closed.
        is_open = pygame.display.get_init() and pygame.display.get_surface() is self._screen
        if self._screen is None or not is_open:
            self._screen = self._open(width, height)
        for event in pygame.event.get():
            is_key = event.type == pygame.KEYDOWN and event.key in _CLOSING_KEYS
            if is_key or event.type == pygame.QUIT:
                raise WindowClosed
        picture = pygame.image.frombuffer(frame.tobytes(), (width, height), "RGB")
        self._screen.blit(picture, (0, 0))
        pygame.display.flip()
        self._clock.tick(self._rate)

    def close(self) -> None:
        """Leave the last frame where it is, for the next episode."""

    def discard(self) -> None:
        """Close the window."""
        pygame.display.quit()
        self._screen = None

    def _open(self, width: int, height: int) -> pygame.Surface:
        os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")  # SIGTERM ends the command.
        try:
            pygame.display.init()
            screen = pygame.display.set_mode((width, height))
        except pygame.error as error:
            raise OSError(f"no window can be opened ({error}); use --video") from error
        # SDL draws into nothing where a display does not answer.
        driver = pygame.display.get_driver()
        if driver in ("offscreen", "dummy") and os.environ.get("SDL_VIDEODRIVER") != driver:
            raise OSError("no window can be opened (the display does not answer); use --video")
        pygame.display.set_caption(self._title)
        return screen
