"""OpenGL, which MuJoCo needs to draw."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator

_BACKEND = "MUJOCO_GL"

_TIMEOUT_SECONDS = 60
_PROBE = """
import os
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco/>")
renderer = mujoco.Renderer(model, 16, 16)
renderer.update_scene(mujoco.MjData(model))
renderer.render()
os._exit(0)
"""


def has_display() -> bool:
    """Return whether this process could open windows."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextlib.contextmanager
def without_opengl() -> Iterator[None]:
    """Disable OpenGL for the modules that are imported within the context."""
    chosen = os.environ.get(_BACKEND)
    os.environ[_BACKEND] = "disabled"
    try:
        yield
    finally:
        del os.environ[_BACKEND]
        if chosen is not None:
            os.environ[_BACKEND] = chosen


def prepare_opengl() -> None:
    """Choose EGL where there is no display and no other choice, and check that MuJoCo can draw.

    Without a choice MuJoCo's libraries would use GLFW, which needs a display.

    Raises:
      ValueError: MuJoCo cannot draw; names the packages to install.
    """
    if not os.environ.get(_BACKEND) and not has_display():
        os.environ[_BACKEND] = "egl"
    _probe(os.environ.get(_BACKEND, "not set"))


@functools.cache
def _probe(backend: str) -> None:
    """Draw in another process, since some OpenGL libraries end the process in which they fail."""
    command = [sys.executable, "-c", _PROBE]
    try:
        # Not in the user's folder, whose modules would precede those that the code imports.
        subprocess.run(command, cwd="/", capture_output=True, timeout=_TIMEOUT_SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        messages: bytes = error.stderr or b""
        lines = messages.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else type(error).__name__
        raise ValueError(
            f"MuJoCo cannot draw with OpenGL; MUJOCO_GL is {backend} ({reason}). Install EGL for "
            "MUJOCO_GL=egl (Debian, Ubuntu: apt install libegl1 libgl1-mesa-dri) or OSMesa for "
            "MUJOCO_GL=osmesa (apt install libosmesa6)."
        ) from error
