"""One batch: columns by name, as numpy arrays or torch tensors over the loader's own memory."""

import sys

import numpy as np

__all__ = ["Batch"]

_SIGNED = {np.dtype(np.uint64): np.dtype(np.int64), np.dtype(np.uint32): np.dtype(np.int32)}

# What `x, y = batch` unpacks, in this order, of what the batch has.
FIELDS = ("x", "image", "tokens", "lengths", "segments", "positions", "y")


class Batch:
    """This rank's part of one global batch.

    `batch["x"]`, `batch.x` and `x, y = batch` are the same arrays; see `Loader` for their names, shapes and types.
    They share the loader's memory: it is used again when the batch and every array, tensor or view made from it are
    gone. They may be written to. With `device`, they are on that device, in memory of their own.
    """

    __slots__ = ("_raw", "_as_torch", "_made", "__weakref__")

    def __init__(self, raw, as_torch=False, made=None):
        self._raw = raw
        self._as_torch = as_torch
        # Columns that were read already; on a device all of them.
        self._made = made or {}

    def __getitem__(self, name):
        made = self._made.get(name)
        if made is None:
            column = self._raw.column(name)
            if column is None:
                raise KeyError(f"`{name}`: the batch has {', '.join(f'`{n}`' for n in self.keys())}")
            made = np.asarray(column)
            if self._as_torch:
                made = _tensor(made)
            self._made[name] = made
        return made

    def __getattr__(self, name):
        # Only names that are no real attribute come here.
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self):
        """The fields a training step takes: `x, y = batch`, or `x, = batch` where there is no target."""
        names = self.keys()
        return iter([self[name] for name in FIELDS if name in names])

    def __len__(self):
        """Samples of this rank."""
        return self._raw.rows

    def __contains__(self, name):
        return name in self.keys()

    def keys(self):
        """Names of all columns."""
        return self._raw.names()

    def items(self):
        """Pairs of name and array."""
        return [(name, self[name]) for name in self.keys()]

    @property
    def padding(self):
        """How many samples, at the end, only fill the batch up: leave them out of sums over an epoch."""
        return self._raw.padding

    @property
    def substituted(self):
        """Indices of the samples that replace others that could not be used."""
        return self._raw.substituted

    @property
    def is_copy(self):
        """Whether the arrays are copies, because too many batches were held when it was made."""
        return self._raw.is_copy

    def copy(self):
        """The columns in memory of their own, as a dict."""
        return {name: value.clone() if self._as_torch else value.copy() for name, value in self.items()}

    def __repr__(self):
        columns = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        return f"Batch({columns})"


def _describe(value):
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def signed(array):
    """The same bits as a signed type: torch computes little with unsigned ones. Token ids are far below 2^31."""
    return array.view(_SIGNED.get(array.dtype, array.dtype))


def _tensor(array):
    torch = sys.modules.get("torch")
    if torch is None:
        import torch
    # Losses want class ids as int64; these few bytes are the only ones copied.
    if array.dtype == np.int32:
        return torch.from_numpy(array).to(torch.int64)
    return torch.from_numpy(signed(array))
