"""Compares replay memories: bytes per transition, transitions added and sampled per second.

The same real transitions of Pong go into our replay and into the buffers of other libraries, each
in a process of its own. What is compared is not equal in every respect. To our advantage:

- Our samples are read ahead, by threads and by the server, which have a core of their own; theirs
  are taken when they are asked for.
- Our bytes are those of the server; theirs are those of the process that uses the buffer.

To the advantage of the others:

- Ours is a server that any number of processes on any machine reach over gRPC. Theirs are arrays in
  the memory of the process that uses them (cpprb's first one: of processes on the same machine).
- Ours is filled step by step, by the adder that makes 3-step transitions. Theirs get finished
  transitions, made and stacked before the clock starts, 50 at a time where they accept several.
- Every sample of ours is followed by 512 new priorities, and so is cpprb's. Stable-Baselines3 has
  no priorities; TorchRL's need an extension that does not load next to this release of torch.
- cpprb stores every frame once in a buffer of one process only, and for one-step transitions only;
  Stable-Baselines3 stores an observation once for one-step transitions only.

Needs 7 GB of memory, and `make .venv-peers/.installed`.

Example:
  python benchmarks/replay_peers.py
"""

import contextlib
import functools
import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import dm_env
import numpy as np
import reverb
from measuring import (
    Row,
    at_most,
    calls_per_second,
    make_parser,
    measure_in_turn,
    ratios,
    report,
    resident_bytes,
    run_and_leave,
    spread,
)
from peer_processes import peer_process
from recording import RecordedSteps, record
from serving import ReplayServer, replay_server

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec, make_vector_environment
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import TRANSITIONS

BATCH_SIZE = 512
N_STEP, DISCOUNT = 3, 0.99
SECONDS = 0.7
OURS = "ours"
PEERS = {
    "cpprb, shared": "cpprb_shared",
    "cpprb, 1-step, frames once": "cpprb_compressed",
    "TorchRL, tensors, uniform": "torchrl_tensors",
    "TorchRL, files, uniform": "torchrl_files",
    "TorchRL, compressed, uniform": "torchrl_compressed",
    "SB3, 1-step, uniform": "sb3",
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--max_size", type=int, default=20_000, help="transitions in each memory")
    parser.add_argument("--steps", type=int, default=6_000, help="played to record transitions")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        contenders = start_contenders(stack, arguments.max_size, arguments.steps)
        measurements = {
            f"{request} {name}": functools.partial(ask, request)
            for name, ask in contenders.items()
            for request in ("insert", "sample", "bytes")
        }
        numbers = measure_in_turn(measurements, arguments.rounds)
    size, inserted, sampled = [
        {name: numbers[f"{request} {name}"] for name in contenders}
        for request in ("bytes", "insert", "sample")
    ]
    smallest = min(PEERS, key=lambda name: spread(size[name]).median)
    rows = [
        at_most("bytes per transition, ours / best peer", ratios(size[OURS], size[smallest]), 1.0)
    ]
    rows += [Row(f"bytes per transition, {name}", spread(size[name])) for name in contenders]
    rows += [Row(f"inserted/s, {name}", spread(inserted[name])) for name in contenders]
    rows += [Row(f"sampled/s, {name}", spread(sampled[name])) for name in contenders]
    series = {"bytes": size, "inserted": inserted, "sampled": sampled}
    report("replay_peers", arguments.out, rows, series)


def start_contenders(
    stack: contextlib.ExitStack, max_size: int, num_steps: int
) -> dict[str, Callable[[str], float]]:
    """Start every memory in a process of its own; return functions that measure, by name."""
    environment = make_vector_environment(EnvironmentConfig(task="pong"), 1, seed=0)
    steps = record(environment, num_steps)
    file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), "recording.npz")
    np.savez(file, **to_arrays([timestep for timestep, _ in steps], [o.action for _, o in steps]))
    replay = ReplayConfig(max_size=max_size, min_size=1, prefetch_batches=4)
    config = ApexDQNConfig(n_step=N_STEP, discount=DISCOUNT, batch_size=BATCH_SIZE, replay=replay)
    builder = ApexDQNBuilder(config)
    server = stack.enter_context(replay_server(builder.make_replay_tables, environment.spec))
    contenders: dict[str, Callable[[str], float]] = {
        OURS: OurReplay(builder, environment.spec, server, steps).ask
    }
    for name, buffer in PEERS.items():
        process = peer_process("buffers.py", buffer, str(file), str(max_size))
        contenders[name] = stack.enter_context(process)
    return contenders


