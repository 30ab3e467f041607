"""Tests of the columns: those that are documented are those that are written."""

import csv
import re
import types

import documented_logs
import numpy as np
import pytest
import reverb
from r2d2.sequences import make_config

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.config import RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.experiment import Experiment
from apex_agents.learning.learner import SampledBatch
from apex_agents.metrics import columns
from apex_agents.metrics.histograms import Bin
from apex_agents.metrics.loggers import make_learner_logger, read_quantities
from apex_agents.metrics.statistics import ReplayStatistics
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import Evaluation

REPLAY = ReplayConfig(max_size=100, min_size=1)
DQN = ApexDQNConfig(
    torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0, replay=REPLAY
)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8), replay=REPLAY)
AGENTS = {
    "dqn": (ApexDQNBuilder(DQN), "catch"),
    "dpg": (ApexDPGBuilder(DPG), "point_mass"),
    "r2d2": (R2D2Builder(make_config(replay=REPLAY)), "catch"),
    "r2d2_staleness": (R2D2Builder(make_config(replay=REPLAY, measure_staleness=True)), "catch"),
}


def test_every_name_is_a_file_or_column_of_the_document():
    names = {v for name, v in vars(columns).items() if name[0].isupper() and isinstance(v, str)}
    documented = {
        column
        for file in documented_logs.FILES
        for agent in (*AGENTS, "a2c", "gymnasium")
        for column in documented_logs.columns(file, agent)
    }
    assert names <= documented.union(documented_logs.FILES)


@pytest.mark.parametrize("agent", AGENTS)
def test_metrics_of_a_learner_are_columns(agent, serve, tmp_path):
    builder, task = AGENTS[agent]
    environment = make_vector_environment(EnvironmentConfig("toy", task), 1, seed=0)
    spec = environment.spec
    client = serve(*builder.make_replay_tables(spec))
    adders = builder.make_adders(client, spec)
    actor = builder.make_actor(builder.make_policy(spec, range(1), 1, 0), adders)
    next(_ for _ in run_in_lock_step(environment, actor) if adders[0].num_items > 5)
    adders[0].flush()
    (tmp_path / "logs").mkdir()
    experiment = Experiment(builder, make_vector_environment, RunConfig(), str(tmp_path))
    logger = make_learner_logger(experiment, types.SimpleNamespace(latest=ReplayStatistics()))
    learner = builder.make_learner(spec, client, seed=0, logger=logger)
    learner.step()
    learner.close()
    with (tmp_path / "logs" / "learner.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert set(header) == documented_logs.columns(columns.LEARNER, agent)
    assert len(row) == len(header)


@pytest.mark.parametrize("agent", AGENTS)
def test_exploration_of_a_policy_is_a_column(agent):
    builder, task = AGENTS[agent]
    spec = make_vector_environment(EnvironmentConfig("toy", task), 1, seed=0).spec
    policy = builder.make_policy(spec, range(1), 1, 0)
    explorations = {columns.EPSILON, columns.NOISE_SCALE}
    documented = documented_logs.columns("actor_<i>_envs", agent)
    assert set(policy.exploration) == documented & explorations


def test_fields_of_evaluations_and_bins_are_columns():
    wall_time = {columns.WALL_TIME_SECONDS}
    evaluator = documented_logs.columns(columns.EVALUATOR, "dqn")
    assert {*Evaluation._fields} == evaluator - wall_time - {columns.ENVIRONMENT_FAILURES}
    histograms = documented_logs.columns(columns.histogram_file(columns.LEARNER), "dqn")
    assert {*Bin._fields} == histograms - wall_time - {columns.LEARNER_STEPS, columns.QUANTITY}
    info = reverb.SampleInfo(*5 * [np.ones(1)])
    batch = SampledBatch(info, np.zeros(1), np.zeros(1), 0)
    (meaning,) = re.findall(r"^\| `quantity` .*", documented_logs.DOCUMENT, re.MULTILINE)
    assert re.findall(r"`(\w+)`: ", meaning) == [
        *read_quantities([batch])[0],
        *read_quantities([0])[0],
    ]


@pytest.mark.parametrize(
    ("node", "role"),
    [
        ("learner", "learner"),
        ("learner_1", "learner"),
        ("actor_12", "actor"),
        ("parameter_server", "parameter_server"),
        ("parameter_server_2", "parameter_server"),
    ],
)
def test_roles_of_nodes(node, role):
    assert columns.role_of(node) == role


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("actor_12", 12),
        (columns.actor_file(7), 7),
        (columns.actor_envs_file(7), None),
        ("actor_x", None),
        ("actor_1_", None),
        ("learner", None),
    ],
)
def test_files_of_actors(name, parsed):
    assert columns.parse_actor_file(name) == parsed
