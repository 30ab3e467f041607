r"""Evaluates the parameters of a run.

  python launch/evaluate.py RUN [FLAGS]

The run may still be running, have ended or have been stopped. Every evaluation gets a new folder in
`evaluations/` of the run, where nothing else changes: `episodes.csv` with a row for each episode,
`summary.json` with the statistics, and the videos, if there are any. Atari games follow the paper's
protocol (up to 30 no-op frames at the start, at most 108,000 frames), and scores are compared with
those of a human player and of the paper.

Examples:
  python launch/evaluate.py runs/apex_dqn_cartpole-20260101-120000
  python launch/evaluate.py runs/pong --episodes=100 --video=3
  python launch/evaluate.py runs/pong --checkpoint=last --epsilon=0.001 --seed=1
  python launch/evaluate.py runs/pong --checkpoint=learner-000000120000 --output=results
"""

import contextlib
import itertools
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence

from absl import flags
from rich import progress
from rich.console import Console

from apex_agents.command_line.arguments import (
    define_checkpoint,
    define_workdir,
    fail,
    locate,
    mistakes_end_command,
    take_run,
    warn,
)
from apex_agents.config import ExperimentConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import Episode
from apex_agents.evaluation import final_evaluation
from apex_agents.evaluation.atari_scores import no_op_rules, protocol_deviations
from apex_agents.evaluation.final_evaluation import MAX_ENVS, Request, Result
from apex_agents.exit_codes import EXIT_FAILURE
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.r2d2.config import R2D2Config
from apex_agents.registry import CONFIG_CLASSES
from apex_agents.runs.checkpoints import find_parameters, is_of_run
from apex_agents.runs.config_file import read_config
from apex_agents.runs.files import encode_json, replace_file
from apex_agents.runs.parameter_file import SavedParameters, read_parameters
from apex_agents.runs.workdir import EVALUATIONS, SUMMARY_FILE, make_new_folder
from apex_agents.user_code import naming_errors
from apex_agents.waits import reporting_thread

_WORKDIR = define_workdir()
_EPISODES = flags.DEFINE_integer("episodes", 100, "Number of episodes.", 1, 1_000_000)
_CHECKPOINT = define_checkpoint()
_VIDEO = flags.DEFINE_integer("video", 0, "Number of episodes to film (MP4).", 0, MAX_ENVS)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Equal seeds give equal episodes on one machine.", 0, 2**63 - 1
)
_EPSILON = flags.DEFINE_float(
    "epsilon",
    None,
    "Probability of a random action (Ape-X DQN, R2D2); by default as in the run's evaluations.",
    0.0,
    1.0,
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "Folder for the results, without results of another evaluation; by default "
    "<workdir>/evaluations/<checkpoint>-<learner step>-seed<seed>, with the next free number "
    "if there is such a folder.",
)
_MAX_ENVS = flags.DEFINE_integer(
    "max_envs",
    MAX_ENVS,
    "Maximum number of parallel environments; changing it changes the episodes.",
    1,
    MAX_ENVS,
)


@mistakes_end_command((ValueError, OSError))
def main(arguments: Sequence[str]) -> None:
    """Evaluate the run that the arguments name."""
    workdir = take_run(arguments, _WORKDIR.value)
    if _VIDEO.value > min(_EPISODES.value, _MAX_ENVS.value):
        raise ValueError(
            f"--video is {_VIDEO.value}; it has to be at most --episodes, and --max_envs."
        )
    config = read_config(workdir, list(CONFIG_CLASSES.values()))
    path = find_parameters(workdir, _CHECKPOINT.value)
    _apply_rules(config)
    parameters = read_parameters(path)
    with _making_output(workdir, parameters) as output:
        paths = [output / f"episode-{index:03d}.mp4" for index in range(_VIDEO.value)]
        request = Request(parameters, _EPISODES.value, _SEED.value, paths)
        result = _play(make_experiment(config, workdir=str(workdir)), request)
        _report(config, request, result, output, is_of_run(path, workdir))


