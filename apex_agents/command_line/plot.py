r"""Draws runs, while they go on or afterwards.

  python launch/plot.py RUN [RUN ...] [--output=FOLDER]

Makes these figures, each as .png and .svg, as far as the runs have come:
  returns      the evaluator's mean return against actor steps, learner steps and wall time
  speeds       of actors and learner, samples per insert, waiting, size of the replay
  learning     loss, TD error, gradient norm, Q-value, age of what is sampled
  priorities   distribution of priorities and ages in the replay and in what is sampled of it
  exploration  the environments' returns against their epsilons (Ape-X DQN)

Runs that differ in nothing but their seed and where they end become one curve: the interquartile
mean over the seeds and its 95 % confidence interval, as far as all of them have come; faint lines
show each seed. Others are compared with each other; of several runs there is no figure of
priorities.

Examples:
  python launch/plot.py runs/apex_dqn_cartpole-20260101-120000
  python launch/plot.py sweeps/cartpole/CartPole-v1/seed_* --output=figures
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from apex_agents.command_line.errors import fail, parse_flags
from apex_agents.plotting import PLOTS, draw_runs
from apex_agents.runs.folder import RunFolder

_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    f"Folder for the figures; '{PLOTS}' by default, in the run's folder if it is only one, else "
    "here.",
)


def _main(argv: Sequence[str]) -> None:
    try:
        named = [RunFolder(argument) for argument in argv[1:]]
        runs = list({run.path.resolve(): run for run in named}.values())
        if not runs:
            raise ValueError("RUN is missing: name the work directory of at least one.")
        default = pathlib.Path(runs[0].path if len(runs) == 1 else ".", PLOTS)
        folder = pathlib.Path(_OUTPUT.value or default).expanduser()
        files = draw_runs(runs, folder)
        if not files:
            raise ValueError(f"{', '.join(argv[1:])}: there is nothing to draw in logs/ yet.")
    except ValueError as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror}; --output names a folder for figures.")
    for file in files:
        print(file)


def main() -> None:
    """Run the command."""
    app.run(_main, flags_parser=parse_flags)
