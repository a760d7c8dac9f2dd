"""Which rank of how many this process is, and which worker process of a `DataLoader`."""

import os
import sys

from .errors import ConfigError


def resolve(rank=None, world_size=None):
    """`(rank, world size)`: what was given, else torch.distributed, else `RANK` and `WORLD_SIZE`, else `(0, 1)`.

    In a worker process of a `DataLoader` each worker is a rank of its own, so that the workers share the samples out.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError("cannot use `rank` without `world_size` or the other way round: give both or neither")
    worker, workers = worker_of_torch()
    if rank is not None:
        return _checked(int(rank), int(world_size), worker, workers)
    rank, world_size = _from_torch() or _from_environment() or (0, 1)
    return rank * workers + worker, world_size * workers


def worker_of_torch():
    """`(worker, workers)` of a `DataLoader` that this process is a worker of, else `(0, 1)`."""
    # A worker process has imported torch.utils.data; without it the import would only cost time.
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (int(info.id), int(info.num_workers))


def _checked(rank, world_size, worker, workers):
    """Returns the rank, if it differs between workers: else each of them would give all samples of its rank."""
    is_apart = world_size % workers == 0 and (rank % workers == worker or rank // (world_size // workers) == worker)
    if workers > 1 and not is_apart:
        raise ConfigError(
            f"cannot use `rank` {rank} of `world_size` {world_size} in worker {worker} of {workers} of a DataLoader: every "
            "worker would give all samples of the rank; leave both out, or give `rank * num_workers + worker` of "
            "`world_size * num_workers`"
        )
    return rank, world_size


def _from_torch():
    # A program that uses torch.distributed has imported torch; without it the import would only cost time.
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


def _from_environment():
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size is None:
        return None
    try:
        return int(rank), int(world_size)
    except (TypeError, ValueError):
        raise ConfigError(
            f"cannot read the rank from the environment: `RANK` is `{rank}` and `WORLD_SIZE` is `{world_size}`; "
            "set both to integers or neither, or give `rank` and `world_size`"
        ) from None
