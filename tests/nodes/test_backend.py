"""Tests of how a program becomes commands and ports; whole runs are elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import socket
import subprocess
import threading

import portpicker
import pytest
import reverb

from apex_agents.builder import Role
from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.backend import LocalNodes
from apex_agents.program import make_program


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    agent = ApexDQNConfig(torso="mlp", frame_stack=0)
    return Experiment(ApexDQNBuilder(agent), len, RunConfig(num_actors=2), str(tmp_path))


def replay_port(program) -> int:
    (replay,) = program.groups["replay"]
    host, port = replay.reverb_address.resolve().split(":")
    assert host == "localhost"
    return int(port)


def test_one_command_per_node(experiment, tmp_path):
    processes = LocalNodes(make_program(experiment), experiment)
    names = ["replay", "learner", "evaluator", "actor_0", "actor_1"]
    assert [command.name for command in processes.commands] == names
    assert [command.log for command in processes.commands] == [
        tmp_path / "logs" / f"{name}.log" for name in names
    ]
    assert [c.name for c in processes.commands if c.stops_last] == ["replay"]
    sees_gpus = [c.name for c in processes.commands if "CUDA_VISIBLE_DEVICES" not in c.env]
    assert sees_gpus == ["learner"]
    assert {command.stopwatch for command in processes.commands} == {experiment.stopwatch}
    processes.close()


def serve_parameters(experiment, replays, index) -> None:
    """Stands for what a builder's own role does."""


class SeveralLearnersBuilder(ApexDQNBuilder):
    """Has a role of its own, and several nodes of one that is single otherwise."""

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
    processes = LocalNodes(program, experiment)
    commands = {command.name: command for command in processes.commands}
    assert [n for n, c in commands.items() if "CUDA_VISIBLE_DEVICES" not in c.env] == [
        "parameter_server"
    ]
    assert commands["parameter_server"].stop_seconds == 7.0
    processes.close()


def test_what_cannot_be_pickled_is_named(experiment, tmp_path):
    lock = threading.Lock()
    experiment = dataclasses.replace(experiment, make_vector_environment=lambda: lock)
    with pytest.raises(ValueError, match="lock"):
        LocalNodes(make_program(experiment), experiment)


@pytest.mark.fault(
    breaks="a job file that is exchanged, or that a killed launcher leaves behind",
    holds="there is none: jobs are in memory, and go with the launcher",
)
def test_jobs_are_not_in_the_file_system(experiment, tmp_path):
    processes = LocalNodes(make_program(experiment), experiment)
    (descriptor,) = {command.fds[0] for command in processes.commands}
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
    assert f"--data_file=/proc/self/fd/{descriptor}" in processes.commands[0].argv
    processes.close()
    assert list(tmp_path.rglob("*.pkl")) == []
    with pytest.raises(OSError):
        os.fstat(descriptor)


@pytest.mark.fault(
    breaks="a port that is in use",
    holds="another is taken, and stays the run's while its replay is restarted",
)
def test_ports(experiment, tmp_path):
    with contextlib.ExitStack() as stack:
        for _ in range(20):  # Whatever is taken now is not given out.
            taken = stack.enter_context(socket.socket())
            taken.bind(("", 0))
            taken.listen()
        used = {c.laddr.port for c in _listening()}
        programs = [make_program(experiment) for _ in range(5)]
        runs = [LocalNodes(program, experiment) for program in programs]
        ports = [replay_port(program) for program in programs]
        assert len(set(ports)) == 5
        assert not used & set(ports)
    for port in ports:
        assert not portpicker.is_port_free(port)  # It is reserved before a server listens.
        for _ in range(2):  # A replay server can listen, and be restarted.
            server = reverb.Server([reverb.Table.queue("queue", 1)], port)
            assert list(reverb.Client(f"localhost:{port}").server_info(5)) == ["queue"]
            server.stop()
    for run in runs:
        run.close()


def _listening() -> list:
    import psutil

    return [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]


def test_the_entry_script_is_launchpads_own(experiment, tmp_path):
    processes = LocalNodes(make_program(experiment), experiment)
    *run_script, script, _, _, _ = processes.commands[0].argv
    assert pathlib.Path(script).parts[-4:] == ("launchpad", "nodes", "python", "process_entry.py")
    helped = subprocess.run([*run_script, script, "--help"], capture_output=True, text=True)
    assert "--data_file" in helped.stdout
    processes.close()
