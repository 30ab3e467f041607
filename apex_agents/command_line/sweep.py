"""The command that trains with several seeds and on several tasks, and compares the results."""

import dataclasses
import functools
import itertools
import os
import pathlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # Read when TensorFlow is imported.

from absl import app, flags
from errors import EXIT_FAILURE, fail, refuse_arguments, warn  # In launch/.
from rich.console import Console
from settings import make_experiment, parse_config_flags  # In launch/.

from apex_agents.config import ExperimentConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.plotting import draw_sweep
from apex_agents.replay.footprint import available_memory, memory_warning
from apex_agents.runs.workdir import replace_file
from apex_agents.sweep.plan import Run, plan_runs
from apex_agents.sweep.results import summarise, to_csv, to_markdown
from apex_agents.sweep.runner import FINISHED, Runner
from apex_agents.sweep.screen import Screen

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_DEFAULT_CONFIG = str(_ROOT / "configs" / "apex_dqn_cartpole.py")
_AGENTS: dict[type, tuple[Any, str]] = {
    ApexDQNConfig: (ApexDQNBuilder, "apex_dqn.py"),
    ApexDPGConfig: (ApexDPGBuilder, "apex_dpg.py"),
}
_SHOWN_FLAGS = ("seeds", "games", "parallel", "workdir")
_PERIOD_SECONDS = 0.2

_SEEDS = flags.DEFINE_integer(
    "seeds", 5, "Runs of each task; their seeds count up from that of the config.", 1, 10_000
)
_GAMES = flags.DEFINE_list(
    "games",
    [],
    "Tasks of the config's suite, separated by commas: games, for Atari. By default that of the "
    "config.",
)
_PARALLEL = flags.DEFINE_integer("parallel", 1, "Runs at once.", 1, 1000)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the sweep, of a new one or of one to resume; a new one in sweeps/ by default.",
)


def main() -> None:
    """Run the command, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while planning: no traceback.
    parse_flags = functools.partial(parse_config_flags, _DEFAULT_CONFIG, _SHOWN_FLAGS)
    app.run(_main, flags_parser=parse_flags)


def _main(argv: Sequence[str]) -> None:
    refuse_arguments(argv)
    folder, runs = _plan()
    screen = Screen(Console())
    screen.print(f"Sweep folder: {folder}")
    for run in runs:
        if run.is_finished:
            screen.print(f"{run.name} is finished already.")
    runner = Runner(runs, _PARALLEL.value)
    _train(runner, screen)
    is_written = _write_results(folder, runner.endings, screen)
    for run, ending in runner.endings.items():
        if ending != FINISHED:
            screen.print(f"{run.name}: {ending}, see {run.log}")
    is_complete = is_written and set(runner.endings.values()) == {FINISHED}
    exit_code = 0 if is_complete else EXIT_FAILURE
    if runner.signals:
        exit_code = 128 + runner.signals[0]
    try:
        sys.stdout.flush()
    except OSError:  # Python would end with a code of its own.
        os._exit(exit_code)
    sys.exit(exit_code)


def _plan() -> tuple[pathlib.Path, list[Run]]:
    """Return the sweep's folder and runs, or exit with one line that says what is wrong."""
    config: ExperimentConfig = flags.FLAGS.config
    config_flag: Any = flags.FLAGS["config"]
    config_file = config_flag.config_filename
    name = f"{pathlib.Path(config_file).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = pathlib.Path(_WORKDIR.value or pathlib.Path("sweeps", name)).expanduser().absolute()
    overrides = [f"--config.{path}={value}" for path, value in config_flag.override_values.items()]
    runs: list[Run] = []
    try:
        for task in dict.fromkeys(_GAMES.value or [config.environment.task]):
            environment = dataclasses.replace(config.environment, task=task)
            task_config = dataclasses.replace(config, environment=environment)
            script = str(_ROOT / "launch" / _check(task_config))
            argv = (sys.executable, script, "--lp_launch_type=local_mp", f"--config={config_file}")
            runs += plan_runs(task_config, _SEEDS.value, folder, (*argv, *overrides))
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        fail(error)
    except OSError as error:
        fail(f"--workdir={folder} cannot be written: {error.strerror}.")
    return folder, runs


def _check(config: ExperimentConfig) -> str:
    """Return the script that trains with a config; raise a ValueError if it cannot work."""
    if type(config.agent) not in _AGENTS:
        names = ", ".join(agent.__name__ for agent in _AGENTS)
        raise ValueError(f"agent is {config.agent!r}; it has to be one of {names}.")
    make_builder, script = _AGENTS[type(config.agent)]
    experiment, spec = make_experiment(make_builder, config)
    replay_bytes = experiment.builder.estimate_replay_bytes(spec)
    memory = available_memory() // _PARALLEL.value
    if (warning := memory_warning(config.agent.replay, replay_bytes, memory)) is not None:
        share = f" (It is one of {_PARALLEL.value} at once.)" if _PARALLEL.value > 1 else ""
        warn(f"{config.environment.task}: {warning}{share}")
    return script


def _train(runner: Runner, screen: Screen) -> None:
    """Train until all runs have ended; Ctrl-C and SIGTERM stop them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: runner.stop(signum))
    is_told = False
    while not runner.is_done():
        for line in runner.step():
            screen.print(line)
        if runner.signals and not is_told:
            screen.print("Stopping; press Ctrl-C again to end everything at once.")
            is_told = True
        screen.show(runner.newest_output())
        time.sleep(_PERIOD_SECONDS)


def _write_results(folder: pathlib.Path, endings: Mapping[Run, str], screen: Screen) -> bool:
    """Print and write tables and figures; return whether they could be written."""
    rows, begun = [], []
    for task, group in itertools.groupby(endings, lambda run: run.task):
        runs = list(group)
        folders = [opened for run in runs if (opened := run.open_folder())]
        rows.append(summarise(task, folders, [endings[run] for run in runs]))
        begun += folders
    table = to_markdown(rows)
    screen.print_table(table)
    try:
        files = draw_sweep(begun, folder)
        for name, text in (("results.md", table), ("results.csv", to_csv(rows))):
            replace_file(folder / name, text.encode())
            files.append(folder / name)
    except OSError as error:
        screen.print(f"error: {folder} cannot be written: {error.strerror}")
        return False
    for file in files:
        screen.print(str(file))
    return True
