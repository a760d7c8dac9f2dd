"""Which rank of how many this process is, and which worker process of a `DataLoader`."""

import multiprocessing
import os
import sys
import warnings

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
    found = _from_torch() or _from_environment()
    if found is None and is_spawned_worker():
        _warn_spawned()
    rank, world_size = found or (0, 1)
    return rank * workers + worker, world_size * workers


def _worker_info():
    # A worker process has imported torch.utils.data; without it the import would only cost time.
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def worker_of_torch():
    """`(worker, workers)` of a `DataLoader` that this process is a worker of, else `(0, 1)`."""
    info = _worker_info()
    return (0, 1) if info is None else (int(info.id), int(info.num_workers))


def is_worker():
    """Returns true in a worker process of a `DataLoader`."""
    return _worker_info() is not None


def is_spawned_worker():
    """Returns true in a worker process of a `DataLoader` that has no copy of its parent's memory, and so no process group."""
    if not is_worker() or multiprocessing.parent_process() is None:
        return False
    method = getattr(multiprocessing.current_process(), "_start_method", None) or multiprocessing.get_start_method()
    return method != "fork"


# Variables that launchers set to the number of processes that they start.
_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def _warn_spawned():
    """Warns that a spawned worker takes its parent for the only rank, with a sign of several ranks if there is one.

    The rank is in the process group of its parent, which it cannot see. As rank 0 of 1 it gives the samples of all ranks.
    """
    parent = multiprocessing.parent_process().name
    size = next((name for name in _SIZES if os.environ.get(name, "1") not in ("", "0", "1")), None)
    sign = ""
    if size is not None:
        sign = f", which seems to be so, as `{size}` is `{os.environ[size]}`"
    elif parent != "MainProcess":
        sign = f", which may be so, as process `{parent}` started it"
    warnings.warn(
        "a spawned worker process of a DataLoader does not share the process group of its parent, and `RANK` is not set, so "
        f"the parent counts as the only rank; if it is one of several{sign}, each gives all samples: use "
        "`feedline.WorkerDataset`, which takes the rank from the process that makes it, or give `rank=rank * num_workers + worker` "
        "and `world_size=world_size * num_workers`; if it is the only one, set `RANK=0` and `WORLD_SIZE=1`",
        UserWarning,
        stacklevel=4,
    )


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
