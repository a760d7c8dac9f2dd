"""Datasets in which every value follows from its row: `x[i] = [i, 1, 2]`, `y[i] = i`, `origin[i] = i`, `key[i] = ~i`."""

import numpy as np
import pytest

import shards

ROWS = 1_000


def numbers(rows):
    x = np.ones((rows, 3), np.float32) * [0, 1, 2]
    x[:, 0] = np.arange(rows)
    return x.astype(np.float32)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """1,000 rows in 3 shards of blocks of 16."""
    x = numbers(ROWS)
    return shards.write(tmp_path_factory.mktemp("rows"), x, x[:, 0], shards=3, rows_per_block=16)


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """200 rows of class `i % 10`."""
    x = numbers(200)
    return shards.write(tmp_path_factory.mktemp("classes"), x, np.arange(200) % 10, classes=10, rows_per_block=16)


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def rows_of(batches):
    """Row numbers of batches, in order, copied."""
    return [int(row) for batch in batches for row in np.asarray(batch["origin"])]
