r"""Draws runs, while they are running or afterwards.

  python launch/plot.py RUN [RUN ...] [--output=FOLDER]

Each figure is saved as .png and .svg:
  returns      the evaluator's mean return over actor steps, learner steps and wall time
  speeds       speeds of actors and learner, samples per insert, waiting time, size of the replay
  learning     loss, TD error, gradient norm, Q-value, age of the samples
  memory       Delta Q at the first and at the last trained step (R2D2 with agent.measure_staleness)
  metrics      numbers of `info` in evaluations: is_success and those of environment.metrics
  priorities   distributions of priorities and ages in the replay and in the sampled batches
  staleness    how old gradients are when they are applied (asynchronous learners, A3C)
  exploration  returns of the environments over their epsilons (Ape-X DQN, R2D2)

Runs that differ only in their seed and in their limits become one curve: the mean over the seeds,
from five seeds on the interquartile mean with its 95 % confidence interval, up to the point that
all seeds have reached. A seed that ended at its target counts with its last return from there on,
and is marked. Faint lines show single seeds. Lines break where a run was stopped. Tasks have panels
of their own. Priorities and staleness are drawn for a single run only. The folder of a study stands
for all of its runs.

Examples:
  python launch/plot.py runs/apex_dqn_cartpole-20260101-120000
  python launch/plot.py sweeps/cartpole
  python launch/plot.py sweeps/cartpole/CartPole-v1/*/seed_0 --output=figures
"""

import os
import pathlib
from collections.abc import Sequence

from absl import flags

from apex_agents.command_line.arguments import fail, mistakes_end_command
from apex_agents.plotting import PLOTS, draw_runs
from apex_agents.runs.folder import find_runs

_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    f"Folder for the figures; by default '{PLOTS}' in the only folder that is named, or in the "
    "current folder.",
)


@mistakes_end_command((ValueError, OSError))
def main(arguments: Sequence[str]) -> None:
    """Draw the runs that the arguments name."""
    named = [run for argument in arguments for run in find_runs(argument)]
    runs = list({run.path.resolve(): run for run in named}.values())
    if not runs:
        raise ValueError("RUN is missing: name the work directory of at least one.")
    only = runs[0].path if len(runs) == 1 else arguments[0] if len(arguments) == 1 else "."
    folder = pathlib.Path(os.path.expanduser(_OUTPUT.value or pathlib.Path(only, PLOTS)))
    try:
        files = draw_runs(runs, folder)
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror}; --output names a folder for figures.")
    if not files:
        raise ValueError(f"{', '.join(arguments)}: there is nothing to draw in logs/ yet.")
    for file in files:
        print(file)
