"""Passes a run on to Weights & Biases."""

import logging
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from apex_agents.metrics.exports import Histogram, Scalars
from apex_agents.runs.folder import RunFolder


class WandbExport:
    """One run there for one run here; where it goes, and whether at all, is up to wandb's settings.

    WANDB_MODE=offline, for example, writes it into the work directory, for `wandb sync`.
    """

    def __init__(self, run: RunFolder, project: str, run_id: str):
        """Begin a run, or go on with it.

        Args:
          run: its folder.
          project: the project's name.
          run_id: stays the same when a run goes on.

        Raises:
          ValueError: wandb is not installed, or cannot begin.
        """
        try:
            import wandb
        except ImportError as error:
            raise ValueError(
                "--wandb needs the package wandb: pip install 'apex_agents[wandb]'."
            ) from error
        self._wandb = wandb
        # Output of this command is the terminal's; its nodes write logs of their own.
        settings = wandb.Settings(console="off", silent=True)
        is_online = os.environ.get("WANDB_MODE", "online") == "online"
        try:
            self._run = wandb.init(
                project=project,
                name=run.path.name,
                id=run_id,
                resume="allow" if is_online else None,
                dir=str(run.path),
                config=run.config,
                settings=settings,
            )
        except (wandb.errors.Error, OSError) as error:
            raise ValueError(f"--wandb={project} cannot begin: {error}") from error
        self._step_names: dict[str, str] = {}

    @property
    def place(self) -> str:
        """Where to look at the run: an address, or a folder when offline."""
        if self._run.offline:
            return str(pathlib.Path(self._run.dir).parent)
        return str(self._run.url)

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        """Pass on what is new; see `exports.Export`."""
        try:
            for item in items:
                self._run.log(self._convert(item))
        except (self._wandb.errors.Error, OSError) as error:
            logging.warning("Weights & Biases does not get everything: %s", error)

    def close(self) -> None:
        """Send what waits, and finish."""
        self._run.finish()

    def _convert(self, item: Scalars | Histogram) -> dict[str, Any]:
        if isinstance(item, Histogram):
            histogram = self._wandb.Histogram(np_histogram=(item.shares, item.edges))
            values: dict[str, Any] = {item.name: histogram}
            step_name = "learner_steps"
        else:
            values, step_name = dict(item.values), item.step_name
        for node in {name.partition("/")[0] for name in values} - self._step_names.keys():
            self._step_names[node] = step_name
            self._run.define_metric(f"{node}/*", step_metric=step_name)
        return {**values, step_name: item.step}
