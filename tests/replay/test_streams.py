"""Tests of rows, and of the items that refer to them, against a real replay server."""

from __future__ import annotations

import numpy as np
import pytest
import reverb

from apex_agents.replay.layout import RowStream
from apex_agents.replay.tables import TRANSITIONS

OTHER_TABLE = "others"


@pytest.fixture
def client(serve) -> reverb.Client:
    def make_queue(name: str) -> reverb.Table:
        return reverb.Table(
            name=name,
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            max_times_sampled=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        )

    return serve(make_queue(TRANSITIONS), make_queue(OTHER_TABLE))


def read(client: reverb.Client, num_items: int, table: str = TRANSITIONS) -> list[list]:
    """Take items out, each a list of its columns."""
    assert client.server_info()[table].current_size == num_items
    samples = client.sample(table, num_items, emit_timesteps=False)
    return [[column.tolist() for column in sample.data] for sample in samples]


def append_numbers(stream: RowStream, numbers: range) -> list:
    """Append a row for each number, of one column, and return their references."""
    return [stream.append(np.int64(number))[0] for number in numbers]


def test_items_are_slices_of_consecutive_rows(client):
    stream = RowStream(client, chunk_lengths=[3])
    rows = append_numbers(stream, range(6))
    stream.create_item({"numbers": rows[3:6]}, 1.0)
    stream.create_item({"numbers": rows[4:6]}, 1.0)
    stream.create_item({"numbers": rows[5]}, 1.0)  # A value, not a slice of one row.
    stream.flush()
    assert read(client, 3) == [[[3, 4, 5]], [[4, 5]], [5]]


def test_columns_go_by_the_order_of_their_names_and_may_be_left_out_of_a_row(client):
    stream = RowStream(client, chunk_lengths=[3, 3])
    first = stream.append(np.int64(1), None)
    second = stream.append(np.int64(2), np.float32(0.5))
    assert first[1] is None
    stream.create_item({"z": second[1], "a": [first[0], second[0]]}, 1.0)
    stream.flush()
    assert read(client, 1) == [[[1, 2], 0.5]]


def test_rows_before_the_newest_chunk_cannot_be_referred_to(client):
    stream = RowStream(client, chunk_lengths=[3])
    rows = append_numbers(stream, range(6))
    for slice_of_old_rows in (rows[2:4], [rows[0]], rows):
        with pytest.raises(ValueError, match="expired"):
            stream.create_item({"numbers": slice_of_old_rows}, 1.0)
    stream.create_item({"numbers": rows[3:6]}, 1.0)
    stream.flush()
    assert read(client, 1) == [[[3, 4, 5]]]


def test_replicas_are_items_of_the_same_rows(client):
    stream = RowStream(client, chunk_lengths=[1], replicas=3)
    (row,) = append_numbers(stream, range(1))
    stream.create_item({"numbers": row}, 7.0)
    stream.flush()
    assert client.server_info()[TRANSITIONS].current_size == 3
    samples = list(client.sample(TRANSITIONS, 3, emit_timesteps=False))
    assert [sample.info.priority for sample in samples] == [7.0] * 3
    assert len({int(sample.info.key) for sample in samples}) == 3


def test_items_go_to_the_table_of_the_stream(client):
    stream = RowStream(client, chunk_lengths=[1], table=OTHER_TABLE)
    (row,) = append_numbers(stream, range(1))
    stream.create_item({"numbers": row}, 1.0)
    stream.end_episode()
    assert read(client, 1, OTHER_TABLE) == [[0]]
    assert client.server_info()[TRANSITIONS].current_size == 0
