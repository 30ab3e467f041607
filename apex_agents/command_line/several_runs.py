"""What the commands share that train several runs."""

import contextlib
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

from absl import flags

from apex_agents.checks import check_experiment
from apex_agents.command_line import commands
from apex_agents.command_line.errors import fail, leave, warn
from apex_agents.command_line.paths import locate
from apex_agents.command_line.run_flags import define_wandb
from apex_agents.command_line.settings import Settings
from apex_agents.config import ExperimentConfig
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from apex_agents.experiment import make_experiment
from apex_agents.nodes.host import available_memory, memory_warning
from apex_agents.registry import find_agent
from apex_agents.runs.config_file import CONFIG_FILE
from apex_agents.runs.files import hold_lock, replace_file
from apex_agents.runs.workdir import LOCK_FILE, check_path
from apex_agents.studies.plan import Run
from apex_agents.studies.runner import FINISHED, Runner
from apex_agents.studies.screen import Screen

_PERIOD_SECONDS = 0.2

PARALLEL = flags.DEFINE_integer(
    "parallel", 1, "Runs at once, each on its share of the cores.", 1, 1000
)
# Launchpad defines a flag of this name with other types.
_LAUNCH_TYPE = flags.DEFINE_enum(
    "lp_launch_type",
    "local_mp",
    ("local_mp", "local_mt"),
    "Where the nodes of each run are: in processes, or in threads of one process, with which a "
    "short run on one core takes less time.",
    allow_override=True,
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of all runs, a new one or one to resume; by default one in sweeps/.",
)
_WANDB = define_wandb()


@contextlib.contextmanager
def preparing_folder(name: str) -> Iterator[pathlib.Path]:
    """Yield the absolute path of the folder for all runs; mistakes in it end the command.

    Args:
      name: name of the folder in sweeps/ that is used without --workdir.
    """
    folder = locate(_WORKDIR.value or f"sweeps/{name}")
    try:
        if (folder / CONFIG_FILE).exists():
            raise ValueError(f"The folder {folder} holds a single run; name another one.")
        yield folder
    except ValueError as error:
        fail(error)
    except BlockingIOError:
        fail(f"The folder {folder} is in use: another command trains in it.")
    except OSError as error:
        fail(f"The folder {folder} cannot be written: {error.strerror}.")


def new_name(settings: Settings) -> str:
    """Return a name for the folder of new runs."""
    return f"{settings.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def lock_folder(folder: pathlib.Path) -> IO[str]:
    """Make the folder for all runs and keep other commands out of it until the file is closed.

    Raises:
      ValueError: runs cannot have such a path.
      BlockingIOError: another command trains in it.
      OSError: it cannot be written.
    """
    check_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return hold_lock(folder / LOCK_FILE, 0.0)


def make_command(settings: Settings, fields: Mapping[str, Any]) -> list[str]:
    """Return the command that trains with some fields changed, but for seed and work directory."""
    command = commands.train_argv(find_agent(settings.config.agent))
    wandb = [] if _WANDB.value is None else [f"--wandb={_WANDB.value}"]
    return [*command, f"--lp_launch_type={_LAUNCH_TYPE.value}", *wandb, *settings.to_flags(fields)]


def check_config(config: ExperimentConfig) -> None:
    """Raise a ValueError if a run cannot learn; warn if the replay exceeds its share of memory."""
    experiment = make_experiment(config)
    spec = check_experiment(experiment)
    replay_bytes = experiment.builder.estimate_replay_bytes(spec)
    memory = available_memory() // PARALLEL.value
    warning = memory_warning(experiment.data_flow(), replay_bytes, memory)
    if warning is not None:
        share = f" (It is one of {PARALLEL.value} at once.)" if PARALLEL.value > 1 else ""
        warn(f"{config.environment.task}: {warning}{share}")


def train(runner: Runner, screen: Screen, before_step: Callable[[], bool] = lambda: False) -> None:
    """Train until all runs have ended; Ctrl-C and SIGTERM end them, Ctrl-Z stops them until `fg`.

    Args:
      runner: the runs.
      screen: where their progress is shown.
      before_step: called several times a second; may add runs and interrupt some. Returns whether
        it has more to do, although no run is active.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: runner.stop(signum))
    signal.signal(signal.SIGTSTP, lambda signum, frame: runner.suspend())
    is_told = False
    has_more = before_step()
    while not runner.is_done() or (has_more and not runner.signals):
        for line in runner.step():
            screen.print(line)
        if runner.signals and not is_told:
            screen.print("Stopping; press Ctrl-C again to end everything at once.")
            is_told = True
        screen.show(runner.newest_output())
        time.sleep(_PERIOD_SECONDS)
        has_more = before_step()


def train_to_end(
    runs: Sequence[Run],
    lock: IO[str],
    screen: Screen,
    write: Callable[[Mapping[Run, str]], bool],
) -> NoReturn:
    """Train runs, have their results written, say which have not finished, and exit.

    Args:
      runs: runs of which some may be finished.
      lock: lock of their folder.
      screen: where their progress is shown.
      write: writes the results of runs that have ended so, and returns whether it could.
    """
    runner = Runner(runs, PARALLEL.value)
    train(runner, screen)
    is_written = write(runner.endings)
    for run, ending in runner.endings.items():
        if ending != FINISHED:
            screen.print(f"{run.name}: {ending}, see {run.log}")
    leave_after(runner, lock, is_written and set(runner.endings.values()) == {FINISHED})


def leave_after(runner: Runner, lock: IO[str], is_complete: bool) -> NoReturn:
    """Release the folder, and exit as the signal says that stopped the runs, if one did."""
    lock.close()
    if runner.signals:
        leave(128 + runner.signals[0])
    leave(EXIT_SUCCESS if is_complete else EXIT_FAILURE)


def write_results(
    folder: pathlib.Path,
    texts: Mapping[str, str],
    draw: Callable[[], Sequence[pathlib.Path]],
    screen: Screen,
) -> bool:
    """Write tables and figures and print their paths; return whether they could be written.

    Args:
      folder: folder of the tables.
      texts: content of each table by the name of its file.
      draw: draws the figures and returns the paths of their files.
      screen: where the paths are shown.
    """
    try:
        for name, text in texts.items():
            replace_file(folder / name, text.encode())
        files = [*draw(), *(folder / name for name in texts)]
    except OSError as error:
        screen.print(f"error: {folder} cannot be written: {error.strerror}")
        return False
    except Exception as error:  # Of Matplotlib, which may raise anything; the tables are written.
        screen.print(f"error: no figure was drawn: {type(error).__name__}: {error}")
        return False
    for file in files:
        screen.print(str(file))
    return True
