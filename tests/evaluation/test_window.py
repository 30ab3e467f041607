"""Tests of the window, on a display that SDL only pretends to have."""

import types

import numpy as np
import pygame
import pytest

from apex_agents.evaluation.window import Window, WindowClosed

FRAME = np.zeros([8, 6, 3], np.uint8)
FRAME[1, 2] = 10, 20, 30


@pytest.fixture
def window(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = Window("pong").at_rate(1000.0)
    yield window
    window.discard()


def test_a_frame_is_shown(window):
    window.write(FRAME)
    screen = pygame.display.get_surface()
    assert screen.get_size() == (6, 8)
    assert screen.get_at((2, 1))[:3] == (10, 20, 30)
    assert screen.get_at((1, 2))[:3] == (0, 0, 0)
    assert pygame.display.get_caption()[0] == "pong"


def test_frames_come_at_their_rate(window, monkeypatch):
    rates = []
    monkeypatch.setattr(window, "_clock", types.SimpleNamespace(tick=rates.append))
    window.at_rate(20.0).write(FRAME)
    assert rates == [20.0]


@pytest.mark.parametrize(
    ("event", "closes"),
    [
        (pygame.event.Event(pygame.QUIT), True),
        (pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE), True),
        (pygame.event.Event(pygame.KEYDOWN, key=pygame.K_q), True),
        (pygame.event.Event(pygame.KEYDOWN, key=pygame.K_a), False),
    ],
)
def test_the_user_closes_it(window, event, closes):
    window.write(FRAME)
    pygame.event.post(event)
    if closes:
        with pytest.raises(WindowClosed):
            window.write(FRAME)
    else:
        window.write(FRAME)


def test_it_is_opened_again_after_an_environment_has_closed_it(window):
    window.write(FRAME)
    window.close()
    pygame.quit()
    window.write(FRAME)
    assert pygame.display.get_surface().get_at((2, 1))[:3] == (10, 20, 30)


def test_a_display_that_does_not_answer_is_an_error(monkeypatch):
    """SDL falls back to drawing into nothing."""
    for name in ("SDL_VIDEODRIVER", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":4242")
    pygame.display.quit()
    with pytest.raises(OSError, match="no window can be opened"):
        Window("pong").write(FRAME)


def test_without_a_display_there_is_an_error(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "none_of_that_name")
    with pytest.raises(OSError, match=r"no window can be opened .*; use --video"):
        Window("pong").write(FRAME)
