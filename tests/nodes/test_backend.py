"""Tests of how a program becomes commands and ports; whole runs are elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import threading

import portpicker
import psutil
import pytest
import reverb

from apex_agents.builder import Role
from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.backend import LocalNodes
from apex_agents.nodes.node import await_answer
from apex_agents.program import make_program


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    agent = ApexDQNConfig(torso="mlp", frame_stack=0)
    return Experiment(ApexDQNBuilder(agent), len, RunConfig(num_actors=2), str(tmp_path))


def name_by_gpus(commands) -> list[str]:
    """Return the names of the nodes that see GPUs."""
    return [command.name for command in commands if "CUDA_VISIBLE_DEVICES" not in command.env]


@pytest.mark.fault(
    breaks="a job file that is exchanged, or that a killed launcher leaves behind",
    holds="there is none: jobs are in memory, and go with the launcher",
)
def test_one_command_per_node(experiment, tmp_path):
    with contextlib.closing(LocalNodes(make_program(experiment), experiment)) as nodes:
        names = ["replay", "learner", "evaluator", "actor_0", "actor_1"]
        assert [command.name for command in nodes.commands] == names
        assert [command.log for command in nodes.commands] == [
            tmp_path / "logs" / f"{name}.log" for name in names
        ]
        assert [c.name for c in nodes.commands if c.stops_last] == ["replay"]
        assert name_by_gpus(nodes.commands) == ["learner"]
        growth = {command.env.get("TF_FORCE_GPU_ALLOW_GROWTH") for command in nodes.commands}
        assert growth == {"true", None}
        assert {command.stopwatch for command in nodes.commands} == {experiment.stopwatch}
        (job,) = {command.fds[0] for command in nodes.commands}
        assert os.readlink(f"/proc/self/fd/{job}").startswith("/memfd:")
        *run_script, script, data_file, _, _ = nodes.commands[0].argv
        assert data_file == f"--data_file=/proc/self/fd/{job}"
        # The entry script is Launchpad's own.
        helped = subprocess.run([*run_script, script, "--help"], capture_output=True, text=True)
        assert "process_entry" in script and "--data_file" in helped.stdout
    assert list(tmp_path.rglob("*.pkl")) == []
    with pytest.raises(OSError):
        os.fstat(job)


def serve_parameters(experiment, replays, index) -> None:
    """Stands for the function of a builder's own role."""


class SeveralLearnersBuilder(ApexDQNBuilder):
    """Has a further role, and several nodes of one that is single otherwise."""

    def roles(self, roles):
        learner, _, actor = roles
        server = Role("parameter_server", serve_parameters, computes=True, stop_seconds=7.0)
        return [server, learner._replace(num_nodes=2, computes=False), actor]


def test_a_builder_lists_the_roles(experiment):
    builder = SeveralLearnersBuilder(experiment.builder.config)
    experiment = dataclasses.replace(experiment, builder=builder)
    program = make_program(experiment)
    assert {group: [n.name for n in nodes] for group, nodes in program.groups.items()} == {
        "replay": ["replay"],
        "parameter_server": ["parameter_server"],
        "learner": ["learner_0", "learner_1"],
        "actor": ["actor_0", "actor_1"],
    }
    with contextlib.closing(LocalNodes(program, experiment)) as nodes:
        assert name_by_gpus(nodes.commands) == ["parameter_server"]
        assert {c.name: c.stop_seconds for c in nodes.commands}["parameter_server"] == 7.0


def test_an_object_that_cannot_be_pickled_is_named(experiment):
    lock = threading.Lock()
    experiment = dataclasses.replace(experiment, make_vector_environment=lambda: lock)
    with pytest.raises(ValueError, match="lock"):
        LocalNodes(make_program(experiment), experiment)


@pytest.mark.fault(
    breaks="a port that is in use",
    holds="another is taken, and stays the run's while its replay is restarted",
)
def test_ports(experiment):
    with contextlib.ExitStack() as stack:
        for _ in range(20):  # These ports are not given out.
            taken = stack.enter_context(socket.socket())
            taken.bind(("", 0))
            taken.listen()
        connections = psutil.net_connections("tcp")
        used = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
        programs = [make_program(experiment) for _ in range(5)]
        for program in programs:
            stack.enter_context(contextlib.closing(LocalNodes(program, experiment)))
        addresses = [program.groups["replay"][0].reverb_address.resolve() for program in programs]
        ports = {int(address.removeprefix("localhost:")) for address in addresses}
        assert len(ports) == 5
        assert not used & ports
        for port in ports:
            assert not portpicker.is_port_free(port)  # It is reserved before a server listens.
            for _ in range(2):  # A replay server can listen, and be restarted.
                server = reverb.Server([reverb.Table.queue("queue", 1)], port)
                assert await_answer([reverb.Client(f"localhost:{port}")], lambda: False)
                server.stop()
