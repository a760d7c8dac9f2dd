"""Ranks: each gets its own samples of every global batch."""

import itertools
import types
import warnings

import pytest

import feedline
from conftest import ROWS, rows_of
from feedline import ranks


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_the_ranks_together_see_the_order_of_one(dataset, world_size):
    whole = [rows_of([b]) for b in feedline.Loader(dataset, global_batch_size=100)]
    parts = [
        [rows_of([b]) for b in feedline.Loader(dataset, global_batch_size=100, rank=rank, world_size=world_size)]
        for rank in range(world_size)
    ]
    assert [list(itertools.chain(*batch)) for batch in zip(*parts)] == whole


def test_ranks_come_from_the_environment(dataset, monkeypatch):
    seen = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        loader = feedline.Loader(dataset, 50)
        assert (loader.rank, loader.world_size, loader.global_batch_size, len(loader)) == (rank, 2, 100, 10)
        batches = [rows_of([batch]) for batch in loader]
        assert [len(batch) for batch in batches] == [50] * 10
        seen += sum(batches, [])
    assert sorted(seen) == list(range(ROWS))


def test_a_run_of_two_ranks_goes_on_with_three(dataset):
    whole = rows_of(feedline.Loader(dataset, global_batch_size=100))
    state = None
    for rank in range(2):
        loader = feedline.Loader(dataset, global_batch_size=100, rank=rank, world_size=2)
        for _ in itertools.islice(loader, 4):
            pass
        assert state in (None, loader.state_dict()), "the state is the same on every rank"
        state = loader.state_dict()
    loaders = [feedline.Loader(dataset, global_batch_size=100, rank=rank, world_size=3) for rank in range(3)]
    for loader in loaders:
        loader.load_state_dict(state)
    rest = [row for batches in zip(*loaders) for row in rows_of(batches)]
    assert rest == whole[400:]


def test_half_of_a_rank_is_refused(monkeypatch):
    with pytest.raises(feedline.ConfigError, match="give both or neither"):
        ranks.resolve(rank=1)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(feedline.ConfigError, match="`RANK` is `1` and `WORLD_SIZE` is `None`"):
        ranks.resolve()
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(feedline.ConfigError, match="`two`"):
        ranks.resolve()


def test_what_is_given_counts_more_than_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ranks.resolve() == (1, 2)
    assert ranks.resolve(3, 4) == (3, 4)


def test_workers_of_a_data_loader_are_ranks_of_their_own(dataset, monkeypatch):
    seen = []
    for worker in range(3):
        monkeypatch.setattr(ranks, "worker_of_torch", lambda worker=worker: (worker, 3))
        loader = feedline.Loader(dataset, 8)
        assert (loader.rank, loader.world_size) == (worker, 3)
        seen += rows_of(loader)
    assert sorted(seen) == list(range(1_000))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ranks.resolve() == (5, 6)


def test_a_last_batch_with_fewer_samples_than_ranks_is_warned_of(dataset):
    # The last batch has 1 of 1,000 samples.
    settings = {"global_batch_size": 37, "rank": 0, "world_size": 2}
    with pytest.warns(UserWarning, match="1 samples for 2 ranks, so some ranks get a batch of 0 samples"):
        feedline.Loader(dataset, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feedline.Loader(dataset, drop_last=True, **settings)
        feedline.Loader(dataset, last_batch="pad", **settings)
        feedline.Loader(dataset, global_batch_size=100, rank=0, world_size=2)
    with pytest.raises(feedline.ConfigError, match="`global_batch_size` `3` with `5` ranks"):
        feedline.Loader(dataset, global_batch_size=3, rank=0, world_size=5)


def test_a_spawned_worker_does_not_take_itself_for_the_only_rank_unsaid(monkeypatch):
    monkeypatch.setattr(ranks, "is_spawned_worker", lambda: True)
    monkeypatch.setattr(ranks, "worker_of_torch", lambda: (1, 2))
    parent = types.SimpleNamespace(name="SpawnProcess-1")
    monkeypatch.setattr(ranks.multiprocessing, "parent_process", lambda: parent)
    # A training with one rank may run in such a process, and in an allocation of several tasks.
    with pytest.warns(UserWarning, match="as process `SpawnProcess-1` started it.*WorkerDataset.*`rank="):
        assert ranks.resolve() == (1, 2)
    parent.name = "MainProcess"
    with pytest.warns(UserWarning, match="the parent counts as the only rank.*several, each.*`RANK=0`"):
        assert ranks.resolve() == (1, 2)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.warns(UserWarning, match="as `SLURM_NTASKS` is `4`"):
        assert ranks.resolve() == (1, 2)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ranks.resolve() == (3, 8)


def test_ranks_that_do_not_tell_workers_apart_are_refused(monkeypatch):
    for worker in range(2):
        monkeypatch.setattr(ranks, "worker_of_torch", lambda worker=worker: (worker, 2))
        assert ranks.resolve(worker, 2) == (worker, 2)
        assert ranks.resolve(2 + worker, 4) == (2 + worker, 4)
    with pytest.raises(feedline.ConfigError, match="every worker would give all samples"):
        ranks.resolve(0, 2)
    with pytest.raises(feedline.ConfigError, match="leave both out"):
        ranks.resolve(0, 1)
