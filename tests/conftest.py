"""What tests of several folders need: batches that never change, leave to make namespaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np
import pytest
import reverb
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.transitions import Transition

BATCH_SIZE = 8


@pytest.fixture(scope="session")
def make_fixed_batches() -> Callable[[EnvironmentSpec, int], tf.data.Dataset]:
    """Make batches for a spec with float observations in [0, 1]."""

    def make(spec: EnvironmentSpec, num_batches: int) -> tf.data.Dataset:
        random = np.random.default_rng(0)
        size = (num_batches, BATCH_SIZE)
        info = reverb.SampleInfo(
            key=np.arange(num_batches * BATCH_SIZE, dtype=np.uint64).reshape(size),
            probability=random.uniform(0.001, 1.0, size),
            table_size=np.full(size, 100, np.int64),
            priority=np.ones(size),
            times_sampled=np.ones(size, np.int32),
        )
        if spec.actions.dtype == np.int32:
            action = random.integers(spec.actions.num_values, size=size).astype(np.int32)
        else:
            action = random.uniform(-1, 1, [*size, *spec.actions.shape]).astype(np.float32)
        shape = [*size, *spec.observations.shape]
        transitions = Transition(
            observation=random.uniform(size=shape).astype(np.float32),
            action=action,
            n_step_return=random.normal(size=size).astype(np.float32),
            n_step_discount=random.uniform(size=size).astype(np.float32),
            next_observation=random.uniform(size=shape).astype(np.float32),
        )
        return tf.data.Dataset.from_tensor_slices(reverb.ReplaySample(info, transitions))

    return make


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """Skip where the system gives this user no network namespace."""
    command = ["unshare", "--map-root-user", "--net", "true"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no command unshare")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
