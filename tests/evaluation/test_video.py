"""Tests of video files, read back by ffmpeg."""

import contextlib
import os
import pathlib
import stat
import time

import imageio
import imageio_ffmpeg
import numpy as np
import psutil
import pytest

from apex_agents.evaluation.videos import VideoWriter


def frame(brightness: int, height: int = 64, width: int = 96) -> np.ndarray:
    """Return a picture whose left half is that bright, and whose right half is dark red."""
    picture = np.zeros([height, width, 3], np.uint8)
    picture[:, : width // 2] = brightness
    picture[:, width // 2 :] = (120, 0, 0)
    return picture


def find_ffmpeg(path: pathlib.Path) -> psutil.Process:
    """Return the process that writes a video, once it is no copy of this one any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if str(path) in " ".join(process.cmdline()):
                    return process
    raise TimeoutError("there is no ffmpeg")


def read(path: pathlib.Path) -> tuple[np.ndarray, dict]:
    reader = imageio.get_reader(path)
    return np.stack(list(reader.iter_data())), reader.get_meta_data()


def test_frames_come_back_in_order(tmp_path):
    path = tmp_path / "new" / "a: 1%d.mp4"
    writer = VideoWriter(path, 12.5)
    for index in range(20):
        writer.write(frame(10 * index))
        assert not path.exists()
    writer.close()
    assert [file.name for file in path.parent.iterdir()] == ["a: 1%d.mp4"]
    frames, meta = read(path)
    assert frames.shape == (20, 64, 96, 3)
    left = frames[:, 8:-8, 8:40].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(left, 10 * np.arange(20), atol=4)
    right = frames[:, 8:-8, 56:88].mean(axis=(0, 1, 2))
    np.testing.assert_allclose(right, [120, 0, 0], atol=8)  # And not (0, 0, 120).
    assert meta["fps"] == 12.5
    assert meta["duration"] == pytest.approx(20 / 12.5, abs=0.01)


def test_browsers_play_the_file(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    for _ in range(3):
        writer.write(frame(100))
    writer.close()
    _, meta = read(tmp_path / "a.mp4")
    assert (meta["codec"], meta["pix_fmt"].partition("(")[0]) == ("h264", "yuv420p")
    content = (tmp_path / "a.mp4").read_bytes()
    assert content[4:8] == b"ftyp"
    assert content.index(b"moov") < content.index(b"mdat")  # The index is at the front.


def test_a_discarded_file_leaves_nothing(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    writer.write(frame(0))
    process = find_ffmpeg(tmp_path / "a.mp4")
    assert [file.name for file in tmp_path.iterdir()] in ([], ["a.mp4.partial"])
    writer.discard()
    writer.discard()
    assert not process.is_running()
    assert list(tmp_path.iterdir()) == []


def test_no_frames_are_no_file(tmp_path):
    VideoWriter(tmp_path / "a.mp4", 15.0).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "picture",
    [
        frame(0, height=63),
        frame(0, width=95),
        frame(0).astype(np.float32),
        frame(0)[..., :2],
    ],
)
def test_frames_of_a_wrong_shape_or_dtype(tmp_path, picture):
    with pytest.raises(ValueError):
        VideoWriter(tmp_path / "a.mp4", 15.0).write(picture)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_another_size(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    writer.write(frame(0))
    with pytest.raises(ValueError):
        writer.write(frame(0, width=98))
    writer.discard()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        VideoWriter(tmp_path / "file" / "a.mp4", 15.0).write(frame(0))


def test_ffmpeg_that_fails_says_why(tmp_path, monkeypatch):
    script = tmp_path / "ffmpeg"
    messages = "echo first >&2; echo '[mp4 @ 0x55] No space left' >&2"
    script.write_text(f"#!/bin/sh\n{messages}; exit 228\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(script))
    writer = VideoWriter(tmp_path / "videos" / "a.mp4", 15.0)
    with pytest.raises(OSError, match=r"228: No space left$"):
        for _ in range(100):  # The pipe holds some of them.
            writer.write(frame(0))
    assert list((tmp_path / "videos").iterdir()) == []


def test_without_ffmpeg(tmp_path, monkeypatch):
    def fail() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", fail)
    with pytest.raises(OSError, match="No ffmpeg exe"):
        VideoWriter(tmp_path / "a.mp4", 15.0).write(frame(0))


def test_ctrl_c_does_not_reach_ffmpeg(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    writer.write(frame(0))
    assert os.getsid(find_ffmpeg(tmp_path / "a.mp4").pid) != os.getsid(0)
    writer.discard()
