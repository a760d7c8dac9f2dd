"""A run that was killed and resumed sees what one that was not sees."""

import json
import pickle

import pytest

import feedline
import shards
from conftest import numbers, rows_of


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_resuming_at_every_kth_batch_equals_the_run_without_a_break(dataset, every):
    whole = feedline.Loader(dataset, 96, seed=3)
    expected = rows_of(whole) + rows_of(whole)
    seen, state = [], feedline.Loader(dataset, 96, seed=3).state_dict()
    # Two epochs of 11 batches, and never a run without one.
    for _ in range(22):
        loader = feedline.Loader(dataset, 96, seed=3)
        loader.load_state_dict(json.loads(json.dumps(state)))
        for number, batch in enumerate(loader):
            seen += rows_of([batch])
            state = loader.state_dict()
            if number + 1 == every:
                break
        if len(seen) >= len(expected):
            break
    assert seen == expected


def test_the_state_is_small_and_can_be_written_as_json(dataset):
    loader = feedline.Loader(dataset, 96)
    next(iter(loader))
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state and len(json.dumps(state)) < 4096
    assert pickle.loads(pickle.dumps(state)) == state
    assert (state["epoch"], state["batch"]) == (0, 1)


def test_a_state_after_the_last_batch_goes_on_with_the_next_epoch(dataset):
    loader = feedline.Loader(dataset, 96)
    rows_of(loader)
    expected = rows_of(loader)
    resumed = feedline.Loader(dataset, 96)
    rows_of(resumed)
    resumed.load_state_dict(resumed.state_dict())
    assert resumed.epoch == 1 and rows_of(resumed) == expected


def test_set_epoch_keeps_a_position_that_was_loaded_in_that_epoch(dataset):
    loader = feedline.Loader(dataset, 96)
    iterator = iter(loader)
    before = rows_of(next(iterator) for _ in range(4))
    state = loader.state_dict()
    resumed = feedline.Loader(dataset, 96)
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert before + rows_of(resumed) == rows_of(feedline.Loader(dataset, 96))
    assert resumed.epoch == 1


@pytest.mark.parametrize("shuffle", [True, False])
def test_set_epoch_gives_nothing_more_of_an_epoch_that_was_at_its_end(dataset, shuffle):
    def make():
        return feedline.Loader(dataset, 96, shuffle=shuffle)

    loader = make()
    expected = [rows_of(loader) for _ in range(3)]
    loader = make()
    rows_of(loader)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    seen = []
    for epoch in range(3):
        resumed.set_epoch(epoch)
        assert resumed.epoch == epoch
        seen.append(rows_of(resumed))
    assert seen == [[], *expected[1:]]
    # Without `set_epoch` the next epoch follows.
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    assert rows_of(resumed) == [] and rows_of(resumed) == expected[1]


def test_a_state_of_other_settings_is_refused_with_what_differs(dataset):
    state = feedline.Loader(dataset, 96, seed=1).state_dict()
    with pytest.raises(feedline.StateMismatchError) as caught:
        feedline.Loader(dataset, 48, seed=2).load_state_dict(state)
    assert "`seed` is `1` in the state and `2` here" in str(caught.value)
    assert "`global_batch` is `96` in the state and `48` here" in str(caught.value)
    # They follow from the batch, and the settings have no difference in them.
    assert "domains" not in str(caught.value) and "window_blocks" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_something_else_is_no_state(dataset):
    with pytest.raises(feedline.StateMismatchError, match="it is none"):
        feedline.Loader(dataset, 96).load_state_dict({"step": 3})


def test_a_refused_state_leaves_the_position(dataset):
    loader = feedline.Loader(dataset, 96)
    next(iter(loader))
    before = loader.state_dict()
    with pytest.raises(feedline.StateMismatchError):
        loader.load_state_dict({**before, "seed": 9})
    assert loader.state_dict() == before


def test_a_pass_in_stored_order_resumes_exactly(dataset):
    settings = {"shuffle": False}
    whole = rows_of(feedline.Loader(dataset, 96, **settings))
    loader = feedline.Loader(dataset, 96, **settings)
    iterator = iter(loader)
    seen = rows_of(next(iterator) for _ in range(3))
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["batch"], state["shuffle"]) == (3, False)
    resumed = feedline.Loader(dataset, 96, **settings)
    resumed.load_state_dict(state)
    assert seen + rows_of(resumed) == whole
    # Another pass begins at the first sample.
    assert rows_of(resumed) == whole


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_state_of_the_other_order_is_refused(dataset, shuffle):
    loader = feedline.Loader(dataset, 96, shuffle=shuffle)
    next(iter(loader))
    other = feedline.Loader(dataset, 96, shuffle=not shuffle)
    with pytest.raises(feedline.StateMismatchError) as caught:
        other.load_state_dict(loader.state_dict())
    expected = f"`shuffle` is `{str(shuffle).lower()}` in the state and `{str(not shuffle).lower()}` here"
    assert expected in str(caught.value)


def test_a_state_of_another_split_or_format_is_refused(tmp_path):
    x = numbers(400)
    shards.write(tmp_path, x, x[:, 0], split="test", rows_per_block=16)
    state = feedline.Loader(tmp_path, 32, split="test").state_dict()
    assert state["split"] == "test"
    loader = feedline.Loader(tmp_path, 32, split="test")
    for changed, expected in (
        ({"split": "train"}, "`split` is `train` in the state and `test` here"),
        ({"format": "x"}, "`format` is `x`"),
        ({"version": 10**9}, "`version` is `1000000000` in the state and `1 to 3` here"),
    ):
        with pytest.raises(feedline.StateMismatchError) as caught:
            loader.load_state_dict({**state, **changed})
        assert expected in str(caught.value)
