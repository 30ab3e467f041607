r"""Plays an environment at random, and says what agents make of it, before any training.

  python launch/check.py TASK [NAME=VALUE ...]

TASK is an id of gymnasium or 'module:function', as `environment.task` takes it; each NAME=VALUE is
a keyword argument of it. Shown are observations and actions as agents have them, which agents learn
so, their network, what a transition takes in the replay, and the episodes and rewards of random
play. What makes learning hard is a warning. The exit code is 2 if no agent can learn in it.

Examples:
  python launch/check.py CartPole-v1
  python launch/check.py my_envs:Corridor length=7
"""

import os
from collections.abc import Sequence

from absl import flags

from apex_agents.command_line.arguments import STARTED_IN, mistakes_end_command
from apex_agents.environment_report import report
from apex_agents.fields import parse_value
from apex_agents.user_code import extend_path

_NUM_STEPS = flags.DEFINE_integer(
    "num_steps", 1_000, "Steps to play, within 20 seconds.", lower_bound=1
)


@mistakes_end_command()
def main(arguments: Sequence[str]) -> None:
    """Check the environment that the arguments name."""
    if not arguments:
        raise ValueError("TASK is missing: an id of gymnasium, or module:function.")
    task, *named = arguments
    if unnamed := [argument for argument in named if "=" not in argument]:
        raise ValueError(f"{unnamed[0]!r} is no NAME=VALUE; one task is checked at a time.")
    pairs = (argument.split("=", 1) for argument in named)
    extend_path([os.path.abspath(STARTED_IN)])
    print(report(task, _NUM_STEPS.value, {name: parse_value(text) for name, text in pairs}))