def to_arrays(
    timesteps: Sequence[dm_env.TimeStep], actions: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Return all observations, and the transitions of 1 and of `N_STEP` steps between them."""
    arrays = {"observation": np.stack([timestep.observation for timestep in timesteps])}
    for n_step in (1, N_STEP):
        first, last, reward, discount = zip(*make_transitions(timesteps, n_step), strict=True)
        arrays[f"first_{n_step}"] = np.array(first)
        arrays[f"last_{n_step}"] = np.array(last)
        arrays[f"action_{n_step}"] = np.array([actions[index] for index in first], np.int32)
        arrays[f"reward_{n_step}"] = np.array(reward, np.float32)
        arrays[f"discount_{n_step}"] = np.array(discount, np.float32)
    return arrays


def make_transitions(
    timesteps: Sequence[dm_env.TimeStep], n_step: int
) -> Iterator[tuple[int, int, float, float]]:
    """Make transitions as our adder does; those whose end was not recorded are left out.

    Yields:
      Indices of the first and of the last observation, n-step return, n-step discount.
    """
    for first, timestep in enumerate(timesteps):
        if timestep.last():
            continue
        n_step_return, n_step_discount = 0.0, 1.0
        for last, later in enumerate(timesteps[first + 1 : first + 1 + n_step], first + 1):
            n_step_return += n_step_discount * float(later.reward)
            n_step_discount *= DISCOUNT * float(later.discount)
            if later.last() or last == first + n_step:
                yield first, last, n_step_return, n_step_discount
                break


class OurReplay:
    """Our replay, with the requests that `peers/buffers.py` explains."""

    def __init__(
        self,
        builder: ApexDQNBuilder,
        spec: EnvironmentSpec,
        server: ReplayServer,
        steps: RecordedSteps,
    ):
        """Fill the memory, after a little use of it, as `peers/buffers.py` does."""
        self._client = reverb.Client(server.address)
        self._pid = server.pid
        self._replay = builder.config.replay
        self._dataset = builder.make_dataset(self._client, spec)
        (self._adder,) = builder.make_adders(self._client, spec)
        self._steps = itertools.cycle(steps)
        self._add(BATCH_SIZE)
        self._sample()
        self._client.reset(TRANSITIONS)
        self._empty = resident_bytes(self._pid)
        self._add(self._replay.max_size)

    def ask(self, request: str) -> float:
        """Measure something."""
        return {"insert": self._insert, "sample": self._sample, "bytes": self._bytes}[request]()

    def _add(self, count: int) -> None:
        end = self._adder.num_items + count
        while self._adder.num_items < end:
            self._adder.add(*next(self._steps))

    def _insert(self) -> float:
        before, started = self._adder.num_items, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            self._adder.add(*next(self._steps))
        return (self._adder.num_items - before) / (time.perf_counter() - started)

    def _sample(self) -> float:
        """Sample after the batches that were read ahead, which would seem to cost nothing."""
        priorities = np.random.default_rng(1).lognormal(size=BATCH_SIZE)
        batches = iter(self._dataset)
        for _ in range(2 * self._replay.prefetch_batches):
            next(batches)

        def sample_batch() -> None:
            keys = next(batches).info.key.numpy()
            updates = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
            self._client.mutate_priorities(TRANSITIONS, updates)

        return BATCH_SIZE * calls_per_second(sample_batch, SECONDS)

    def _bytes(self) -> float:
        return (resident_bytes(self._pid) - self._empty) / self._replay.max_size


if __name__ == "__main__":
    run_and_leave(main)
