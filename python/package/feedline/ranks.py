"""Which rank of how many this process is."""

import os
import sys

from .errors import ConfigError


def resolve(rank=None, world_size=None):
    """`(rank, world size)`: what was given, else torch.distributed, else `RANK` and `WORLD_SIZE`, else `(0, 1)`."""
    if (rank is None) != (world_size is None):
        raise ConfigError("cannot use `rank` without `world_size` or the other way round: give both or neither")
    if rank is not None:
        return int(rank), int(world_size)
    return _from_torch() or _from_environment() or (0, 1)


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
