r"""Trains with several settings and seeds, and compares the results.

Fields that get several values, separated by commas, make a grid: every combination is trained with
every seed. A comma within brackets or quotes does not separate: (64,64),(128,) are two tuples.
Settings with names of yours, each of which may change several fields, are a study: apex-paper.

The folder of the sweep holds <task>/<setting>/seed_<i>/, the work directories of the runs
(output.log is what a run printed), and in the end results.md, results.csv, returns.png and
returns.svg.

A run that fails does not stop the others; the exit code is 1 then. Given again with the same
--workdir, after Ctrl-C for example, the command resumes the runs that have not reached their end.

Examples:
  python launch/sweep.py --config=apex_dqn_cartpole --seeds=5
  python launch/sweep.py --config=apex_dqn_cartpole --config.agent.learning_rate=0.001,0.004 \
      --config.agent.mlp_hidden_sizes='(64,64),(128,)' --seeds=3 --parallel=2
  python launch/sweep.py --config=apex_dqn_atari_single_host \
      --config.environment.task=pong,breakout --seeds=3 --workdir=sweeps/two_games \
      --config.run.max_actor_steps=1e6
"""

import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from absl import flags
from rich.console import Console

from apex_agents.command_line import several_runs
from apex_agents.command_line.settings import Settings, change_fields, run_with_settings
from apex_agents.command_line.variants import RANGE
from apex_agents.plotting import draw_runs
from apex_agents.plotting.run_groups import FREE_FIELDS, TASK, shorten
from apex_agents.runs.setting_labels import record_labels
from apex_agents.studies.plan import Run, check_folders, plan_runs
from apex_agents.studies.results import summarise, to_csv, to_markdown
from apex_agents.studies.screen import Screen
from apex_agents.validation import get_field

_DEFAULT_CONFIG = "apex_dqn_cartpole"

_SEEDS = flags.DEFINE_integer(
    "seeds", 5, "Runs of each setting; their seeds count up from that of the config.", 1, 10_000
)
flags.adopt_module_key_flags(several_runs)


def main() -> None:
    """Run the command, and exit."""
    run_with_settings(_sweep, _DEFAULT_CONFIG, has_variants=True)


def _sweep(settings: Settings) -> None:
    with several_runs.preparing_folder(several_runs.new_name(settings)) as folder:
        runs = _plan(settings, folder)
        lock = several_runs.lock_folder(folder)
        record_labels(folder, {run.folder.parent: run.label for run in runs if run.setting})
    screen = Screen(Console())
    screen.print(f"Sweep folder: {folder}")
    for run in runs:
        if run.is_finished:
            screen.print(f"{run.name} is finished already.")
    several_runs.train_to_end(
        runs, lock, screen, lambda endings: _write_results(folder, endings, screen)
    )


def _plan(settings: Settings, folder: pathlib.Path) -> list[Run]:
    """Return the runs of the sweep; a ValueError says which of them is impossible."""
    names = dict(zip(settings.variants, shorten(list(settings.variants)), strict=True))
    runs: list[Run] = []
    for fields in _grid(settings):
        config = change_fields(settings.config, fields)
        several_runs.check_config(config)
        command = several_runs.make_command(settings, fields)
        setting = {names[path]: fields[path] for path in fields if path != TASK}
        runs += plan_runs(config, setting, _SEEDS.value, folder, command)
    check_folders(runs)
    return runs


def _grid(settings: Settings) -> Iterator[Mapping[str, Any]]:
    """Yield the different combinations of the values of the fields that have several."""
    values: dict[str, list[Any]] = {}
    for path, texts in settings.variants.items():
        if path in FREE_FIELDS:
            raise ValueError(
                f"--config.{path}={','.join(texts)} has several values; seeds and limits of the "
                "runs make no settings. --seeds is the number of seeds."
            )
        if any(map(RANGE.fullmatch, texts)):
            raise ValueError(
                f"--config.{path}={','.join(texts)} is a range; a sweep needs single values, and "
                "apex-tune (launch/tune.py) searches in ranges."
            )
        configs = [change_fields(settings.config, {path: text}) for text in texts]
        read = [get_field(config, path) for config in configs]
        values[path] = list({str(value): value for value in read}.values())
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _write_results(folder: pathlib.Path, endings: Mapping[Run, str], screen: Screen) -> bool:
    """Print and write tables and figures; return whether they could be written."""
    rows, begun = [], []
    for (task, setting), group in itertools.groupby(endings, lambda run: (run.task, run.setting)):
        runs = list(group)
        folders = [opened for run in runs if (opened := run.open_folder())]
        rows.append(summarise(task, dict(setting), folders, [endings[run] for run in runs]))
        begun += folders
    table = to_markdown(rows)
    screen.print_table(table)
    texts = {"results.md": table, "results.csv": to_csv(rows)}
    return several_runs.write_results(
        folder, texts, lambda: draw_runs(begun, folder, ["returns"]), screen
    )
