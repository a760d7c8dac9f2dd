"""What one iteration gives."""

import glob
import pathlib
import time

import feedline
from conftest import ROWS, rows_of


def test_an_epoch_has_every_row_once_and_the_next_has_another_order(dataset):
    loader = feedline.Loader(dataset, 96)
    first, second = rows_of(loader), rows_of(loader)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second and first != sorted(first)


def test_the_order_is_that_of_the_seed(dataset):
    orders = [rows_of(feedline.Loader(dataset, 96, seed=seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_length_counts_batches_and_what_is_left_of_them(dataset):
    loader = feedline.Loader(dataset, 96)
    iterator = iter(loader)
    assert (len(loader), len(iterator), loader.samples) == (11, 11, ROWS)
    sizes = [len(batch) for batch in iterator]
    assert sizes == [96] * 10 + [40] and len(iterator) == 0


def test_drop_last_leaves_out_the_smaller_batch(dataset):
    loader = feedline.Loader(dataset, 96, drop_last=True)
    for epoch in range(2):
        assert [len(batch) for batch in loader] == [96] * 10 == [96] * len(loader)
        assert loader.epoch == epoch + 1
    assert len(feedline.Loader(dataset, 100, drop_last=True)) == 10


def test_a_padded_batch_tells_what_fills_it_up(dataset):
    batches = [(len(batch), batch.padding) for batch in feedline.Loader(dataset, 96, last_batch="pad")]
    assert batches == [(96, 0)] * 10 + [(96, 56)]


def test_without_shuffle_rows_come_as_they_are_stored(dataset):
    loader = feedline.Loader(dataset, 96, shuffle=False)
    assert rows_of(loader) == rows_of(loader) == list(range(ROWS))


def test_set_epoch_gives_that_epoch(dataset):
    loader = feedline.Loader(dataset, 96)
    epochs = [rows_of(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert loader.epoch == 1 and rows_of(loader) == epochs[1]
    loader.set_epoch(0)
    assert rows_of(loader) == epochs[0]
    assert rows_of(loader) == epochs[1]


def test_breaking_off_begins_the_next_epoch(dataset):
    loader = feedline.Loader(dataset, 96)
    expected = feedline.Loader(dataset, 96)
    expected.set_epoch(1)
    for _ in loader:
        break
    assert loader.epoch == 1 and rows_of(loader) == rows_of(expected)


def test_a_closed_iteration_gives_no_more_and_leaves_no_thread(dataset):
    def threads():
        return [name for name in map(name_of, glob.glob("/proc/self/task/*")) if name.startswith(ours)]

    def name_of(task):
        try:
            return pathlib.Path(task, "comm").read_text()
        except OSError:  # it ended while we looked
            return ""

    ours = ("feedline-fetch", "feedline-assem")

    iterator = iter(feedline.Loader(dataset, 8))
    next(iterator)
    assert threads()
    iterator.close()
    # The system lists a thread for a moment longer than it can be joined.
    until = time.monotonic() + 30
    while threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert not threads() and next(iterator, None) is None


def test_metrics_count_what_was_handed_out(dataset):
    loader = feedline.Loader(dataset, 96)
    rows_of(loader)
    metrics = loader.metrics()
    assert (metrics["samples"], metrics["batches"]) == (ROWS, 11)
    assert metrics["assemble"]["busy_seconds"] > 0
