"""What tests of several folders need: batches that never change, commands, namespaces."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import fault_table
import numpy as np
import pytest
import reverb
import tensorflow as tf
import tiers
from whole_runs import Command

from apex_agents.environments import EnvironmentSpec
from apex_agents.nodes.node import await_answer
from apex_agents.nodes.process import reserve_port
from apex_agents.replay.transitions import Transition
from apex_agents.waits import NodeMemory, write_waits

BATCH_SIZE = 8


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark every test with its tier and whether it is essential or slow; see tiers.py."""
    for item in items:
        for marker in tiers.markers_of(item):
            item.add_marker(marker)


@pytest.fixture
def memory():
    """The memory in which this thread writes its waits, until the end of the test."""
    memory = NodeMemory()
    write_waits(memory)
    yield memory
    write_waits(NodeMemory())


@pytest.fixture(autouse=True)
def stay_within_the_tier(request) -> Iterator[None]:
    """Make a test fail that starts a server or a process beyond its tier."""
    with tiers.forbid_more_than(tiers.tier_of(request.node)):
        yield


@pytest.fixture(autouse=True, scope="session")
def terminal_as_everywhere() -> Iterator[None]:
    """Take away what tells programs to print as into another kind of terminal."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        yield


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the table of faults, with what was seen, after `make test-faults`."""
    if "fault" not in terminalreporter.config.option.markexpr:
        return
    seen: dict[str, list[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            name = report.nodeid.rpartition("::")[2].partition("[")[0]
            properties = dict(report.user_properties)
            word = outcome if outcome == "passed" else outcome.upper()
            seen.setdefault(name, []).append(properties.get("seen", word))
    summaries = {name: ", ".join(dict.fromkeys(words)) for name, words in seen.items()}
    table = fault_table.to_markdown(fault_table.list_faults(), summaries)
    terminalreporter.section("faults")
    terminalreporter.write_line(table)


@pytest.fixture(scope="session")
def make_fixed_batches() -> Callable[[EnvironmentSpec, int], tf.data.Dataset]:
    """Make batches for a spec with float observations in [0, 1]."""

    def make(spec: EnvironmentSpec, num_batches: int) -> tf.data.Dataset:
        random = np.random.default_rng(0)
        size = (num_batches, BATCH_SIZE)
        info = reverb.SampleInfo(
            key=np.arange(num_batches * BATCH_SIZE, dtype=np.uint64).reshape(size),
            probability=random.uniform(0.001, 1.0, size),
            table_size=np.full(size, 100, np.int64),
            priority=np.ones(size),
            times_sampled=np.ones(size, np.int32),
        )
        if spec.actions.dtype == np.int32:
            action = random.integers(spec.actions.num_values, size=size).astype(np.int32)
        else:
            action = random.uniform(-1, 1, [*size, *spec.actions.shape]).astype(np.float32)
        shape = [*size, *spec.observations.shape]
        transitions = Transition(
            observation=random.uniform(size=shape).astype(np.float32),
            action=action,
            n_step_return=random.normal(size=size).astype(np.float32),
            n_step_discount=random.uniform(size=size).astype(np.float32),
            next_observation=random.uniform(size=shape).astype(np.float32),
            learner_steps=np.zeros(size, np.float32),
        )
        return tf.data.Dataset.from_tensor_slices(reverb.ReplaySample(info, transitions))

    return make


@pytest.fixture
def serve() -> Iterator[Callable[..., reverb.Client]]:
    """Start a server with the tables given and return a client of it, once it answers.

    A connection that gRPC kept of an earlier server with the same port fails its first call.
    """
    servers = []

    def start(*tables: reverb.Table) -> reverb.Client:
        servers.append(reverb.Server(list(tables)))
        client = reverb.Client(f"localhost:{servers[-1].port}")
        assert await_answer([client], lambda: False)
        return client

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def reserved_port() -> Iterator[Callable[[], int]]:
    """Returns ports of servers to be stopped; no other server gets them before the test's end."""
    with contextlib.ExitStack() as reservations:

        def reserve() -> int:
            reservation = reservations.enter_context(contextlib.closing(reserve_port()))
            return reservation.getsockname()[1]

        yield reserve


@pytest.fixture(scope="module")
def enter() -> list[str]:
    """What is put in front of commands; other folders have something here."""
    return []


@pytest.fixture(scope="module")
def start(tmp_path_factory, enter):
    """Starts commands, with `{workdir}` replaced, and sees to it that none outlives the tests."""
    commands = []

    def start_command(*argv: str, folder: pathlib.Path | None = None) -> Command:
        folder = folder or tmp_path_factory.mktemp("command")
        arguments = [arg.replace("{workdir}", str(folder / "run")) for arg in argv]
        commands.append(Command(folder, *arguments, enter=enter))
        return commands[-1]

    yield start_command
    for command in commands:
        command.close()


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """Skip where the system gives this user no network namespace."""
    _skip_unless_allowed("--net", "true")


@pytest.fixture(scope="session")
def mount_namespaces(tmp_path_factory) -> None:
    """Skip where the system lets this user mount no filesystem in a namespace."""
    folder = str(tmp_path_factory.mktemp("mount"))
    _skip_unless_allowed("--mount", "mount", "-t", "tmpfs", "none", folder)


def _skip_unless_allowed(*arguments: str) -> None:
    command = ["unshare", "--user", "--map-root-user", *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no command unshare")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"namespaces are not allowed here: {error.stderr.strip()}")
