"""Shards to shuffled batches with nothing waiting.

    import feedline

    loader = feedline.Loader("out/dataset", batch_size=256)
    for x, y in loader:
        ...
"""

from . import errors
from .batch import Batch
from .errors import (
    BatchesHeldError,
    ConfigError,
    DataError,
    Error,
    ForkError,
    InternalError,
    ReadError,
    StalledError,
    StateMismatchError,
)
from .loader import Loader

# Without `WorkerDataset`, so that `from feedline import *` needs no torch.
__all__ = [
    "Loader",
    "Batch",
    "errors",
    "Error",
    "ConfigError",
    "StateMismatchError",
    "DataError",
    "ReadError",
    "StalledError",
    "BatchesHeldError",
    "ForkError",
    "InternalError",
]


def __getattr__(name):
    if name == "WorkerDataset":
        from .workers import WorkerDataset

        return WorkerDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
