"""Batches on a device: copied ahead of their use, from page-locked memory, on a stream of their own."""

import sys
import warnings
from collections import deque

import numpy as np

from .batch import Batch, signed
from .errors import ConfigError

__all__ = ["Copies", "DeviceEpoch", "PlainCopies", "copies_to"]

# Columns in the loader's own slabs, each from the start of a page on; the others are small and in memory that is not reused.
_SLAB_COLUMNS = frozenset(["x", "image", "tokens", "segments", "positions", "lengths", "y"])
_PAGE = 4096


class DeviceEpoch:
    """The batches of one iteration, on a device.

    Up to `ahead` batches are copied before they are asked for. The position of the loader follows the batches that were
    handed out, and an error of a later batch is raised in its place.
    """

    def __init__(self, epoch, copies, ahead):
        self._epoch = epoch
        self._copies = copies
        self._ahead = ahead
        # Copied batches, in order; an error is the last.
        self._queue = deque()
        # Batches whose memory a copy may still read, in order.
        self._reading = deque()
        self._ended = False

    def __iter__(self):
        return self

    def __len__(self):
        """Batches still to come."""
        return len(self._epoch) + sum(not isinstance(entry, BaseException) for entry in self._queue)

    def __next__(self):
        while not self._ended and len(self._queue) <= self._ahead:
            self._copy_next()
        if not self._queue:
            self.close()
            raise StopIteration
        entry = self._queue.popleft()
        if isinstance(entry, BaseException):
            self.close()
            raise entry
        self._epoch.hand_out(entry)
        self._copies.hand_out(entry.copied)
        return entry.batch()

    def _copy_next(self):
        self._release()
        try:
            raw = self._epoch.take(frames=4)
        except Exception as error:
            self._end_with(error)
            return
        if raw is None:
            self._ended = True
            return
        try:
            copied = self._copies.start(raw)
        except Exception as error:
            self._end_with(error)
            return
        except BaseException as error:
            # Interrupted: the batch is no longer with the loader, so nothing may follow it.
            self._end_with(error)
            raise
        self._queue.append(_Copied(raw, copied))
        self._reading.append((copied, raw))

    def _end_with(self, error):
        self._ended = True
        self._queue.append(error)

    def _release(self):
        """Gives back the memory of finished copies, and waits for the oldest if all that may be held is."""
        while self._reading:
            copied, _ = self._reading[0]
            if not self._copies.is_done(copied):
                if len(self._reading) < self._epoch.holdable:
                    return
                self._copies.wait(copied)
            self._reading.popleft()

    def close(self):
        """Ends the iteration, its copies and its threads."""
        self._ended = True
        self._queue.clear()
        while self._reading:
            copied, _ = self._reading.popleft()
            self._copies.wait(copied)
        self._copies.close()
        self._epoch.close()

    def __del__(self):
        # An iteration that was left early: the loader's memory is unlocked before it is freed.
        if not sys.is_finalizing():
            self.close()


class _Copied:
    """What is known of a batch, without the loader's memory."""

    def __init__(self, raw, copied):
        self.copied = copied
        self.rows = raw.rows
        self.padding = raw.padding
        self.substituted = raw.substituted
        self.state = raw.state
        self.is_copy = False
        self._names = raw.names()

    def names(self):
        return list(self._names)

    def batch(self):
        return Batch(self, as_torch=True, made=self.copied.tensors)


class Copies:
    """Copies on a CUDA stream of their own, from memory that is page-locked as it is first seen."""

    def __init__(self, torch, device, cuda=None):
        self._torch = torch
        self._cuda = cuda or torch.cuda
        self._device = device
        self._stream = self._cuda.Stream(device)
        # Bytes that are locked at an address.
        self._locked = {}
        self._may_lock = True

    def start(self, raw):
        """Starts the copy of a batch."""
        torch, tensors = self._torch, {}
        with self._cuda.stream(self._stream):
            for name in raw.names():
                host = _host_tensor(torch, raw.column(name))
                if name in _SLAB_COLUMNS and not raw.is_copy:
                    self._lock(host)
                tensor = torch.empty(host.shape, dtype=host.dtype, device=self._device)
                tensor.copy_(host, non_blocking=True)
                # Losses want class ids as int64: widened on the device.
                is_class = name in ("y", "y_partner") and tensor.dtype == torch.int32
                tensors[name] = tensor.to(torch.int64) if is_class else tensor
            done = self._cuda.Event()
            done.record(self._stream)
        return _Pending(tensors, done)

    def hand_out(self, pending):
        """Makes the caller's stream wait for the copy; the program does not."""
        stream = self._cuda.current_stream(self._device)
        stream.wait_event(pending.done)
        for tensor in pending.tensors.values():
            # Its memory is not given to another copy before the work that the caller queues on it has ended.
            tensor.record_stream(stream)

    def is_done(self, pending):
        return pending.done.query()

    def wait(self, pending):
        pending.done.synchronize()

    def close(self):
        """Unlocks the memory, when no copy reads it any more."""
        for address in self._locked:
            self._cuda.cudart().cudaHostUnregister(address)
        self._locked.clear()

    def _lock(self, host):
        address, bytes = host.data_ptr(), host.numel() * host.element_size()
        bytes = -(-bytes // _PAGE) * _PAGE
        locked = self._locked.get(address, 0)
        if not self._may_lock or bytes <= locked or address % _PAGE:
            return
        cudart = self._cuda.cudart()
        if locked:
            # The first batch of this memory was a smaller one.
            self._stream.synchronize()
            cudart.cudaHostUnregister(address)
            del self._locked[address]
        code = cudart.cudaHostRegister(address, bytes, 0)
        if int(code) == 0:
            self._locked[address] = bytes
            return
        self._may_lock = False
        warnings.warn(
            f"cannot page-lock the loader's memory (CUDA error {int(code)}): the program waits for each copy to the device",
            RuntimeWarning,
            stacklevel=5,
        )


class PlainCopies:
    """Copies to a device without CUDA streams; each has ended when it returns."""

    def __init__(self, torch, device):
        self._torch = torch
        self._device = device

    def start(self, raw):
        torch, tensors = self._torch, {}
        for name in raw.names():
            host = _host_tensor(torch, raw.column(name))
            is_class = name in ("y", "y_partner") and host.dtype == torch.int32
            tensors[name] = host.to(self._device, torch.int64 if is_class else host.dtype, copy=True)
        return _Pending(tensors, None)

    def hand_out(self, pending):
        pass

    def is_done(self, pending):
        return True

    def wait(self, pending):
        pass

    def close(self):
        pass


class _Pending:
    """Tensors of a copy, and the event at its end."""

    __slots__ = ("tensors", "done")

    def __init__(self, tensors, done):
        self.tensors = tensors
        self.done = done


def copies_to(device):
    """The copies to a device, by the name that torch has for it.

    Raises:
        ConfigError: torch is not installed, or knows no such device on this machine.
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"cannot use `device` = `{device}`: torch is not installed") from error
    try:
        found = torch.device(device)
        if found.type == "cuda":
            found = torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)
        # Fails here and not in the middle of an epoch.
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(f"cannot use `device` = `{device}`: {str(error).splitlines()[0]}") from error
    if found.type == "cuda":
        return lambda: Copies(torch, found)
    return lambda: PlainCopies(torch, found)


def _host_tensor(torch, column):
    return torch.from_numpy(signed(np.asarray(column)))
