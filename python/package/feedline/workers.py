"""A loader in the worker processes of a `DataLoader`."""

import torch

from . import arguments, ranks
from .errors import ConfigError
from .loader import Loader

__all__ = ["WorkerDataset"]


class WorkerDataset(torch.utils.data.IterableDataset):
    """An `IterableDataset` that opens a loader in each worker process of a `DataLoader`, or in this process without workers.

        dataset = feedline.WorkerDataset("out/dataset", batch_size=64)
        batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
        for epoch in range(epochs):
            dataset.set_epoch(epoch)
            for x, y in batches:
                ...

    It has the arguments of `Loader`; `rank` and `world_size` are those of this process, by default those of torch.distributed
    where it is initialised, else `RANK` and `WORLD_SIZE`. They are determined here and go with it to the workers, also to
    spawned ones. The workers share the samples of the rank. An item is a list of the tensors that a batch unpacks to. It has
    `batch_size` samples, or with `global_batch_size` so many that those of all ranks have `global_batch_size` together.

    `set_epoch` is needed before each epoch, as for a `DistributedSampler`: a worker that starts knows of no epoch before, and
    warns if it was never called. It holds for persistent workers too. Without workers the epochs count up by themselves. The
    position in an epoch is not saved; for that use `Loader` itself.
    """

    def __init__(self, url, batch_size=None, *, rank=None, world_size=None, **settings):
        if ranks.is_worker():
            raise ConfigError(
                "cannot make a WorkerDataset in a worker process of a DataLoader: it divides the samples by the workers itself, so "
                "most of them would be lost; make it in the process that makes the DataLoader, or use `feedline.Loader` here"
            )
        if settings.get("device") is not None:
            raise ConfigError("cannot use `device` in a WorkerDataset: workers send tensors in the memory of the host; remove it")
        arguments.check_batch_size(batch_size, settings.get("global_batch_size"))
        self._arguments = (url, batch_size, settings)
        self.rank, self.world_size = ranks.resolve(rank, world_size)
        # In shared memory, so that workers which live for several epochs see the next one; negative if it was never set.
        # On the CPU whatever the default device is: forked workers cannot read a tensor of CUDA.
        self._epoch = torch.full((), -1, dtype=torch.int64, device="cpu").share_memory_()
        self._passes = 0

    def set_epoch(self, epoch):
        """Makes the next iteration give `epoch`, in all workers."""
        arguments.check_integers({"epoch": epoch}, 1 << 32, may_be_none=False)
        self._epoch.fill_(epoch)

    def __iter__(self):
        url, batch_size, settings = self._arguments
        worker, workers = ranks.worker_of_torch()
        rank, world_size = self.rank * workers + worker, self.world_size * workers
        if settings.get("global_batch_size") is not None:
            # The loader divides it by ranks and workers, and an item is of one worker.
            settings = {**settings, "global_batch_size": settings["global_batch_size"] * workers}
        loader = Loader(url, batch_size, rank=rank, world_size=world_size, **settings).torch()
        epoch = int(self._epoch)
        if epoch < 0 and not ranks.is_worker():
            epoch = self._passes
            self._passes += 1
        if epoch >= 0:
            loader.set_epoch(epoch)
        for batch in loader:
            yield list(batch)
