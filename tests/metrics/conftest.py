"""A run's folder as a run writes it, but written by hand."""

import csv
import fcntl
import json
import pathlib
from collections.abc import Iterator

import pytest

from apex_agents.runs.csv_file import end_rows

CONFIG = {
    "agent": {"replay": {"max_size": 4000}},
    "environment": {"task": "CartPole-v1"},
    "run": {
        "num_actors": 2,
        "num_envs_per_actor": 4,
        "max_actor_steps": 10_000,
        "max_learner_steps": None,
        "target_return": 475.0,
    },
}


class WrittenRun:
    """The folder of a run that is active until it is ended."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        (folder / "logs").mkdir()
        self.write_json("config.json", CONFIG)
        self._lock = (folder / ".lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write_json(self, name: str, content: object) -> None:
        (self.folder / name).write_text(json.dumps(content))

    def configure(self, section: str, **values: object) -> None:
        """Change values of a section of the config."""
        config = json.loads((self.folder / "config.json").read_text())
        self.write_json("config.json", {**config, section: {**config[section], **values}})

    def append(self, name: str, **row: object) -> None:
        """Add a row to `logs/<name>.csv`."""
        path = self.folder / "logs" / f"{name}.csv"
        is_new = not path.exists()
        with path.open("a") as file:
            writer = csv.DictWriter(file, sorted(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)

    def end_rows(self) -> None:
        """End the rows of every file, as the command does when the run is resumed."""
        for path in self.folder.glob("logs/*.csv"):
            end_rows(path)

    def append_everything(self) -> None:
        """Add a row to every file."""
        self.append(
            "replay",
            wall_time_seconds=20.0,
            actor_steps=2500,
            replay_size=1000,
            inserts_per_second=250.0,
            samples_per_second=4000.0,
            samples_per_insert=15.5,
        )
        metrics = {"loss": 0.25, "td_error": 0.5, "q_value": 42.0, "gradient_norm": 3.0}
        for wall_time, steps in ((10.0, 100), (20.0, 300)):
            self.append(
                "learner",
                wall_time_seconds=wall_time,
                learner_steps=steps,
                learner_steps_per_second=20.5,
                data_wait_fraction=0.125,
                sample_age_steps=77.0,
                **metrics,
            )
        for index, parameters in ((0, 150), (1, 250)):
            self.append(
                f"actor_{index}",
                wall_time_seconds=15.0 + 5 * index,
                actor_steps_per_second=100.0 + 50 * index,
                parameters_learner_steps=parameters,
                episode_return=float("nan"),
            )
        for index, epsilon in ((0, 0.4), (3, 0.05), (4, 0.01), (7, 0.00066)):
            self.append(
                f"actor_{index // 4}_envs",
                wall_time_seconds=18.0,
                env_index=index,
                epsilon=epsilon,
                episode_return=20.0 + index,
            )
        for step, mean in ((100, 10.0), (200, 90.0), (300, 50.0)):
            self.append(
                "evaluator",
                wall_time_seconds=step / 15,
                learner_steps=step,
                mean_return=mean,
                standard_error=1.5,
            )
        self.append_bins(300, "priority", [(0.0, 1e-6, 0.25), (1.0, 10**0.25, 0.75)])

    def append_bins(self, step: int, quantity: str, bins: list[tuple]) -> None:
        for lower, upper, share in bins:
            self.append(
                "learner_histograms",
                wall_time_seconds=20.0,
                learner_steps=step,
                quantity=quantity,
                lower=lower,
                upper=upper,
                sampled_share=share,
                replay_share=share,
            )

    def end(self, reason: str | None = "target return 475 reached") -> None:
        """End the run, or kill it if there is no reason."""
        if reason is not None:
            self.write_json("summary.json", {"finished": True, "reason": reason})
        self._lock.close()


@pytest.fixture
def written_run(tmp_path) -> Iterator[WrittenRun]:
    folder = tmp_path / "some_run"
    folder.mkdir()
    run = WrittenRun(folder)
    yield run
    run.end(None)
