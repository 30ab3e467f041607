"""Tests of the checks before a run, on environments that are wrong in one way each."""

import dataclasses
import functools
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents import user_code
from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.checks import (
    acts_as_standard,
    check_environment,
    check_experiment,
    check_legal_actions,
    lives_warning,
)
from apex_agents.config import ExperimentConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.networks import ActionValueNetwork
from apex_agents.environments import EnvironmentConfig, has_mask
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.learning.distributions import expected_value
from apex_agents.legal_actions import LegalActions
from apex_agents.networks.observations import zero_observations
from apex_agents.presets import load_config
from apex_agents.r2d2.config import R2D2Config
from apex_agents.user_code import name_function
from tests.environments.test_masks import Masked


class Halls(gymnasium.Env):
    """Has as many places as `length` says, and observes one that may be wrong."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int, place: int = 0):
        self.observation_space = gymnasium.spaces.Discrete(length)
        self._place = place

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        return self._place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        return self._place, 1.0, False, False, {}


def make(make_environment: Any = Halls, **settings: Any) -> Experiment:
    """Make an experiment in the environments of a function."""
    config = load_config("apex_dqn_catch")
    config.environment, config.run.target_return = EnvironmentConfig(**settings), None
    return make_experiment(config, environment_fn=make_environment)


def test_the_environments_of_an_experiment_are_those_of_a_given_function():
    # Not of the suite in the config, Atari, which repeats actions itself.
    experiment = make(kwargs={"length": 7}, action_repeat=2)
    assert experiment.task == f"{__name__}:Halls"
    assert check_environment(experiment).observations.shape == (7,)


def test_an_environment_that_cannot_be_reset_is_refused_before_anything_starts():
    with pytest.raises(
        ValueError, match=r"Halls fails when it is reset: ValueError: observation holds 7"
    ):
        check_environment(make(kwargs={"length": 7, "place": 7}))


class Steps(Halls):
    """Does in its steps what it was made with; records what all copies do."""

    taken: ClassVar[list[str]] = []

    def __init__(self, returned: Any = None, num_failures: int = 0, evaluation: bool = False):
        super().__init__(3)
        self._returned, self._num_failures = returned, num_failures
        self._evaluation = evaluation

    def step(self, action: int) -> Any:
        self.taken.append("evaluation" if self._evaluation else "training")
        if self._num_failures:
            self._num_failures -= 1
            raise RuntimeError("it is stuck")
        return super().step(action) if self._returned is None else self._returned

    def close(self) -> None:
        self.taken.append("closed")


def check_steps(monkeypatch, make_environment: Any = Steps, **kwargs: Any) -> list[str]:
    """Check an environment before a run, and return what its copies did."""
    monkeypatch.setattr(Steps, "taken", [])
    try:
        check_environment(make(make_environment, kwargs=kwargs))
    finally:
        taken = Steps.taken
    return taken


def test_copies_take_one_step_before_a_run_and_are_closed(monkeypatch):
    assert check_steps(monkeypatch) == ["training", "closed", "evaluation", "closed"]


def test_a_failure_that_a_run_survives_does_not_prevent_it(monkeypatch):
    taken = check_steps(monkeypatch, num_failures=2)
    assert taken == [*3 * ["training"], "closed", *3 * ["evaluation"], "closed"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"returned": [0, 1.0, False, {}]}, "4 values"),
        ({"returned": [9, 1.0, False, False, {}]}, "9"),
        ({"returned": [0, None, False, False, {}]}, "reward is None"),
        ({"num_failures": 3}, r"RuntimeError: it is stuck \(.*test_checks.py, line \d+\)"),
    ],
)
def test_an_environment_that_cannot_be_stepped_is_refused_before_anything_starts(
    kwargs, expected, monkeypatch
):
    def make(returned=None, **kwargs):
        return Steps(returned and tuple(returned), **kwargs)

    with pytest.raises(ValueError, match=f"make.* fails when it is stepped: .*{expected}"):
        check_steps(monkeypatch, make, **kwargs)
    assert Steps.taken[-1] == "closed"


def test_a_step_that_fails_in_evaluations_alone_is_refused(monkeypatch):
    def make(evaluation):
        return Steps(num_failures=3 * evaluation, evaluation=evaluation)

    with pytest.raises(ValueError, match="it is stuck"):
        check_steps(monkeypatch, make)
    assert Steps.taken == ["training", "closed", *3 * ["evaluation"], "closed"]


def test_an_environment_that_cannot_be_closed_is_refused(monkeypatch):
    def close(self):
        raise OSError("no such window")

    monkeypatch.setattr(Steps, "close", close)
    with pytest.raises(ValueError, match="fails when it is closed: OSError: no such window"):
        check_steps(monkeypatch)


def test_evaluations_have_environments_of_their_own_kwargs():
    experiment = make(kwargs={"length": 7}, evaluation_kwargs={"place": 3})
    assert check_environment(experiment).observations.shape == (7,)
    places = [
        experiment.make_vector_environment(1, 0, evaluation=evaluation).reset().observation
        for evaluation in (False, True)
    ]
    assert [place.argmax() for place in places] == [0, 3]


@pytest.mark.parametrize(
    ("function", "settings", "number"),
    [
        ("def make(length): made.append(0); return Halls(length)", {}, 1),
        ("def make(length, evaluation): made.append(0); return Halls(length)", {}, 2),
        (
            "def make(length, place=0): made.append(0); return Halls(length, place)",
            {"evaluation_kwargs": {"place": 1}},
            2,
        ),
    ],
)
def test_as_many_environments_as_needed_are_made_before_a_run(
    function, settings, number, monkeypatch
):
    """Each may need a license, or half a minute."""
    user_code.kept.clear()  # Forget those of an earlier `make`.
    names = {"made": [], "Halls": Halls}
    exec(function, names)
    check_environment(make(names["make"], kwargs={"length": 7}, **settings))
    assert len(names["made"]) == number


def test_evaluations_in_other_spaces_are_refused_before_anything_starts():
    expected = r"In evaluations observations are float32 \[9\], in training they are .* \[7\]"
    with pytest.raises(ValueError, match=expected):
        check_environment(make(kwargs={"length": 7}, evaluation_kwargs={"length": 9}))


class Clock(Halls):
    """Observes the seconds since the epoch."""

    def __init__(self, evaluation: bool = False):
        super().__init__(3, place=1_700_000_001)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (), np.float64)


def test_numbers_that_agents_cannot_tell_apart_are_said_once(caplog):
    check_environment(make(Clock))  # And one for evaluations.
    (record,) = caplog.records
    assert (record.levelname, "Clock" in record.getMessage()) == ("WARNING", True)


class OtherUpdate(ApexDQNBuilder):
    """Learns differently."""

    def make_update(self, spec, seed=0):
        raise NotImplementedError


class OtherNetworks(ApexDQNBuilder):
    """Makes the networks of another seed."""

    def make_networks(self, spec, seed=0, **options):
        return super().make_networks(spec, seed + 1, **options)


class OtherPolicy(ApexDQNBuilder):
    """Explores in evaluations."""

    def make_evaluation_policy(self, spec, num_envs, seed):
        return self.make_policy(spec, range(num_envs), num_envs, seed)


class NoPolicy(ApexDQNBuilder):
    """Cannot evaluate."""

    def make_evaluation_policy(self, spec, num_envs, seed):
        raise NotImplementedError


class UnmaskedNetworks(ApexDQNBuilder):
    """Has another head, in networks that leave out what is legal."""

    def make_networks(self, spec, seed=0, dtype=tf.float32):
        tf.random.set_seed(seed)
        layers = self.wrap(snt.nets.MLP([spec.actions.num_values]), spec)
        layers(zero_observations(spec))
        return ActionValueNetwork(layers, expected_value())

    def wrap(self, layers, spec):
        return layers


class MaskedNetworks(UnmaskedNetworks):
    def wrap(self, layers, spec):
        return LegalActions(layers, spec)


class UnmaskedPolicy(ApexDQNBuilder):
    """Draws among all actions."""

    def make_policy(self, spec, env_indices, num_envs, seed):
        policy = super().make_policy(spec, env_indices, num_envs, seed)
        choose, random = policy._choose, np.random.default_rng(seed)

        def choose_or_draw(q_values):
            _, values = choose(q_values)
            return random.integers(q_values.shape[1], size=len(q_values)), values

        policy._choose = choose_or_draw
        return policy


def make_same(config, torso_fn):
    return ApexDQNBuilder(config, torso_fn)


def make_quantiles(config, torso_fn):
    return ApexDQNBuilder(dataclasses.replace(config, head="quantile"), torso_fn)


@pytest.mark.parametrize(
    ("builder", "is_standard"),
    [
        (None, True),
        (OtherUpdate, True),
        (make_same, True),
        (OtherNetworks, False),
        (OtherPolicy, False),
        (NoPolicy, False),
        (make_quantiles, False),
    ],
)
def test_builders_that_evaluate_as_the_agents_own_one(builder, is_standard):
    experiment = make_experiment(load_config("apex_dqn_catch"), builder_fn=builder)
    agent = experiment.config.agent
    assert acts_as_standard(agent, experiment.environment_spec()) is is_standard
    assert agent.builder == ("standard" if builder is None else name_function(builder))


def test_an_environment_that_never_resets_is_refused_in_one_sentence():
    class Dead(Halls):
        def reset(
            self, *, seed: int | None = None, options: dict | None = None
        ) -> tuple[int, dict]:
            raise RuntimeError("no licence")

    with pytest.raises(ValueError, match="fails when it is reset: RuntimeError: no licence"):
        check_environment(make(lambda: Dead(3)))


@pytest.mark.parametrize("builder", [UnmaskedNetworks, UnmaskedPolicy, MaskedNetworks, make_same])
def test_networks_and_policies_of_ones_own_take_legal_actions(builder):
    config = load_config("apex_dqn_catch")
    config.agent.torso, config.run.target_return = "mlp", None
    config.agent.frame_stack = 0
    masks = [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    make_masked = functools.partial(Masked, masks=masks)
    experiment = make_experiment(config, environment_fn=make_masked, builder_fn=builder)
    if builder in (UnmaskedNetworks, UnmaskedPolicy):
        with pytest.raises(ValueError, match=r"takes action \d where only \d is .*LegalActions"):
            check_experiment(experiment)
    else:
        check_legal_actions(experiment.builder, check_environment(experiment))


def test_the_first_step_of_the_check_is_legal():
    experiment = make(lambda: Masked(masks=[[0, 0, 1], [0, 1, 0], [1, 0, 0]]))
    assert has_mask(check_environment(experiment))  # It takes no other action.


def make_seeded_images(seed: int | None = None, is_part: bool = False) -> gymnasium.Env:
    environment = gymnasium.make("CartPole-v1")
    space = gymnasium.spaces.Box(-9.0, 9.0, (2, 2, 4), np.float32)

    def observe(numbers: np.ndarray) -> Any:
        image = np.broadcast_to(numbers, (2, 2, 4))
        return {"camera": image, "speed": numbers[:1]} if is_part else image

    if is_part:
        space = gymnasium.spaces.Dict(camera=space, speed=gymnasium.spaces.Box(-9.0, 9.0, (1,)))
    return gymnasium.wrappers.TransformObservation(environment, observe, space)


@pytest.mark.parametrize("torso", ["auto", "mlp"])
def test_images_of_floats_and_one_seed_for_all_are_warnings(torso, caplog):
    config = load_config("apex_dqn_cartpole")
    config.agent.torso = torso
    config.environment = EnvironmentConfig("function", f"{__name__}:make_seeded_images")
    check_experiment(make_experiment(config))
    assert "observations [2, 2, 4] float32 pass fully connected layers" in caplog.text
    assert "kwargs.seed" not in caplog.text
    config.environment.kwargs = {"seed": 1}
    check_experiment(make_experiment(config))
    assert "environment.kwargs.seed is the seed of all environments" in caplog.text
    caplog.clear()
    config.environment.kwargs = {"is_part": True}
    check_experiment(make_experiment(config))
    assert "observations [2, 2, 4] float32 pass fully connected layers" in caplog.text


def test_a_memory_that_ends_with_lives_in_training_only_is_a_warning():
    config = ExperimentConfig(R2D2Config(), EnvironmentConfig(task="breakout"))
    assert lives_warning(config) is None
    config.environment.atari.life_loss_ends_episode = True
    assert "memory of R2D2 ends with each life" in lives_warning(config)
    assert lives_warning(ExperimentConfig(ApexDQNConfig(), config.environment)) is None
    config.environment.suite = "gymnasium"
    assert lives_warning(config) is None


class OwnUpdateBuilder(ActorCriticBuilder):
    def make_update(self, spec, seed=0):
        return super().make_update(spec, seed)


def test_an_update_that_workers_would_not_use_is_refused():
    experiment = make_experiment(load_config("a2c_cartpole"), builder_fn=OwnUpdateBuilder)
    with pytest.raises(ValueError, match=r"OwnUpdateBuilder overrides .* make_network_update"):
        check_experiment(experiment)
