#!/usr/bin/env python3
"""One shuffled epoch of 1,000,000 rows of 32 float32 in batches of 4096. usage: peer_rows.py PEER

Prints one JSON line. The clock starts when the loader is made and stops after the last batch; imports are outside. Every
loader has two worker processes or threads where it has any. After CAP seconds a loader is stopped and its rate is that
of what it delivered; its first batch is left out of `steady`.
"""

import glob
import importlib
import itertools
import os
import sys
import time
import warnings

import numpy as np

import delivered
from gen import DATA, FEATURES, ROWS, SHARDS, WDS_ROWS

warnings.filterwarnings("ignore")
BATCH, WORKERS = 4096, 2
CAP = float(os.environ.get("BENCH_CAP", 8))


class Memmap:
    """The rows as memory-mapped numpy shards."""

    def __init__(self):
        names = sorted(glob.glob(str(DATA / "rows-npy" / "x-*.npy")))
        self.x = [np.load(name, mmap_mode="r") for name in names]
        self.y = [np.load(name.replace("x-", "y-"), mmap_mode="r") for name in names]
        self.size = len(self.x[0])

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        shard, row = divmod(i, self.size)
        return self.x[shard][row], self.y[shard][row]

    def take(self, rows):
        """The rows `rows` as one pair of arrays, by fancy indexing shard by shard."""
        rows = np.asarray(rows)
        shard = rows // self.size
        x, y = np.empty((len(rows), FEATURES), np.float32), np.empty(len(rows), np.float32)
        for s in range(SHARDS):
            (at,) = np.nonzero(shard == s)
            inside = rows[at] - s * self.size
            x[at], y[at] = self.x[s][inside], self.y[s][inside]
        return x, y


class MemmapBatches(Memmap):
    """The same, a whole batch per call."""

    def __getitems__(self, rows):
        return self.take(rows)


def permuted():
    order = np.random.default_rng(1).permutation(ROWS)
    return (order[i : i + BATCH] for i in range(0, ROWS, BATCH))


def torch_loader(dataset, **more):
    import torch

    workers = dict(num_workers=WORKERS, prefetch_factor=4)
    return torch.utils.data.DataLoader(dataset, **workers, **more)


def shuffled(dataset, **more):
    import torch

    return torch_loader(dataset, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(1), **more)


def tensors(arrays):
    import torch

    return tuple(torch.from_numpy(a) for a in arrays)


def numpy_memmap():
    """Plain numpy: a permutation and fancy indexing, no workers."""
    rows = Memmap()
    return (rows.take(part) for part in permuted())


def torch_items():
    return shuffled(Memmap())


def torch_batches():
    return shuffled(MemmapBatches(), collate_fn=tensors)


def mosaic():
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(local=str(DATA / "rows-mds"), batch_size=BATCH, shuffle=True, shuffle_seed=1)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=4)


def mosaic_blocks():
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(DATA / "rows-mds-block"), batch_size=1, shuffle=True, shuffle_seed=1)
    return torch_loader(dataset, batch_size=None)


def litdata():
    import litdata

    dataset = litdata.StreamingDataset(str(DATA / "rows-litdata"), shuffle=True, seed=1)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=4)


def wds_sample(sample):
    return np.frombuffer(sample["x.bin"], np.float32), np.frombuffer(sample["y.bin"], np.float32)[0]


def webdataset():
    import webdataset

    tars = sorted(glob.glob(str(DATA / "rows-wds" / "*.tar")))
    dataset = webdataset.WebDataset(tars, shardshuffle=SHARDS, seed=1, empty_check=False)
    return torch_loader(dataset.shuffle(20_000).map(wds_sample).batched(BATCH), batch_size=None)


def hf_map():
    from datasets import load_from_disk

    return shuffled(load_from_disk(str(DATA / "rows-hf")).with_format("torch"))


def hf_iterable():
    from datasets import load_from_disk

    dataset = load_from_disk(str(DATA / "rows-hf")).to_iterable_dataset(num_shards=SHARDS)
    return torch_loader(dataset.shuffle(seed=1, buffer_size=20_000).with_format("torch"), batch_size=BATCH)


def feedline_python(folder="rows-feedline", **more):
    import feedline

    return feedline.Loader(DATA / folder, BATCH, seed=1, **more)


def feedline_torch():
    return feedline_python().torch()


# What is imported before the clock starts, the loader, and how it shuffles.
PEERS = {
    "numpy-memmap": ([], numpy_memmap, "global"),
    "torch-items": (["torch"], torch_items, "global"),
    "torch-batches": (["torch"], torch_batches, "global"),
    "mosaicml": (["streaming"], mosaic, "blocks of shards (py1e)"),
    "mosaicml-blocks": (["streaming"], mosaic_blocks, "whole blocks of 4096 only"),
    "litdata": (["litdata"], litdata, "chunks, and inside a chunk"),
    "webdataset": (["webdataset", "torch"], webdataset, "shards and a buffer of 20,000"),
    "hf-map": (["datasets", "torch"], hf_map, "global"),
    "hf-iterable": (["datasets", "torch"], hf_iterable, "shards and a buffer of 20,000"),
    "feedline-numpy": (["feedline"], feedline_python, "blocks and inside 512 of them"),
    "feedline-torch": (["feedline", "torch"], feedline_torch, "blocks and inside 512 of them"),
    "feedline-mds": (["feedline"], lambda: feedline_python("rows-mds"), "blocks and inside 512 of them"),
    "feedline-parquet": (["feedline"], lambda: feedline_python("rows-parquet"), "blocks and inside 512 of them"),
}


def main(peer):
    modules, make, shuffle = PEERS[peer]
    for module in modules:
        importlib.import_module(module)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    rows = WDS_ROWS if peer == "webdataset" else ROWS
    epochs = int(os.environ.get("BENCH_EPOCHS", 1))
    if epochs == 1:
        delivered.measure_rows(make, rows, CAP, shuffle)
        return
    loader = make()
    for _ in itertools.repeat(None, epochs):
        delivered.measure_rows(lambda: loader, rows, CAP, shuffle)


if __name__ == "__main__":
    main(sys.argv[1])
