"""Batches share the loader's memory, for as long as anything looks at it and no longer."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import feedline

import shards


def test_columns_have_the_documented_types_and_belong_together(dataset):
    for batch in feedline.Loader(dataset, 96):
        assert (batch.x.dtype, batch.x.shape) == (np.float32, (len(batch), 3))
        assert (batch.y.dtype, batch.y.shape) == (np.float32, (len(batch),))
        assert batch.key.dtype == batch.origin.dtype == np.uint64
        assert (batch.x == np.stack([batch.origin, np.ones(len(batch)), np.full(len(batch), 2)], 1)).all()
        assert (batch.y == batch.origin).all() and (batch.key == ~batch.origin).all()


def test_several_targets_of_a_row_stay_beside_it(tmp_path):
    x = np.arange(500, dtype=np.float32)[:, None]
    folder = shards.write(tmp_path / "several", x, np.hstack([x, x + 0.5, -x]))
    for batch in feedline.Loader(folder, 64):
        assert (batch.y.dtype, batch.y.shape) == (np.float32, (len(batch), 3))
        assert (batch.y == np.hstack([batch.x, batch.x + 0.5, -batch.x])).all()


def test_the_name_of_a_class_is_found_by_its_id(dataset, classes):
    loader = feedline.Loader(classes, 64)
    assert loader.classes == [f"class {id}" for id in range(10)] == loader.torch().classes
    assert {loader.classes[id] for batch in loader for id in batch.y} == set(loader.classes)
    assert feedline.Loader(dataset, 64).classes is None


def test_unpacking_indexing_and_attributes_give_the_same_arrays(dataset):
    batch = next(iter(feedline.Loader(dataset, 64)))
    x, y = batch
    assert x is batch.x is batch["x"] and y is batch["y"]
    assert list(batch.keys()) == ["x", "y", "key", "origin"] and "x" in batch and "z" not in batch
    with pytest.raises(AttributeError, match="`z`: the batch has `x`, `y`"):
        batch.z
    assert "x: float32[64, 3]" in repr(batch)


def test_arrays_are_views_of_the_batch_and_may_be_written_to(dataset):
    batch = next(iter(feedline.Loader(dataset, 64)))
    assert not batch.x.flags.owndata and batch.x.flags.writeable and batch.x.flags.c_contiguous
    assert type(batch.x.base).__name__ == "Column"
    again = np.asarray(batch._raw.column("x"))
    assert again.ctypes.data == batch.x.ctypes.data
    x = batch.x
    x *= 2
    assert (again[:, 0] == 2 * batch.origin).all()


def test_the_same_memory_comes_round_again(dataset):
    # Of small batches there are 64 slabs, however few were asked for.
    batches = [batch.x.ctypes.data for batch in feedline.Loader(dataset, 10, slabs=3)]
    assert len(batches) > 64 == len(set(batches))


def test_a_view_keeps_its_rows_when_the_batch_is_gone(dataset):
    iterator = iter(feedline.Loader(dataset, 50, slabs=3))
    batch = next(iterator)
    gone, kept, expected = weakref.ref(batch), batch.x[10:20, 0], batch.x[10:20, 0].copy()
    del batch
    gc.collect()
    assert gone() is None
    for _ in iterator:
        assert (kept == expected).all()


def test_dropping_every_view_gives_the_memory_back(dataset):
    iterator = iter(feedline.Loader(dataset, 10))
    held = [next(iterator).x[:3] for _ in range(2)]
    assert iterator._batches.held == 2
    held.pop()
    assert iterator._batches.held == 1
    view = held.pop().T
    assert iterator._batches.held == 1
    del view
    assert iterator._batches.held == 0


def test_batches_outlive_their_loader(dataset):
    batches = [next(iter(feedline.Loader(dataset, 32))) for _ in range(3)]
    gc.collect()
    for batch in batches:
        assert (batch.x[:, 0] == batch.origin).all()


def test_holding_every_batch_copies_with_one_warning(dataset):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = list(feedline.Loader(dataset, 50, slabs=3))
    assert [str(w.message) for w in caught] == [
        "the program holds so many batches that further ones are copied; drop them earlier or raise `slabs`"
    ]
    assert [batch.is_copy for batch in batches] == [False] * 2 + [True] * 18
    assert sorted(int(row) for batch in batches for row in batch.x[:, 0]) == list(range(1_000))
    assert all((batch.y == batch.origin).all() for batch in batches)


def test_a_copy_belongs_to_the_caller(dataset):
    iterator = iter(feedline.Loader(dataset, 50))
    copy = next(iterator).copy()
    assert iterator._batches.held == 0 and copy["x"].flags.owndata


def test_class_ids_are_int32(classes):
    for x, y in feedline.Loader(classes, 64):
        assert y.dtype == np.int32 and (y == x[:, 0].astype(int) % 10).all()
