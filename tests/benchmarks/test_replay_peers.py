"""The transitions with which replay memories are compared, and the measurements of ours."""

import dm_env
import numpy as np
import peer_processes
import pytest
from peers import buffers
from replay_peers import BATCH_SIZE, OurReplay, make_transitions, record, to_arrays
from serving import replay_server

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.replay.config import ReplayConfig

# Gamma is 0.99.
TIMESTEPS = [
    dm_env.restart(np.float32(0)),
    dm_env.transition(1.0, np.float32(1)),
    dm_env.transition(2.0, np.float32(2)),
    dm_env.transition(4.0, np.float32(3)),
    dm_env.termination(8.0, np.float32(4)),
    dm_env.restart(np.float32(5)),
    dm_env.transition(16.0, np.float32(6)),
    dm_env.transition(32.0, np.float32(7)),
]


def test_transitions_of_three_steps():
    expected = [
        (0, 3, 1 + 0.99 * 2 + 0.99**2 * 4, 0.99**3),
        (1, 4, 2 + 0.99 * 4 + 0.99**2 * 8, 0.0),
        (2, 4, 4 + 0.99 * 8, 0.0),
        (3, 4, 8, 0.0),
    ]
    transitions = list(make_transitions(TIMESTEPS, 3))
    assert np.array(transitions) == pytest.approx(np.array(expected))


def test_transitions_of_one_step():
    timesteps = [step._replace(reward=1.0, discount=1.0) for step in TIMESTEPS]
    pairs = [(first, last) for first, last, _, _ in make_transitions(timesteps, 1)]
    assert pairs == [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (6, 7)]


@pytest.fixture(scope="module")
def steps():
    environment = make_vector_environment(EnvironmentConfig(task="pong"), 1, seed=0)
    yield record(environment, 1_200)
    environment.close()


def test_others_get_batches_of_one_episode_each(steps, tmp_path):
    timesteps = [timestep for timestep, _ in steps]
    arrays = to_arrays(timesteps, [output.action for _, output in steps])
    np.savez(tmp_path / "recording.npz", **arrays)
    batches = buffers.read_batches(tmp_path / "recording.npz", 3, "stack last")
    count = len(arrays["first_3"])
    assert sum(len(batch["action"]) for batch, _ in batches) == count
    assert max(len(batch["action"]) for batch, _ in batches) == buffers.INSERT_BATCH
    # One game of random actions ends within these steps; the other is not over.
    assert sum(timestep.last() for timestep in timesteps) == 1
    assert [is_end for _, is_end in batches].count(True) == 2
    first, _ = batches[0]
    np.testing.assert_array_equal(first["observation"][1, :, :, 3], timesteps[1].observation[3])
    np.testing.assert_array_equal(first["next_observation"][1, ..., 0], timesteps[4].observation[0])


def test_ours_answers_every_request(steps):
    spec = make_vector_environment(EnvironmentConfig(task="pong"), 1, seed=0).spec
    replay = ReplayConfig(max_size=5_000, min_size=1, prefetch_batches=2)
    builder = ApexDQNBuilder(ApexDQNConfig(batch_size=BATCH_SIZE, replay=replay))
    with replay_server(builder.make_replay_tables, spec) as server:
        ours = OurReplay(builder, spec, server, steps)
        assert ours.ask("insert") > 0
        assert ours.ask("sample") > 0
        # A pair of stacks of frames has 56448 bytes; in a large table it takes about 1750.
        assert 500 < ours.ask("bytes") < 5_000


def test_peer_processes_answer_until_the_end(monkeypatch, tmp_path):
    python = tmp_path / ".venv-peers" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nwhile read word; do echo 2.5; done\n")
    python.chmod(0o755)
    monkeypatch.setattr(peer_processes, "ENVIRONMENT", tmp_path / ".venv-peers")
    with peer_processes.peer_process("buffers.py") as process:
        assert [process.ask("insert"), process.ask("bytes")] == [2.5, 2.5]
    python.unlink()
    with pytest.raises(SystemExit, match=r"make \.venv-peers"):
        peer_processes.peer_command("buffers.py")
