"""The labels of a study's settings, kept in its folder in the order of their colours.

A setting has the same label and colour in every figure of the folder: also in one of a few runs,
and in one that is drawn after settings were added.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apex_agents.runs.files import read_json, write_json

_FILE = "settings.json"
_MAX_DEPTH = 3  # Folders between that of the study and that of a run, as `find_runs` searches.


class RecordedSetting(NamedTuple):
    """The setting of a run.

    Attributes:
      folder: folder of the study.
      label: label of the setting.
      place: place of the setting in the order of colours, from 0 on.
    """

    folder: pathlib.Path
    label: str
    place: int


def record_labels(folder: pathlib.Path, labels: Mapping[pathlib.Path, str]) -> None:
    """Add settings to those that the folder of a study has, which keep their places.

    Args:
      folder: folder of the study.
      labels: labels of the settings by the folder of each run, or of the seeds, on each task.
    """
    known = _read(folder)
    new = {path.relative_to(folder).as_posix(): label for path, label in labels.items()}
    if new.items() - known.items():
        write_json(folder / _FILE, {**known, **new})


def read_labels(folder: pathlib.Path) -> Sequence[str]:
    """Return the labels of a study's settings in the order of their colours; none if unknown."""
    return list(dict.fromkeys(_read(folder).values()))


def find_setting(run: pathlib.Path) -> RecordedSetting | None:
    """Return the setting of the run in a folder; None if it belongs to no study that has labels."""
    for folder in list(run.parents)[:_MAX_DEPTH]:
        labels = _read(folder)
        for path in (run, run.parent):
            label = labels.get(path.relative_to(folder).as_posix()) if path != folder else None
            if label is not None:
                return RecordedSetting(folder, label, read_labels(folder).index(label))
    return None


def _read(folder: pathlib.Path) -> dict[str, str]:
    labels = read_json(folder / _FILE)
    is_known = isinstance(labels, dict) and all(isinstance(text, str) for text in labels.values())
    return labels if is_known else {}
