"""Tests of environments by name: their specs, arrays and seeds, and the errors."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pathlib
import subprocess
import sys
from typing import Any

import cloudpickle
import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from whole_runs import TIMEOUT_SECONDS

from apex_agents import user_code
from apex_agents.environments import (
    AtariConfig,
    Catch,
    EnvironmentConfig,
    find_environment_fn,
    make_vector_environment,
    with_environment_fn,
)
from apex_agents.validation import check_config

CARTPOLE = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
CONTROL = EnvironmentConfig(suite="control", task="cartpole:swingup")
CATCH = EnvironmentConfig(suite="toy", task="catch")


EVERY_SUITE = pytest.mark.parametrize(
    "config",
    [
        *(CARTPOLE, CATCH, CONTROL, EnvironmentConfig()),
        EnvironmentConfig("gymnasium", "Pendulum-v1"),
        EnvironmentConfig("toy", "point_mass"),
    ],
    ids=lambda config: config.task,
)


@EVERY_SUITE
def test_first_and_second_steps_conform_to_the_spec(config):
    environment = make_vector_environment(config, num_envs=3, seed=0)
    assert environment.num_envs == 3
    actions = np.stack([environment.spec.actions.generate_value()] * 3)
    for time_step, step_type in ((environment.reset(), 0), (environment.step(actions), 1)):
        assert time_step.step_type.tolist() == [step_type] * 3
        dtypes = [array.dtype for array in time_step[:3]]
        assert dtypes == [np.int32, np.float32, np.float32]
        assert time_step.observation.dtype == environment.spec.observations.dtype
        for i in range(3):
            environment.spec.observations.validate(time_step.observation[i])
            environment.spec.rewards.validate(time_step.reward[i])
            environment.spec.discounts.validate(time_step.discount[i])
    assert environment.finished_episodes() == []
    environment.close()


@EVERY_SUITE
def test_arrays_of_a_time_step_belong_to_the_caller(config):
    if config.suite == "atari":  # Lost lives have the environment change frames.
        atari = AtariConfig(life_loss_ends_episode=True, max_noops=0)
        config = EnvironmentConfig(task="breakout", atari=atari)
    # What the caller of the first one keeps stays as it is; the caller of the second one overwrites
    # what it gets, which changes nothing of what it gets next.
    kept, overwritten = (make_vector_environment(config, num_envs=2, seed=0) for _ in range(2))
    actions = np.stack([kept.spec.actions.generate_value() + 1] * 2)
    timesteps, copies = [], []
    for step in range(60):
        timesteps.append(kept.step(actions) if step else kept.reset())
        copies.append([array.copy() for array in timesteps[-1]])
        timestep = overwritten.step(actions) if step else overwritten.reset()
        for array, expected in zip(timestep, copies[-1], strict=True):
            np.testing.assert_array_equal(array, expected)
            array[...] = 1
    for timestep, copy in zip(timesteps, copies, strict=True):
        for array, expected in zip(timestep, copy, strict=True):
            np.testing.assert_array_equal(array, expected)
    assert len({timestep.observation.tobytes() for timestep in timesteps}) > 5


@pytest.mark.parametrize("config", [CARTPOLE, CONTROL], ids=lambda config: config.task)
def test_environments_have_seeds_of_their_own(config):
    first = make_vector_environment(config, num_envs=4, seed=1).reset().observation
    again = make_vector_environment(config, num_envs=4, seed=1).reset().observation
    other = make_vector_environment(config, num_envs=4, seed=2).reset().observation
    np.testing.assert_array_equal(first, again)
    starts = [row.tobytes() for row in itertools.chain(first, other)]
    assert len(set(starts)) == 8


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("atri", ""), "unknown suite 'atri'; closest: atari; allowed: atari, control, f"),
        (("contrl", ""), "unknown suite 'contrl'; closest: control; allowed"),
        (("control", "humanoid:stnad"), "unknown control task 'humanoid:stnad'; closest: humanoid"),
        (("toy", "cach"), "unknown toy task 'cach'; closest: catch; allowed: cat"),
        (("atari", "pnog"), "unknown Atari game 'pnog'; closest: pong; allowed: one"),
        (("atari", "joust"), "unknown Atari game 'joust'"),
        (("atari", "ALE/MsPacman-v5"), "environment.task is 'ALE/MsPacman-v5', an id of gymnasium"),
        (("gymnasium", "CartPol-v1"), "unknown gymnasium task 'CartPol-v1'; closest: CartPole-v1"),
        (("gymnasium", "no_such:A-v0"), "environment.task is 'no_such:A-v0', but the module 'no_s"),
        (
            ("function", "make_env"),
            "environment.task is 'make_env', but environment.suite is 'function'",
        ),
        (
            ("function", "json:dumps_"),
            "environment.task is 'json:dumps_', but json has no callable",
        ),
        (("function", "json:dump", {"x": {5}}), "environment.kwargs is {'x': {5}"),
        (("toy", "catch", {"rows": 5}), "environment.kwargs is {'rows': 5}"),
        (("atari", "pong", {}, 5), "environment.max_episode_steps is 5"),
        (
            ("atari", "pong", {}, None, 2),
            "environment.action_repeat is 2; it has to be 1 for Atari",
        ),
    ],
)
def test_unknown_names_and_fields_that_a_suite_does_not_read_are_errors(fields, message):
    config = EnvironmentConfig(*fields)
    with pytest.raises(ValueError) as caught:
        check_config(config, "environment.")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError):
        make_vector_environment(config, num_envs=1, seed=0)


@pytest.mark.parametrize(
    ("suite", "task"),
    [("atari", "pong"), ("control", "cartpole:swingup"), ("toy", "catch")],
)
def test_suites_without_masks_take_no_name_of_one(suite, task):
    for name in ("action_mask", None):
        check_config(EnvironmentConfig(suite, task, action_mask=name), "environment.")
    config = EnvironmentConfig(suite, task, action_mask="legal_moves")
    with pytest.raises(ValueError, match=r"environment.action_mask is .legal_moves.; .*left out"):
        check_config(config, "environment.")


class Corridor(gymnasium.Env):
    """Observes the seed of its first reset; ends never."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 4, render_mode: str | None = None):
        self.length = length
        self.render_mode = render_mode
        self._seed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self._seed = seed or 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observe(), 1.0, False, False, {}

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.length, np.uint8)

    def _observe(self) -> np.ndarray:
        return np.array([self.length, self._seed])


