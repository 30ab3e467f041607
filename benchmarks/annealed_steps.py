"""Atari by Ape-X DQN whose transitions become shorter while it learns, as a config file.

Long transitions tell early states of a reward sooner, and are off-policy for longer: n falls
geometrically with the learner steps of the acting parameters,

  n = round(10 * 0.3^(learner steps / 30,000)), at least 3

from `agent.n_step`, here 10, as in Schwarzer et al. 2023, who let it fall after every reset of the
network.

Example:
  apex-dqn --config=benchmarks/annealed_steps.py --config.environment.task=boxing
"""

from collections.abc import Callable, Sequence

import dm_env
import reverb

import apex_agents as apex
from apex_agents.acting.adder import PrioritizedAdder, PrioritizedNStepAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.config import ExperimentConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.priorities import make_priority_fn
from apex_agents.validation import require

LAST, ANNEALING_STEPS = 3, 30_000


class AnnealedAdder(PrioritizedNStepAdder):
    """Writes transitions of at most so many steps as the learner steps say."""

    first_n_step: int

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        fraction = min(self._learner_steps_fn() / ANNEALING_STEPS, 1.0)
        self.n_step = round(self.first_n_step * (LAST / self.first_n_step) ** fraction)
        super().add(timestep, output)


class AnnealedBuilder(apex.ApexDQNBuilder):
    """Makes the parts of Ape-X DQN, but with these adders."""

    def make_adders(
        self,
        client: reverb.Client,
        spec: EnvironmentSpec,
        env_indices: Sequence[int] = (0,),
        num_envs: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ) -> Sequence[PrioritizedAdder]:
        config, layout = self.config, self.make_layout(spec)
        require(config.n_step >= LAST, "agent.n_step", config.n_step, f"{LAST} or more")
        settings = (config.replay, config.n_step, config.discount)
        calls = (should_stop, learner_steps_fn, make_priority_fn(config.replay))
        adders = [AnnealedAdder(client, layout, *settings, *calls) for _ in env_indices]
        for adder in adders:
            adder.first_n_step = config.n_step
        return adders


def get_config() -> ExperimentConfig:
    """Return the settings of one game of Atari with this builder."""
    config = apex.load_config("apex_dqn_atari_single_host")
    config.agent.builder = f"{__name__}:AnnealedBuilder"
    config.agent.n_step = 10  # The longest transition, for which the replay's layout is made.
    return config
