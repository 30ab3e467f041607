"""One replay buffer of another library, which `replay_peers.py` fills and samples from outside.

Reads requests from standard input, one word per line, and answers each with a number:

- `insert`: transitions added per second; the buffer is full, so that old ones make room.
- `sample`: transitions sampled per second, with new priorities for them if the buffer has any.
- `bytes`: what this process has grown by since it had no buffer, for each transition of the buffer.
"""

import argparse
import ctypes
import gc
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil

# TorchRL's own messages would be read as answers.
os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")
BATCH_SIZE = 512
INSERT_BATCH = 50
SECONDS = 0.7
Batch = dict[str, np.ndarray]


class Buffer(NamedTuple):
    """What is measured.

    Attributes:
      insert: function that adds a batch of consecutive transitions of one episode.
      end_episode: function that is called between the batches of two episodes.
      sample: function that samples a batch and gives its transitions new priorities.
    """

    insert: Callable[[Batch], Any]
    end_episode: Callable[[], Any]
    sample: Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("buffer", choices=BUFFERS)
    parser.add_argument("recording", type=pathlib.Path, help="what replay_peers.py has written")
    parser.add_argument("max_size", type=int, help="of the buffer")
    arguments = parser.parse_args()
    make, n_step, layout = BUFFERS[arguments.buffer]
    folder = arguments.recording.parent
    batches = itertools.cycle(read_batches(arguments.recording, n_step, layout))
    warm_up(make(BATCH_SIZE, folder / "small"), batches)
    empty = used_bytes()
    buffer = make(arguments.max_size, folder / "large")
    insert(buffer, batches, lambda count: count < arguments.max_size)
    for request in sys.stdin:
        if request.strip() == "insert":
            number = per_second(lambda is_on: insert(buffer, batches, is_on))
        elif request.strip() == "sample":
            number = per_second(lambda is_on: sample(buffer, is_on))
        else:
            number = (used_bytes() - empty) / arguments.max_size
        print(number, flush=True)


def read_batches(path: pathlib.Path, n_step: int, layout: str) -> list[tuple[Batch, bool]]:
    """Prepare all that is inserted, so that only the buffer's own work is measured.

    Args:
      path: path of the recording.
      n_step: number of steps of each transition.
      layout: 'stack first' for observations `[4, 84, 84]`, 'stack last' for `[84, 84, 4]`.

    Returns:
      Batches, each with whether it ends an episode.
    """
    with np.load(path) as arrays:
        observations = arrays["observation"]
        first, last = arrays[f"first_{n_step}"], arrays[f"last_{n_step}"]
        columns = {name: arrays[f"{name}_{n_step}"] for name in ("action", "reward", "discount")}
    if layout == "stack last":
        observations = np.moveaxis(observations, 1, -1)
    columns["priority"] = np.random.default_rng(0).lognormal(size=len(first)).astype(np.float32)
    episode_ends = [*np.flatnonzero(np.diff(first) != 1) + 1, len(first)]
    cuts = sorted({*range(0, len(first), INSERT_BATCH), *episode_ends})
    batches = []
    for begin, end in itertools.pairwise(cuts):
        batch = {name: column[begin:end] for name, column in columns.items()}
        batch["observation"] = np.ascontiguousarray(observations[first[begin:end]])
        batch["next_observation"] = np.ascontiguousarray(observations[last[begin:end]])
        batches.append((batch, end in episode_ends))
    return batches


def warm_up(buffer: Buffer, batches: Iterator[tuple[Batch, bool]]) -> None:
    """Use a small buffer, so that what the library needs anyway is not counted as the large one."""
    insert(buffer, batches, lambda count: count < 2 * BATCH_SIZE)
    buffer.sample()


def insert(
    buffer: Buffer, batches: Iterator[tuple[Batch, bool]], is_on: Callable[[int], bool]
) -> int:
    """Insert while `is_on(transitions so far)`, and return how many were."""
    count = 0
    while is_on(count):
        batch, is_episode_end = next(batches)
        buffer.insert(batch)
        if is_episode_end:
            buffer.end_episode()
        count += len(batch["action"])
    return count


def sample(buffer: Buffer, is_on: Callable[[int], bool]) -> int:
    """Sample batches while `is_on(transitions so far)`, and return how many transitions it were."""
    count = 0
    while is_on(count):
        buffer.sample()
        count += BATCH_SIZE
    return count


def per_second(work: Callable[[Callable[[int], bool]], int]) -> float:
    """Work for some time, and return how many transitions per second that made."""
    started = time.perf_counter()
    count = work(lambda _: time.perf_counter() - started < SECONDS)
    return count / (time.perf_counter() - started)