def _apply_rules(config: ExperimentConfig) -> None:
    """Apply the rules of evaluation; warn if scores do not compare with the paper's."""
    environment = config.environment
    if _EPSILON.value is not None:
        if not isinstance(config.agent, ApexDQNConfig | R2D2Config):
            raise ValueError("--epsilon is for Ape-X DQN and R2D2; this agent has no epsilon.")
        config.agent.exploration.evaluation_epsilon = _EPSILON.value
    if environment.suite == "atari":
        environment.atari = no_op_rules(environment.atari)
        environment.atari.num_threads = os.cpu_count() or 1
        for deviation in protocol_deviations(environment.atari):
            warn(f"scores do not compare with the paper's: {deviation}.")


@contextlib.contextmanager
def _making_output(workdir: pathlib.Path, parameters: SavedParameters) -> Iterator[pathlib.Path]:
    """Make and yield a folder that holds no results; remove it if it stays empty."""
    if _OUTPUT.value:
        output = locate(_OUTPUT.value)
        output.mkdir(parents=True, exist_ok=True)
        if any(output.glob("episode*")) or (output / SUMMARY_FILE).exists():
            raise ValueError(
                f"--output is {output}, which holds the results of another evaluation; name a new "
                "folder."
            )
    else:
        output = _make_folder(workdir / EVALUATIONS, parameters)
    try:
        yield output
    finally:
        with contextlib.suppress(OSError):  # It is not empty.
            output.rmdir()


def _make_folder(parent: pathlib.Path, parameters: SavedParameters) -> pathlib.Path:
    """Make the folder of an evaluation."""
    path = parameters.path
    # The name of a learner's checkpoint, which is a folder, has the step in it.
    name = path.name if path.is_dir() else f"{path.stem}-{parameters.learner_steps}"
    name += f"-seed{_SEED.value}"
    if not is_of_run(path, parent.parent):
        name = f"other-{name}"
    return make_new_folder(parent / name)


def _play(experiment: Experiment, request: Request) -> Result:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    has_begun = False

    def on_lock_step(episodes: Sequence[Episode]) -> None:
        nonlocal has_begun
        has_begun = True
        show(episodes)

    try:
        with (
            naming_errors(f"{experiment.task} fails", ValueError, OSError),
            reporting_thread("The evaluation", lambda name, wait: warn(f"{name} {wait}.")),
            _show_progress(request.num_episodes) as show,
        ):
            return final_evaluation.evaluate(
                experiment, request, on_lock_step, _on_failure, _MAX_ENVS.value
            )
    except (ValueError, OSError) as error:
        if not has_begun:  # It is a mistake of the command line.
            raise
        fail(error, EXIT_FAILURE)


def _report(
    config: ExperimentConfig,
    request: Request,
    result: Result,
    output: pathlib.Path,
    is_of_run: bool,
) -> None:
    """Write the results into their folder, and print them."""
    summary = final_evaluation.summarise(config, request, result)
    summary["max_envs"] = _MAX_ENVS.value
    if not is_of_run:  # Model cards of the run do not have them.
        summary["checkpoint"] = str(request.parameters.path.absolute())
    videos = ", ".join(video.name for video in result.videos)
    lines = final_evaluation.describe(summary)
    try:
        table = final_evaluation.to_csv(config.environment, result.episodes)
        replace_file(output / "episodes.csv", table.encode())
        replace_file(output / SUMMARY_FILE, encode_json(summary))
    except OSError as error:
        fail(f"the results cannot be written: {error}", EXIT_FAILURE)
    try:
        for name, text in (*lines, ("videos", videos or "none"), ("results", output)):
            print(f"{name:>18}: {text}")
        sys.stdout.flush()
    except OSError as error:
        fail(f"the results are in {output}, but cannot be printed: {error}", EXIT_FAILURE)


@contextlib.contextmanager
def _show_progress(num_episodes: int) -> Iterator[Callable[[Sequence[Episode]], None]]:
    """Show in a terminal how many episodes have ended; yield the callback of each lock-step."""
    console = Console(stderr=True)
    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.completed} of {task.total} episodes"),
        progress.TextColumn("step {task.fields[steps]:,}"),
        progress.TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=num_episodes, steps=0)
        steps = itertools.count(1)
        yield lambda episodes: bar.update(task, advance=len(episodes), steps=next(steps))


def _on_failure(error: Exception) -> None:
    """Refuse environments that cannot be rendered; tolerate a full disk."""
    if not isinstance(error, OSError):
        raise ValueError(f"--video: {error}") from error
    warn(f"there will be no videos: {error}")