def make_corridor(length: int = 4, render_mode: str | None = None) -> gymnasium.Env:
    return Corridor(length, render_mode)


def make_catch(rows: int, seed: int) -> Catch:
    return Catch(rows=rows, seed=seed)


@pytest.fixture
def corridor(monkeypatch, tmp_path) -> str:
    """Registers an id in a module that can be imported; returns the module's name."""
    (tmp_path / "corridors_of_a_test.py").write_text(
        f"import gymnasium\nfrom {__name__} import Corridor, make_corridor\n"
        "gymnasium.register('Corridor-v0', entry_point=Corridor, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "corridors_of_a_test"
    gymnasium.registry.pop("Corridor-v0", None)
    sys.modules.pop("corridors_of_a_test", None)


def steps_of_an_episode(environment) -> int:
    environment.reset()
    for step in range(1, 20):
        timestep = environment.step(np.zeros(environment.num_envs, np.int32))
        if timestep.step_type[0] == dm_env.StepType.LAST:
            assert timestep.discount[0] == 1.0
            return step
    return 0


@pytest.mark.parametrize(
    ("suite", "name", "limit", "length"),
    [
        ("gymnasium", "Corridor-v0", None, 9),
        ("gymnasium", "Corridor-v0", 12, 12),
        ("function", "make_corridor", None, 0),
        ("function", "make_corridor", 3, 3),
    ],
)
def test_environments_of_a_module_with_arguments_and_limits(corridor, suite, name, limit, length):
    config = EnvironmentConfig(suite, f"{corridor}:{name}", {"length": 7}, limit)
    environment = make_vector_environment(config, num_envs=2, seed=0)
    observation = environment.reset().observation
    assert (observation.dtype, observation[:, 0].tolist()) == (np.float32, [7.0, 7.0])
    assert observation[0, 1] != observation[1, 1]
    assert steps_of_an_episode(environment) == length
    rendered = make_vector_environment(config, num_envs=2, seed=0, num_rendered=1)
    rendered.reset()
    assert rendered.render(0).max() == 7


def test_an_action_is_held_as_the_config_says():
    environment = make_vector_environment(
        dataclasses.replace(CONTROL, action_repeat=4), num_envs=1, seed=0
    )
    assert environment.frames_per_second == 100 / 4
    environment.reset()
    single = make_vector_environment(CONTROL, num_envs=1, seed=0)
    single.reset()
    action = np.ones([1, 1], np.float32)
    rewards = [single.step(action).reward[0] for _ in range(4)]
    assert environment.step(action).reward[0] == pytest.approx(sum(rewards), rel=1e-6)


@pytest.mark.parametrize(
    ("suite", "task", "limit", "length"),
    [
        ("control", "cartpole:balance", None, 1000 // 8),
        ("control", "hopper:stand", None, 1000 // 4),
        ("control", "walker:walk", None, 1000 // 2),
        ("gymnasium", "Pendulum-v1", 20, 20),
    ],
)
def test_an_action_is_held_as_is_usual_for_the_task(suite, task, limit, length):
    config = EnvironmentConfig(suite, task, max_episode_steps=limit, action_repeat=None)
    check_config(config, "environment")
    environment = make_vector_environment(config, num_envs=1, seed=0)
    environment.reset()
    shape = environment.spec.actions.shape
    steps = (environment.step(np.zeros((1, *shape), np.float32)) for _ in itertools.count())
    assert next(i for i, step in enumerate(steps, 1) if step.last()[0]) == length


def test_a_function_of_another_process_needs_no_registration(corridor):
    config = EnvironmentConfig("gymnasium", f"{corridor}:Corridor-v0", {"length": 7})
    pickled = cloudpickle.dumps(find_environment_fn(config))
    del gymnasium.registry["Corridor-v0"]
    config = EnvironmentConfig(suite="gymnasium", task="unknown here")
    environment = make_vector_environment(
        config, num_envs=1, seed=0, environment_fn=cloudpickle.loads(pickled)
    )
    assert environment.reset().observation[0, 0] == 4.0


def test_an_environment_of_dm_env_that_takes_its_seed():
    config = EnvironmentConfig(kwargs={"rows": 3}, max_episode_steps=1)
    make = functools.partial(
        make_vector_environment, config, num_envs=50, environment_fn=make_catch
    )
    first, again, other = (make(seed=seed).reset().observation for seed in (1, 1, 2))
    assert first.shape == (50, 3 * 5)
    assert first.tolist() == again.tolist() != other.tolist()
    assert len(np.unique(first, axis=0)) > 1
    assert steps_of_an_episode(make(seed=1)) == 1


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda: "environment", "str"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda length: Corridor(length), "length"),
        (object, "object"),
    ],
)
def test_functions_that_make_no_environment_are_errors(function, named):
    config = with_environment_fn(EnvironmentConfig(), function)
    with pytest.raises(ValueError, match=r"environment.task .* cannot be made: ") as caught:
        make_vector_environment(config, num_envs=1, seed=0, environment_fn=function)
    assert named in str(caught.value)


def test_a_function_has_to_make_a_new_environment_at_each_call():
    corridor = Corridor()
    for environment in (corridor, gymnasium.wrappers.TimeLimit(corridor, 9), Catch(rows=3, seed=0)):
        make = functools.partial(
            make_vector_environment,
            EnvironmentConfig(),
            environment_fn=functools.partial(lambda same: same, environment),
        )
        assert make(num_envs=1, seed=0).num_envs == 1
        with pytest.raises(ValueError, match="has to return a new environment at each call"):
            make(num_envs=2, seed=0)


def test_environments_do_not_share_what_they_are_made_with():
    def make_corridor_of_the_last(lengths: list[int]) -> Corridor:
        return Corridor(lengths.pop())

    config = EnvironmentConfig(kwargs={"lengths": [2, 3]})
    make_vector_environment(config, 5, 0, environment_fn=make_corridor_of_the_last)
    assert config.kwargs == {"lengths": [2, 3]}


def test_an_id_that_the_script_registers_by_a_name_is_found_by_other_processes(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "Corridor", Corridor, raising=False)
    gymnasium.register("Corridor-v4", entry_point="__main__:Corridor")
    function = find_environment_fn(EnvironmentConfig("gymnasium", "Corridor-v4"))
    monkeypatch.delattr(sys.modules["__main__"], "Corridor")
    del gymnasium.registry["Corridor-v4"]
    assert isinstance(function().unwrapped, Corridor)


def test_an_id_that_a_program_has_registered_is_found_by_later_commands():
    gymnasium.register("Corridor-v5", entry_point=Corridor, max_episode_steps=9)
    config = EnvironmentConfig("gymnasium", "Corridor-v5")
    check_config(config, "environment.")
    recorded = json.loads(json.dumps(user_code.record("Corridor-v5")))
    del gymnasium.registry["Corridor-v5"]
    user_code.kept.clear()
    with pytest.raises(ValueError, match="unknown gymnasium task 'Corridor-v5'"):
        check_config(config, "environment.")
    user_code.restore_functions(recorded)
    check_config(config, "environment.")
    environment = find_environment_fn(config)()
    assert isinstance(environment.unwrapped, Corridor)
    assert environment.spec.max_episode_steps == 9
    del gymnasium.registry["Corridor-v5"]


def test_a_function_that_cannot_be_drawn():
    with pytest.raises(ValueError, match=r"cannot be made to be drawn: .*render_mode"):
        make_vector_environment(
            EnvironmentConfig(), 1, 0, num_rendered=1, environment_fn=lambda: Corridor()
        )


def test_configs_name_the_function_that_they_are_given():
    config = EnvironmentConfig(kwargs={"length": 3})
    named = with_environment_fn(config, make_corridor)
    assert named == dataclasses.replace(config, suite="function", task=f"{__name__}:make_corridor")
    assert find_environment_fn(named) is make_corridor
    assert find_environment_fn(EnvironmentConfig()) is None


def test_entry_points_register_their_ids_when_an_id_is_unknown(tmp_path, monkeypatch, caplog):
    code = (
        "import gymnasium\n"
        "def register(): gymnasium.register('Corridor-v3', entry_point='gymnasium:Env')\n"
        "def fail(): raise OSError('broken package')\n"
    )
    install(tmp_path, "corridors", code, "numpy")
    points = {"bad": "fail", "__root__": "register", "Halls": "register"}
    lines = [f"{name} = corridors:{function}\n" for name, function in points.items()]
    path = tmp_path / "corridors-1.0.dist-info" / "entry_points.txt"
    path.write_text("[gymnasium.envs]\n" + "".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    for task in ("Corridor-v3", "Halls/Corridor-v3"):
        check_config(EnvironmentConfig("gymnasium", task))
        del gymnasium.registry["Corridor-v3"], gymnasium.registry["Halls/Corridor-v3"]
    assert "gymnasium plugin bad: OSError: broken package" in caplog.text
    del sys.modules["corridors"]


@pytest.mark.parametrize(("given", "expected"), [((), [0, 1, 2]), ((1, 3, 9), [1, 3, 9])])
def test_functions_get_the_index_that_they_ask_for(given, expected):
    received = []

    def make(env_index, seed):
        received.append(env_index)
        return Corridor()

    make_vector_environment(EnvironmentConfig(), 3, 0, env_indices=given, environment_fn=make)
    assert received == expected


def install(folder: pathlib.Path, name: str, code: str, requires: str) -> None:
    """Install a package of one module into a folder of Python's path."""
    module, metadata = folder / name, folder / f"{name}-1.0.dist-info"
    for path in (module, metadata):
        path.mkdir()
    (module / "__init__.py").write_text(code)
    fields = f"Metadata-Version: 2.1\nName: {name}\nRequires-Dist: {requires}\n"
    (metadata / "METADATA").write_text(fields)
    (metadata / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/removed.py,,\n")


@pytest.mark.parametrize(
    ("requires", "imported"),
    [
        ("Gymnasium>=1.0", ["halls_env"]),  # The other one does not mention such an id.
        ("gymnasium-robotics", []),
        ("gymnasium; extra == 'rl'", []),
        ("numpy", []),
    ],
)
def test_ids_of_installed_packages_are_found_by_their_import(
    tmp_path, monkeypatch, requires, imported
):
    user_code.kept.clear()
    register = "import gymnasium\ngymnasium.register('Halls-v0', entry_point='halls_env:Halls')\n"
    packages = {"a_env": register.lower().replace("halls", "rooms"), "halls_env": register}
    for name, code in packages.items():
        install(tmp_path, name, code, requires)
    monkeypatch.syspath_prepend(tmp_path)
    config = EnvironmentConfig("gymnasium", "Halls-v0")
    try:
        if imported:
            check_config(config, "environment.")
        else:
            with pytest.raises(ValueError, match="unknown gymnasium task 'Halls-v0'"):
                check_config(config, "environment.")
        assert [name for name in packages if name in sys.modules] == imported
    finally:
        gymnasium.registry.pop("Halls-v0", None)
        sys.modules.pop("halls_env", None)


REGISTER = "import gymnasium\ngymnasium.register('Halls-v0', entry_point='b_env:Halls')\n"
COMPOSE = (
    "import gymnasium\nfor name in ['Ha']: gymnasium.register(f'{name}lls-v0', 'b_env:Halls')\n"
)


@pytest.mark.parametrize("code", [REGISTER, COMPOSE], ids=["mentioned", "composed"])
def test_a_package_that_cannot_be_imported_is_left_out(code, tmp_path, monkeypatch, caplog):
    user_code.kept.clear()
    install(tmp_path, "halls_env", "raise OSError", "gymnasium")  # Its name begins the id.
    install(tmp_path, "b_env", code, "gymnasium")
    monkeypatch.syspath_prepend(tmp_path)
    check_config(EnvironmentConfig("gymnasium", "Halls-v0"))
    assert "package halls_env: OSError" in caplog.text
    del gymnasium.registry["Halls-v0"], sys.modules["b_env"]


def test_no_environment_is_an_error():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        make_vector_environment(CATCH, num_envs=0, seed=0)


def test_control_suite_is_imported_only_when_asked_for():
    code = (
        "import sys\n"
        "from apex_agents.environments import EnvironmentConfig\n"
        "from apex_agents.validation import check_config\n"
        "check_config(EnvironmentConfig())\n"
        "assert not {'dm_control', 'mujoco'} & set(sys.modules)\n"
        "check_config(EnvironmentConfig('control', 'humanoid:stand'))\n"
        "assert 'dm_control' in sys.modules"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert process.returncode == 0, process.stderr
