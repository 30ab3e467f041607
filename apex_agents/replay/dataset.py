"""Reads prioritized batches ahead (Horgan et al. 2018, algorithm 2, line 4, and appendix F)."""

import reverb
import tensorflow as tf

from apex_agents.replay.batch_reader import BATCHES_IN_READER
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import Layout
from apex_agents.replay.tables import TRANSITIONS, table_name

_RATE_LIMITER_TIMEOUT_MS = 500


def make_dataset(
    client: reverb.Client,
    replay: ReplayConfig,
    batch_size: int,
    layout: Layout,
    batches_per_sample: int = 1,
) -> tf.data.Dataset:
    """Sample the table of items for as long as its limiter allows.

    The server is asked nothing before the first iteration, so that it may be away.

    Args:
      client: client of the replay server.
      replay: number of batches to read ahead.
      batch_size: B, items per batch.
      layout: layout of the table's items.
      batches_per_sample: K, batches that are handed over together.

    Returns:
      `reverb.ReplaySample`s whose `info` is a `reverb.SampleInfo` and `data` is what the layout
      unpacks, `[K * B, ...]` each. An iterator ends when the limiter lets nothing through for half
      a second; its last sample may have fewer rows, which `BatchReader` completes.
    """
    sample_size = batches_per_sample * batch_size
    prefetch = max(replay.prefetch_batches // batches_per_sample, 1)
    # Batches in Reverb's own buffer are among those read ahead; more would make priorities staler.
    in_flight = min(2, prefetch)
    dataset = reverb.TrajectoryDataset(
        server_address=client.server_address,
        table=table_name(client, TRANSITIONS),
        dtypes=tf.nest.map_structure(lambda leaf: leaf.dtype, layout.signature),
        shapes=tf.nest.map_structure(lambda leaf: leaf.shape, layout.signature),
        max_in_flight_samples_per_worker=in_flight * sample_size,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=_RATE_LIMITER_TIMEOUT_MS,
    )

    @tf.autograph.experimental.do_not_convert  # The conversion would take half a second.
    def unpack(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        return reverb.ReplaySample(sample.info, layout.unpack(sample.data))

    dataset = dataset.batch(sample_size).map(unpack, deterministic=True)
    ahead = prefetch - in_flight - BATCHES_IN_READER
    return dataset.prefetch(ahead) if ahead > 0 else dataset
