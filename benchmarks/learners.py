"""Sampled transitions per second of one learner that has one core, and of two that have one each.

Whole runs of our command, in turn: the learners keep to their cores (`run.cpu_split`); actors,
replay, evaluator and parameter server have the rest of the machine, or share the learners' cores
where nothing is left. Actors wait most of the time, since each transition is sampled many times.
The first seconds of a run, up to its first updates and as many again, do not count.

With two learners the tables also say what an update waits for: of the time of a learner, the parts
in which it waits for samples, for parameters, and for the queue of gradients.

Example:
  python benchmarks/learners.py --rounds 5
  python benchmarks/learners.py --games MinAtar/Breakout-v1 --batch_sizes 64 512
"""

import itertools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from measuring import Row, at_least, make_parser, num_cores, ratios, report, spread
from our_runs import ROOT, our_run, wait_for

from apex_agents.experiment import make_experiment
from apex_agents.learning.gradients import count_parameters
from apex_agents.presets import load_config
from apex_agents.runs.csv_file import RowReader

CONFIGS = {
    "MinAtar/Breakout-v1": "apex_dqn_minatar",
    "pong": "apex_dqn_atari_single_host_paper",
}
BATCH_SIZES = (128, 512)
MODES = ("one", "synchronous", "asynchronous")
SECONDS, WARM_UP_SECONDS = 20.0, 5.0


class Learned(NamedTuple):
    """What a run's learners did.

    Attributes:
      samples: sampled transitions per second that became part of an update.
      waits: share of their time that several learners waited, by what they waited for.
    """

    samples: float
    waits: Mapping[str, float]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--games", nargs="+", choices=CONFIGS, default=tuple(CONFIGS))
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=BATCH_SIZES)
    arguments = parser.parse_args()
    rows, series = [], {}
    for game, batch_size in itertools.product(arguments.games, arguments.batch_sizes):
        found: dict[str, list[Learned]] = {mode: [] for mode in MODES}
        for _ in range(arguments.rounds):
            for mode in MODES:
                found[mode].append(learn(game, batch_size, mode))
                print(f"{game}, batches of {batch_size}, {mode}: {found[mode][-1]}", flush=True)
        rows.append(Row(f"{game}: a gradient", spread([gradient_bytes(game) / 1e6]), "MB"))
        rows += make_rows(f"{game}, batches of {batch_size}", found)
        series[f"{game} {batch_size}"] = {
            mode: [one._asdict() for one in rounds] for mode, rounds in found.items()
        }
    report("learners", arguments.out, rows, series)


def gradient_bytes(game: str) -> int:
    """Return the bytes of a gradient, which are those of the parameters."""
    config = load_config(CONFIGS[game])
    config.environment.task = game
    experiment = make_experiment(config)
    networks: Any = experiment.builder.make_networks(experiment.environment_spec())
    return 4 * count_parameters(networks.trainable_variables)


def make_rows(name: str, found: Mapping[str, Sequence[Learned]]) -> list[Row]:
    """Make the rows of one game and batch size."""
    samples = {mode: [one.samples for one in rounds] for mode, rounds in found.items()}
    rows = [Row(f"{name}: one learner, samples/s", spread(samples["one"]))]
    for mode in MODES[1:]:
        ratio = ratios(samples[mode], samples["one"])
        rows.append(at_least(f"{name}: two {mode} learners / one", ratio, 1.7))
        for what in found[mode][0].waits:
            share = spread([one.waits[what] for one in found[mode]])
            rows.append(Row(f"{name}: {mode}, waiting for {what}", share, "of the time"))
    return rows


def learn(game: str, batch_size: int, mode: str) -> Learned:
    """Let one or two learners learn for some seconds."""
    num_learners = 1 if mode == "one" else 2
    flags = {
        "config": ROOT / "configs" / f"{CONFIGS[game]}.py",
        "config.environment.task": game,
        "config.run.num_learners": num_learners,
        "config.run.cpu_split": num_learners / num_cores(),
        "config.run.max_actor_steps": "None",
        "config.run.evaluation.min_period_seconds": 1e6,
        "config.agent.batch_size": batch_size,
        "config.agent.num_sgd_steps_per_step": 1,
        "config.agent.replay.min_size": 2_000,
        "config.agent.replay.samples_per_insert": 1_000.0,
    }
    if num_learners > 1:
        flags["config.run.learners.mode"] = mode
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder, "run", "logs")
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        with our_run(logs.parent, *arguments) as run:
            wait_for(lambda: [row for row in read(logs / "learner.csv") if row], run)
            time.sleep(WARM_UP_SECONDS)
            warm = read(logs / "learner.csv")[-1]["wall_time_seconds"]
            time.sleep(SECONDS)
        rows = [row for row in read(logs / "learner.csv") if row["wall_time_seconds"] > warm]
        of_learners = [read(logs / f"learner_{index}.csv") for index in range(num_learners)]
    per_step = batch_size * statistics.mean(row.get("gradients_per_step", 1.0) for row in rows)
    first, last = rows[0], rows[-1]
    steps = last["learner_steps"] - first["learner_steps"]
    samples = per_step * steps / (last["wall_time_seconds"] - first["wall_time_seconds"])
    waits = {
        what: statistics.mean(
            row[column] for rows in of_learners for row in rows if row["wall_time_seconds"] > warm
        )
        for what, column in (
            ("samples", "data_wait_fraction"),
            ("parameters", "parameter_wait_fraction"),
            ("the queue", "send_fraction"),
        )
        if num_learners > 1
    }
    return Learned(samples, waits)


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file that may not exist yet."""
    return [row for row in RowReader(path).read() if row] if path.exists() else []


if __name__ == "__main__":
    main()
