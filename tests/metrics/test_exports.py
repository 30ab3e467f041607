"""Tests of the exports to TensorBoard and Weights & Biases, read back by their own readers."""

import json
import pathlib
import sys
import time

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from apex_agents.metrics.exports import (
    Histogram,
    Scalars,
    TensorBoardExport,
    WandbExport,
    read_items,
)
from apex_agents.metrics.run_state import RunState
from apex_agents.runs.folder import RunFolder


@pytest.fixture
def items(written_run) -> list:
    written_run.append_everything()
    state = RunState(RunFolder(written_run.folder))
    rows = state.refresh()
    return list(read_items(rows, state))


def test_scalars_have_the_names_of_files_and_columns(items):
    scalars = [item for item in items if isinstance(item, Scalars)]
    learner = scalars[[item.step for item in scalars].index(300)]
    newest = {}
    for item in scalars:
        newest.update({name: (item.step, item.step_name, v) for name, v in item.values.items()})
    assert newest["learner/loss"] == (300, "learner_steps", 0.25)
    assert newest["evaluator/mean_return"] == (300, "learner_steps", 50.0)
    assert newest["replay/inserts_per_second"] == (2500, "actor_steps", 250.0)
    assert newest["actor_1/actor_steps_per_second"] == (2500, "actor_steps", 150.0)
    assert newest["env_7/epsilon"] == (2500, "actor_steps", 0.00066)
    assert newest["env_7/episode_return"] == (2500, "actor_steps", 27.0)
    assert "actor_0/episode_return" not in newest  # NaN.
    assert not [name for name in newest if "wall_time" in name]
    assert learner.values


def test_histogram_has_equal_bins_on_a_logarithmic_axis(items):
    (histogram,) = [item for item in items if isinstance(item, Histogram)]
    assert (histogram.step, histogram.name) == (300, "learner/log10_priority")
    # From the bin below 1e-6, which begins at 0, to the one above 1: 26 of a quarter each.
    np.testing.assert_allclose(histogram.edges, np.arange(-6.25, 0.26, 0.25))
    np.testing.assert_allclose(histogram.shares, [0.25, *[0] * 24, 0.75])


def test_histograms_of_several_learners_are_exported(written_run):
    state = RunState(RunFolder(written_run.folder))
    bins = {"quantity": "priority", "lower": 1.0, "upper": 10**0.25, "sampled_share": 1.0}
    written_run.append("learner_0_histograms", learner_steps=7, **bins)
    (histogram,) = read_items(state.refresh(), state)
    assert (histogram.step, histogram.name) == (7, "learner/log10_priority")
    np.testing.assert_allclose(histogram.edges, [0, 0.25])


def test_rows_of_several_learners_are_exported(written_run):
    state = RunState(RunFolder(written_run.folder))
    written_run.append("learner_1", learner_steps=7, gradients_left_out=2)
    (scalars,) = read_items(state.refresh(), state)
    assert (scalars.step, scalars.step_name) == (7, "learner_steps")
    assert scalars.values["learner_1/gradients_left_out"] == 2


def test_of_many_environments_and_actors_some_are_exported(written_run):
    run = {"num_actors": 100, "num_envs_per_actor": 1}
    written_run.write_json("config.json", {"run": run})
    for index in range(100):
        written_run.append(f"actor_{index}", episodes=1)
        written_run.append(f"actor_{index}_envs", env_index=index, episodes=1)
    state = RunState(RunFolder(written_run.folder))
    rows = state.refresh()
    names = {name for item in read_items(rows, state) for name in item.values}
    actors = sorted(int(n.split("_")[1].split("/")[0]) for n in names if n.startswith("actor"))
    environments = sorted(int(n.split("_")[1].split("/")[0]) for n in names if n.startswith("env_"))
    assert (len(actors), actors[0], actors[-1]) == (8, 0, 99)
    assert (len(environments), environments[0], environments[-1]) == (16, 0, 99)


def read_events(folder) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def test_tensorboard_reads_what_is_written(items, tmp_path):
    export = TensorBoardExport(tmp_path / "tensorboard")
    export.write(items)
    events = read_events(tmp_path / "tensorboard")
    assert "learner/loss" in events.Tags()["tensors"]
    losses = events.Tensors("learner/loss")
    assert [event.step for event in losses] == [100, 300]
    assert [float(tensor_util.make_ndarray(event.tensor_proto)) for event in losses] == [0.25] * 2
    (event,) = events.Tensors("learner/log10_priority")
    buckets = tensor_util.make_ndarray(event.tensor_proto)
    assert buckets[:, 2].tolist() == [250, *[0] * 24, 750]
    np.testing.assert_allclose([buckets[0, 0], buckets[-1, 1]], [-6.125, 0.125])
    export.write([Scalars(400, "learner_steps", {"learner/loss": 0.125})])
    assert [event.step for event in events.Reload().Tensors("learner/loss")] == [100, 300, 400]
    export.close()


@pytest.mark.parametrize("shift", [86_400, -3_600])
def test_a_clock_that_is_set_leaves_the_order_of_events(shift, tmp_path, monkeypatch):
    now = time.time()
    for number in range(2):  # The run is resumed; within the second export the clock is set again.
        export = TensorBoardExport(tmp_path)
        for step in range(2):
            monkeypatch.setattr(time, "time", lambda i=number + step: now + shift * i)
            export.write([Scalars(2 * number + step, "learner_steps", {"learner/loss": 0.5})])
        export.close()
    events = read_events(tmp_path).Tensors("learner/loss")
    assert [event.step for event in events] == [0, 1, 2, 3]
    times = [event.wall_time for event in events]
    assert abs(times[1] - times[0]) < abs(shift) > abs(times[3] - times[2])


def read_wandb_history(file: pathlib.Path) -> dict[str, str]:
    """Return the newest value of each name that was logged, as JSON."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    logged = {}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            logged["/".join(item.nested_key) or item.key] = item.value_json
    return logged


def test_wandb_offline_gets_scalars_and_histograms(items, written_run, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    export = WandbExport(RunFolder(written_run.folder), "a-project", "0123abcd")
    export.write(items)
    export.close()
    (file,) = written_run.folder.glob("wandb/offline-run-*-0123abcd/run-0123abcd.wandb")
    assert str(file.parent) == export.place
    # The process of wandb may still be writing when `close` returns.
    deadline = time.monotonic() + 60
    while "learner/log10_priority/values" not in (logged := read_wandb_history(file)):
        assert time.monotonic() < deadline, sorted(logged)
        time.sleep(0.1)
    newest = {"learner/loss": 0.25, "env_7/episode_return": 27.0, "evaluator/mean_return": 50.0}
    newest |= {"learner_steps": 300, "actor_steps": 2500}
    assert {name: float(logged.get(name, "nan")) for name in newest} == newest, sorted(logged)
    assert logged["learner/log10_priority/_type"] == '"histogram"'
    assert json.loads(logged["learner/log10_priority/values"]) == [0.25, *[0.0] * 24, 0.75]


def test_wandb_that_is_not_installed_is_an_error(written_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="--wandb needs the extra 'wandb'"):
        WandbExport(RunFolder(written_run.folder), "a-project", "0")
