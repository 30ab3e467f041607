"""Tests of whom a run's tables let in."""

from __future__ import annotations

import pickle

import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import Catch, EnvironmentSpec
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.parameters import publish_parameters
from apex_agents.replay.priorities import PriorityWriter
from apex_agents.replay.tables import (
    TRANSITIONS,
    RunClient,
    make_tables,
    run_table_name,
    table_name,
)
from apex_agents.replay.transitions import item_signature

REPLAY = ReplayConfig(max_size=10, min_size=1)
VARIABLES = {"network": [tf.Variable([1.0, 2.0])]}


def make_spec() -> EnvironmentSpec:
    catch = Catch(seed=0)
    return EnvironmentSpec(
        catch.observation_spec(), catch.action_spec(), catch.reward_spec(), catch.discount_spec()
    )


def make_tables_of(run_id: str) -> list[reverb.Table]:
    tables = make_tables(REPLAY, item_signature(make_spec()), VARIABLES)
    return [table.replace(name=run_table_name(table.name, run_id)) for table in tables]


@pytest.fixture
def address(serve) -> str:
    return serve(*make_tables_of("ours")).server_address


def num_transitions(address: str) -> int:
    return reverb.Client(address).server_info()["transitions-ours"].current_size


def add_an_episode(client: reverb.Client) -> None:
    """Adds two transitions of one step each."""
    adder = PrioritizedNStepAdder(client, REPLAY, n_step=1, discount=0.9)
    observation = np.zeros([10, 5], np.float32)
    # Priorities are 0.9 * 2 - 0 and 1 - 0.
    output = PolicyOutput(np.int32(0), np.float32(0.0), np.float32(2.0))
    adder.add(dm_env.restart(observation), output)
    adder.add(dm_env.transition(0.0, observation), output)
    adder.add(dm_env.termination(1.0, observation), output)
    adder.close()


def test_names_of_tables():
    ordinary = reverb.Client("localhost:1")
    assert table_name(ordinary, TRANSITIONS) == "transitions"
    assert table_name(RunClient("localhost:1", ""), TRANSITIONS) == "transitions"
    assert table_name(RunClient("localhost:1", "7f3a"), TRANSITIONS) == "transitions-7f3a"


def test_the_run_survives_pickling():
    client = pickle.loads(pickle.dumps(RunClient("localhost:1", "7f3a")))
    assert (client.server_address, client.run_id) == ("localhost:1", "7f3a")


@pytest.mark.fault(
    breaks="actors, learner or evaluator of another run at this run's port",
    holds="everything they send is refused by the server, whatever its shape",
)
def test_strangers_are_refused(address):
    ours, stranger = RunClient(address, "ours"), RunClient(address, "theirs")
    add_an_episode(ours)
    assert num_transitions(address) == 2
    with pytest.raises((ValueError, RuntimeError), match="transitions-theirs"):
        add_an_episode(stranger)
    with pytest.raises((ValueError, RuntimeError), match="parameters-theirs"):
        publish_parameters(stranger, {"network": [np.zeros(2, np.float32)]}, 1)
    with pytest.raises((ValueError, RuntimeError), match="transitions-theirs"):
        make_dataset(stranger, REPLAY, 1, make_spec())
    writer = PriorityWriter(stranger)
    (sample,) = ours.sample("transitions-ours", 1, emit_timesteps=False)
    writer.write(np.array([sample.info.key], np.uint64), np.array([7.0]))
    writer.close()
    assert writer.num_dropped_batches == 1
    samples = ours.sample("transitions-ours", 20, emit_timesteps=False)
    assert 7.0 not in {s.info.priority for s in samples}
    assert num_transitions(address) == 2


def test_a_writer_that_knew_another_server_is_refused():
    # The server of another run takes over the port while an actor is connected.
    first = reverb.Server(make_tables_of("ours"))
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)
    first.stop()
    second = reverb.Server(make_tables_of("theirs"), first.port)
    with pytest.raises(RuntimeError, match="transitions-ours was not found"):
        add_an_episode(client)
    theirs = reverb.Client(f"localhost:{first.port}").server_info()["transitions-theirs"]
    assert theirs.current_size == 0
    second.stop()


@pytest.mark.fault(
    breaks="priorities that arrive at a restarted replay for transitions of the old one",
    holds="they change no priority of a new transition",
)
def test_priorities_for_an_old_server_change_nothing():
    first = reverb.Server(make_tables_of("ours"))
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)
    samples = list(client.sample("transitions-ours", 20, emit_timesteps=False))
    old_keys = np.array(sorted({sample.info.key for sample in samples}), np.uint64)
    assert len(old_keys) == 2
    first.stop()
    second = reverb.Server(make_tables_of("ours"), first.port)
    client = RunClient(f"localhost:{first.port}", "ours")
    add_an_episode(client)

    def new_priorities() -> set[tuple[int, float]]:
        samples = client.sample("transitions-ours", 50, emit_timesteps=False)
        return {(sample.info.key, sample.info.priority) for sample in samples}

    before = new_priorities()
    assert len(before) == 2
    writer = PriorityWriter(client)
    writer.write(old_keys, np.array([77.0, 78.0]))
    writer.flush()
    assert writer.num_dropped_batches == 0
    assert new_priorities() == before
    new_keys = np.array([key for key, _ in before], np.uint64)
    writer.write(new_keys, np.array([77.0, 78.0]))  # Known keys do change.
    writer.close()
    assert {priority for _, priority in new_priorities()} == {77.0, 78.0}
    second.stop()
