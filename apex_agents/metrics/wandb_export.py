"""Sends the metrics of a run to Weights & Biases."""

import logging
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from apex_agents.extras import missing_extra
from apex_agents.metrics import columns
from apex_agents.metrics.exports import Histogram, Scalars
from apex_agents.runs.folder import RunFolder


def _name(folder: pathlib.Path) -> str:
    """Return the name of a run's folder, with task and setting if it is a seed of a sweep."""
    is_seed = folder.name.startswith("seed_")
    return "/".join(folder.parts[-3:]) if is_seed else folder.name


class WandbExport:
    """A run at Weights & Biases; wandb's own settings decide where it is stored.

    WANDB_MODE=offline, for example, writes it into the work directory, for `wandb sync`.
    """

    def __init__(self, run: RunFolder, project: str, run_id: str):
        """Start a run of a project at Weights & Biases, or resume it by its id.

        Raises:
          ValueError: wandb is not installed or cannot be started.
        """
        try:
            import wandb
        except ImportError as error:
            raise missing_extra("wandb", "--wandb") from error
        self._wandb = wandb
        is_online = os.environ.get("WANDB_MODE", "online") == "online"
        try:
            self._run = wandb.init(
                project=project,
                name=_name(run.path),
                id=run_id,
                resume="allow" if is_online else None,
                dir=str(run.path),
                config=run.config,
                # The terminal keeps this command's output; its nodes write logs of their own.
                settings=wandb.Settings(console="off", silent=True),
            )
        except (wandb.errors.Error, OSError) as error:
            raise ValueError(f"--wandb={project} cannot be started: {error}") from error
        self._nodes: set[str] = set()  # Those whose step is defined.

    @property
    def place(self) -> str:
        """Where the run can be seen: an address, or a folder when offline."""
        if self._run.offline:
            return str(pathlib.Path(self._run.dir).parent)
        return str(self._run.url)

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        try:
            for item in items:
                self._run.log(self._convert(item))
        except (self._wandb.errors.Error, OSError) as error:
            logging.warning("Weights & Biases misses some metrics: %s", error)

    def close(self) -> None:
        self._run.finish()

    def _convert(self, item: Scalars | Histogram) -> dict[str, Any]:
        if isinstance(item, Histogram):
            histogram = self._wandb.Histogram(np_histogram=(item.shares, item.edges))
            values: dict[str, Any] = {item.name: histogram}
            step_name = columns.LEARNER_STEPS
        else:
            values, step_name = dict(item.values), item.step_name
        for node in {name.partition("/")[0] for name in values} - self._nodes:
            self._nodes.add(node)
            self._run.define_metric(f"{node}/*", step_metric=step_name)
        return {**values, step_name: item.step}
