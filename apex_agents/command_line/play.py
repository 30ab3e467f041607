r"""Shows a trained agent in a window, or films it.

  python launch/play.py RUN [FLAGS]

Escape, Q or closing the window ends the command. Where there is no display, one episode becomes a
video in the current folder. Nothing is written into the folder of the run; `apex-evaluate` computes
scores.

Examples:
  python launch/play.py runs/pong
  python launch/play.py runs/pong --checkpoint=last --episodes=3 --seed=1
  python launch/play.py runs/pong --video=pong.mp4
"""

import contextlib
import os
import signal
from collections.abc import Sequence

from absl import flags

from apex_agents.command_line.arguments import (
    define_checkpoint,
    define_workdir,
    locate,
    mistakes_end_command,
    take_run,
)
from apex_agents.environments.opengl import has_display
from apex_agents.evaluation import final_evaluation
from apex_agents.evaluation.final_evaluation import Request
from apex_agents.evaluation.videos import VideoWriter
from apex_agents.evaluation.window import Window, WindowClosed
from apex_agents.experiment import make_experiment
from apex_agents.registry import CONFIG_CLASSES
from apex_agents.runs.checkpoints import find_parameters
from apex_agents.runs.config_file import read_config
from apex_agents.runs.parameter_file import read_parameters
from apex_agents.user_code import naming_errors

_WORKDIR = define_workdir()
_CHECKPOINT = define_checkpoint()
_EPISODES = flags.DEFINE_integer("episodes", 1, "Number of episodes in the window.", 1)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the first episode.", 0, 2**62)
_VIDEO = flags.DEFINE_string("video", None, "MP4 file to write in place of a window.")


@mistakes_end_command((ValueError, OSError))
def main(arguments: Sequence[str]) -> None:
    """Show, or film, the agent of the run that the arguments name."""
    workdir = take_run(arguments, _WORKDIR.value)
    config = read_config(workdir, list(CONFIG_CLASSES.values()))
    path = find_parameters(workdir, _CHECKPOINT.value)
    experiment = make_experiment(config, workdir=str(workdir))
    parameters = read_parameters(path)
    # SDL_VIDEODRIVER=dummy opens invisible windows, as tests do.
    is_filmed = bool(_VIDEO.value) or not (has_display() or os.environ.get("SDL_VIDEODRIVER"))
    video = locate(_VIDEO.value or f"{workdir.resolve().name}.mp4")
    if is_filmed and _EPISODES.value > 1:
        raise ValueError(
            f"--episodes={_EPISODES.value} is for a window; apex-evaluate films several "
            "episodes (--video=N)."
        )
    if is_filmed and video.exists():
        raise ValueError(f"{video} exists already; name another file with --video.")
    window = Window(config.environment.task)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fails = naming_errors(f"{experiment.task} fails", ValueError, OSError)
    with fails, contextlib.suppress(WindowClosed):
        for index in range(1 if is_filmed else _EPISODES.value):
            result = final_evaluation.evaluate(
                experiment,
                Request(parameters, 1, _SEED.value + index, [video]),
                on_failure=_refuse,
                make_writer=VideoWriter if is_filmed else lambda _, rate: window.at_rate(rate),
            )
            (episode,) = result.episodes
            print(f"return {episode.episode_return:,.2f} after {episode.length:,} steps")
    if is_filmed:
        print(f"video: {video}")


def _refuse(error: Exception) -> None:
    raise error
