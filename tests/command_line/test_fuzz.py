"""Configs and command lines that nobody thought of are refused in one line, or work.

`FUZZ=10 make test-all ARGS=tests/command_line/test_fuzz.py` tries ten times as many. The
examples are the same every time: what was found once is a named case of test_command_line.py or
test_validation.py.
"""

import itertools
import os
import pathlib
import runpy
import tempfile
from collections.abc import Iterable
from typing import Any

import pytest
import reverb
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from refusals import assert_refused

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.checks import check_environment
from apex_agents.config import ExperimentConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.fields import field_paths, get_field
from apex_agents.local import run_local

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGS = {path.stem: path for path in sorted((ROOT / "configs").glob("*.py"))}
SCRIPTS = {"apex_dqn.py": "apex_dqn_cartpole", "apex_dpg.py": "apex_dpg_pendulum"}


def fuzz(num_examples: int) -> Any:
    return settings(
        max_examples=num_examples * int(os.environ.get("FUZZ", "1")),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def load(name: str) -> ExperimentConfig:
    return runpy.run_path(str(CONFIGS[name]))["get_config"]()


def set_field(config: ExperimentConfig, path: str, value: Any) -> None:
    group, _, name = path.rpartition(".")
    setattr(get_field(config, group) if group else config, name, value)


# --- Configs.

NAMES = ["atari", "control", "gymnasium", "toy", "pong", "catch", "point_mass", "cartpole:swingup"]
NAMES += ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake-v1", "joust", "lqr:lqr_2_1"]
NAMES += ["mlp", "fifo", "prioritized"]
ODD_NUMBERS = [-1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**70, -(2**70)]
ODD_NUMBERS += [float("nan"), float("inf"), float("-inf"), 0.5, -0.5, 1.0, 1e-300, 1e39, 1e300]
ODD_TEXTS = ["", " ", "1", "nan", "é", "\n", "\0", "\udcff", b"x"]
ODD_TUPLES = [(), (0,), (-1,), (0.5,), ("64",), (None,), (True,), (2**70,), ((),), (1,) * 1000, [8]]
ODD_VALUES = st.sampled_from(
    [*ODD_NUMBERS, *ODD_TEXTS, *ODD_TUPLES, None, True, False, {}, 1j, ApexDPGConfig]
)
ODD_VALUES |= st.integers() | st.floats() | st.text(max_size=20)


def values_like(value: Any) -> st.SearchStrategy[Any]:
    """Draw values of the type of `value`, many of which can work."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(1, 100)
    if isinstance(value, float):
        return st.floats(0.0, 1.0, width=32)
    if isinstance(value, str):
        return st.sampled_from(NAMES)
    if isinstance(value, tuple):
        return st.lists(st.integers(1, 100), max_size=4).map(tuple)
    return st.none() | st.integers(1, 100)


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw the name of a config, and new values of some of its fields, one of which may be odd."""
    name = draw(st.sampled_from(list(CONFIGS)))
    config = load(name)
    fields = field_paths(config)
    mutated = {}
    for path in draw(st.lists(st.sampled_from(fields), max_size=3)):
        mutated[path] = draw(values_like(get_field(config, path)))
    if not mutated or draw(st.booleans()):
        groups = {field.rpartition(".")[0] for field in fields}
        path = draw(st.sampled_from(fields) | st.sampled_from(sorted(groups)))
        mutated[path] = draw(ODD_VALUES)
    return name, mutated


def mutate(name: str, fields: dict[str, Any]) -> ExperimentConfig | None:
    """Return the config if it is valid; if not, check that the error names a field."""
    config = load(name)
    for path, value in fields.items():
        set_field(config, path, value)
    try:
        config.validate()
    except ValueError as error:
        assert_names_one(str(error), fields)
        return None
    return config


def assert_names_one(message: str, paths: Iterable[str]) -> None:
    """Check that a message is one line about one of some fields."""
    assert "\n" not in message
    unknown = "environment." in "".join(paths) and "unknown " in message  # Such as a game.
    assert unknown or any(path.rpartition(".")[2] in message for path in paths), message


def shrink(config: ExperimentConfig) -> None:
    """Make smaller what costs memory or time and makes no difference."""
    for path in field_paths(config):
        if path.endswith("hidden_sizes"):
            set_field(config, path, tuple(min(size, 8) for size in get_field(config, path)))
        if path.endswith(("hidden_size", "batch_size", "max_noops", "replicas")):
            set_field(config, path, min(get_field(config, path), 8))
        if path.endswith(("frame_size", "num_actors", "frame_stack")):
            set_field(config, path, min(get_field(config, path), 84))
        if path.endswith("max_wait_seconds"):
            set_field(config, path, min(get_field(config, path), 0.01))
        if path.endswith("replay.min_size"):
            set_field(config, path, min(get_field(config, path), 10))


def make_checked_experiment(config: ExperimentConfig) -> Experiment | None:
    """Return the experiment, or None if the agent cannot learn in the environment."""
    try:
        experiment = make_experiment(config)
        check_environment(experiment)
    except ValueError as error:
        assert "\n" not in str(error)
        return None
    return experiment


def build(experiment: Experiment) -> None:
    """Build all parts and act for some steps."""
    builder, run = experiment.builder, experiment.run
    environment = experiment.make_vector_environment(2, run.node_seed("actor"), evaluation=False)
    server = reverb.Server(builder.make_replay_tables(environment.spec))
    client = reverb.Client(f"localhost:{server.port}")
    learner = builder.make_learner(environment.spec, client, run.node_seed("learner"))
    policy_seed = run.node_seed("policy")
    policy = builder.make_policy(environment.spec, [0, run.num_envs - 1], run.num_envs, policy_seed)
    builder.make_evaluation_policy(environment.spec, 2, policy_seed)
    adders = builder.make_adders(
        client,
        environment.spec,
        range(2),
        run.num_envs,
        learner_steps_fn=lambda: learner.num_steps,
    )
    actor = builder.make_actor(policy, adders, variable_source=learner)
    for _ in itertools.islice(run_in_lock_step(environment, actor), 5):
        pass
    actor.close()
    learner.close()
    environment.close()
    server.stop()


@pytest.mark.fault(
    breaks="a config of which any field holds anything (fuzz)",
    holds="refused with the name of the field, or everything can be built with it",
)
@fuzz(60)
@given(mutations())
def test_config_is_refused_or_can_be_built(mutation):
    config = mutate(*mutation)
    if config is None:
        return
    shrink(config)
    experiment = make_checked_experiment(config)
    if experiment is not None:
        event("built")
        build(experiment)


@fuzz(100)
@given(mutations())
def test_config_is_refused_or_learns(mutation):
    config = mutate(*mutation)
    if config is None:
        return
    shrink(config)
    config.run.num_actors, config.run.num_envs_per_actor = 1, min(config.run.num_envs_per_actor, 4)
    config.run.max_learner_steps, config.run.max_actor_steps = 1, 1000
    experiment = make_checked_experiment(config)
    if experiment is not None:
        event("learned")
        run_local(experiment)


# --- Command lines.

VALUES = ["", "nan", "inf", "-inf", "-1", "0", "1", "0.5", "1e300", "1e-300", "1_0", "0x10", "2"]
VALUES += ["2147483648", "9223372036854775808", "None", "true"]
VALUES += ["()", "(0,)", "(-1,)", "('a',)", "(64, 64)", "64, 64", "[64]", "{1: 2}", "b'x'"]
VALUES += ["é", "\udcff", "a\nb", "\r", "\x1b", "\u2028"]
VALUES += ["'", '"', "--", "=", "build", *NAMES]
# In {files} is what FILES names; other places are relative to a folder of the example's own.
PATHS = ["{files}/file", "{files}/file/x", "{files}/list", "{files}/dict.py", "{files}/dict.py:x"]
PATHS += ["{files}/key_error.py", "x.py", "/proc/x", "/dev/null", "/dev/null/x", "~nobody_at_all"]
PATHS += ["x" * 300, "x/" * 3000, "a\nb", "\0", "\udcff", "é", " "]
FILES = {
    "file": "",
    "list/config.json": "[]",
    "dict.py": "def get_config():\n    return {}\n",
    "key_error.py": "def get_config():\n    return {}['x']\n",
}
FLAGS = ["flagfile", "undefok", "verbosity", "v", "stderrthreshold", "logger_levels", "log_dir"]
FLAGS += ["lp_termination_notice_secs", "alsologtostderr", "test_random_seed", "cfg", "config.", ""]
REST = ["", "-", "--", "---", "--=", "-=", "--no", "--noconfig", "--config", "--workdir"]

SOME_TEXT = st.text(st.characters(exclude_characters="/~."), max_size=10)
SOME_VALUES = st.sampled_from(VALUES) | SOME_TEXT | (st.integers() | st.floats()).map(str)
SOME_FIELDS = st.sampled_from(
    sorted({field for name in CONFIGS for field in field_paths(load(name))})
)


def flag(names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    dashes = st.sampled_from(["--", "--", "--", "-", "--no"])
    return st.tuples(dashes, names, st.sampled_from(["=", "=", "=", "", " "]), values).map("".join)


WORDS = st.one_of(
    flag(SOME_FIELDS.map("config.{}".format), SOME_VALUES),
    flag((SOME_FIELDS | SOME_TEXT | st.sampled_from(PATHS)).map("config.{}".format), SOME_VALUES),
    flag(st.just("config"), st.sampled_from(["", ".", "..", *PATHS, *map(str, CONFIGS.values())])),
    flag(st.just("workdir"), st.sampled_from(PATHS)),
    flag(st.just("lp_launch_type"), st.sampled_from(["local_mt", "test_mt", "vertex_ai", *VALUES])),
    flag(st.sampled_from(FLAGS) | SOME_TEXT, SOME_VALUES | st.sampled_from(PATHS)),
    SOME_VALUES,
    SOME_FIELDS.map("--config.{}".format),
    st.sampled_from(REST),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("files")
    for path, text in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


@fuzz(150)
@given(st.sampled_from(list(SCRIPTS)), SOME_FIELDS, SOME_VALUES)
def test_value_of_a_field_is_refused_or_works(run_command_line, script, field, value):
    with tempfile.TemporaryDirectory() as folder:
        result = run_command_line([f"--config.{field}={value}"], folder, script)
        if assert_refused_or_works(result, folder) == 2:
            assert_names_one(result[2].rstrip(), [field])


@pytest.mark.fault(
    breaks="any command line (fuzz)",
    holds="one line and exit code 2, or a start; never a traceback, never a hang",
)
@fuzz(200)
@given(st.sampled_from(list(SCRIPTS)), st.lists(WORDS, min_size=1, max_size=4))
def test_command_line_is_refused_or_works(run_command_line, files, script, words):
    flags = [word.replace("{files}", str(files)) for word in words]
    before = sorted(files.rglob("*"))
    with tempfile.TemporaryDirectory() as folder:
        assert_refused_or_works(run_command_line(flags, folder, script), folder)
    assert sorted(files.rglob("*")) == before


def assert_refused_or_works(result: tuple[int, str, str], folder: str) -> int:
    """Check what a command left behind, and return its exit code."""
    exit_code, _, stderr = result
    assert exit_code in (0, 2), stderr
    if exit_code == 2:
        assert_refused(result, untouched=folder)
    return exit_code
