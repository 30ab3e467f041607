"""OpenGL for pictures of what MuJoCo simulates; nothing else here needs it."""

import os

BACKEND = "MUJOCO_GL"


def has_display() -> bool:
    """Return whether there is a screen to show windows on."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def choose_backend() -> bool:
    """Choose EGL, which needs no display, where there is none and nothing else is chosen.

    MuJoCo's libraries would choose GLFW, which needs one.

    Returns:
      Whether that was a choice to make.
    """
    if os.environ.get(BACKEND) or has_display():
        return False
    os.environ[BACKEND] = "egl"
    return True


def explain(error: Exception) -> ValueError:
    """Return the error that tells a person why MuJoCo draws nothing, and what to install."""
    chosen = os.environ.get(BACKEND, "not set")
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return ValueError(
        f"MuJoCo finds no OpenGL to draw with (MUJOCO_GL is {chosen}; {reason}). Install EGL for "
        "MUJOCO_GL=egl (Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri) or OSMesa for "
        "MUJOCO_GL=osmesa (apt install libosmesa6)."
    )