def used_bytes() -> int:
    """Return the resident memory of this process, after returning free memory to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def make_cpprb_shared(size: int, folder: pathlib.Path) -> Buffer:
    """Make the buffer that processes can share; it accepts no option that would save memory."""
    from cpprb import MPPrioritizedReplayBuffer

    observation = {"shape": (4, 84, 84), "dtype": np.uint8}
    fields = {**_cpprb_scalars(), "observation": observation, "next_observation": observation}
    return _make_cpprb(MPPrioritizedReplayBuffer(size, fields))


def make_cpprb_compressed(size: int, folder: pathlib.Path) -> Buffer:
    """Make the buffer of one process; it can store every frame once, for one-step transitions."""
    from cpprb import PrioritizedReplayBuffer

    fields = {**_cpprb_scalars(), "observation": {"shape": (84, 84, 4), "dtype": np.uint8}}
    options = {"next_of": "observation", "stack_compress": "observation"}
    return _make_cpprb(PrioritizedReplayBuffer(size, fields, **options))


def _cpprb_scalars() -> dict[str, dict]:
    return {"action": {"dtype": np.int32}, "reward": {}, "discount": {}}


def _make_cpprb(buffer: Any) -> Buffer:
    priorities = np.random.default_rng(1).lognormal(size=BATCH_SIZE)

    def insert_batch(batch: Batch) -> None:
        columns = {name: column for name, column in batch.items() if name != "priority"}
        buffer.add(**columns, priorities=batch["priority"])

    def sample_batch() -> None:
        batch = buffer.sample(BATCH_SIZE, beta=0.4)
        buffer.update_priorities(batch["indexes"], priorities)

    return Buffer(insert_batch, buffer.on_episode_end, sample_batch)


def make_torchrl_tensors(size: int, folder: pathlib.Path) -> Buffer:
    """Make a buffer of arrays in memory."""
    from torchrl.data import LazyTensorStorage

    return _make_torchrl(LazyTensorStorage(size))


def make_torchrl_files(size: int, folder: pathlib.Path) -> Buffer:
    """Make a buffer of arrays in files that are mapped into memory."""
    from torchrl.data import LazyMemmapStorage

    return _make_torchrl(LazyMemmapStorage(size, scratch_dir=folder))


def make_torchrl_compressed(size: int, folder: pathlib.Path) -> Buffer:
    """Make a buffer of transitions that are compressed one by one."""
    from torchrl.data import CompressedListStorage

    return _make_torchrl(CompressedListStorage(size))


def _make_torchrl(storage: Any) -> Buffer:
    """Make a buffer that samples uniformly.

    TorchRL's prioritized sampler is a compiled extension that loads next to one release of torch
    only, which is not the one that is pinned here.
    """
    import torch
    from tensordict import TensorDict
    from torchrl.data import TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH_SIZE)

    def insert_batch(batch: Batch) -> None:
        columns = {name: torch.from_numpy(column) for name, column in batch.items()}
        buffer.extend(TensorDict(columns, [len(batch["action"])]))

    return Buffer(insert_batch, lambda: None, buffer.sample)


def make_sb3(size: int, folder: pathlib.Path) -> Buffer:
    """Make the buffer that stores observations once, for one-step transitions."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = ReplayBuffer(
        size,
        spaces.Box(0, 255, (4, 84, 84), np.uint8),
        spaces.Discrete(6),
        device="cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )

    def insert_batch(batch: Batch) -> None:
        done = batch["discount"] == 0
        for i, action in enumerate(batch["action"]):
            pair = batch["observation"][i], batch["next_observation"][i]
            buffer.add(*pair, action, batch["reward"][i], done[i], [{}])

    return Buffer(insert_batch, lambda: None, lambda: buffer.sample(BATCH_SIZE))


# Per name: function that makes the buffer, n of its transitions, layout of the stack of frames.
BUFFERS: dict[str, tuple[Callable[[int, pathlib.Path], Buffer], int, str]] = {
    "cpprb_shared": (make_cpprb_shared, 3, "stack first"),
    "cpprb_compressed": (make_cpprb_compressed, 1, "stack last"),
    "torchrl_tensors": (make_torchrl_tensors, 3, "stack first"),
    "torchrl_files": (make_torchrl_files, 3, "stack first"),
    "torchrl_compressed": (make_torchrl_compressed, 3, "stack first"),
    "sb3": (make_sb3, 1, "stack first"),
}

if __name__ == "__main__":
    main()
