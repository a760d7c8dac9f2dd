"""Batches on a device.

A device whose copies end late, as those of a GPU do, needs neither a GPU nor torch; the calls to CUDA
are those of a mock."""

import contextlib
import random
import types
import warnings

import numpy as np
import pytest

import feedline
from conftest import ROWS, rows_of
from feedline.device import Copies, DeviceEpoch


class LateCopies:
    """A device whose copies run when it is waited for, or some time before that."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._jobs = []
        self.started = 0
        self.open = True

    def start(self, raw):
        self.started += 1
        views = {name: np.asarray(raw.column(name)) for name in raw.names()}
        pending = types.SimpleNamespace(tensors={name: np.zeros_like(view) for name, view in views.items()}, done=False)
        # The addresses alone, as a GPU has them: nothing here keeps the loader's memory.
        sources = {name: (view.__array_interface__["data"][0], view.shape, view.dtype) for name, view in views.items()}
        self._jobs.append((pending, sources))
        return pending

    def _run(self, until):
        while not until.done:
            pending, sources = self._jobs.pop(0)
            for name, (address, shape, dtype) in sources.items():
                interface = {"version": 3, "typestr": dtype.str, "shape": shape, "data": (address, True)}
                pending.tensors[name][...] = np.asarray(types.SimpleNamespace(__array_interface__=interface))
            pending.done = True

    def hand_out(self, pending):
        self._run(pending)

    def is_done(self, pending):
        if not pending.done and self._random.random() < 0.2:
            self._run(pending)
        return pending.done

    def wait(self, pending):
        self._run(pending)

    def close(self):
        self.open = False


def on_device(dataset, batch_size, ahead=2, seed=0, **settings):
    """A loader on such a device, and the devices of its iterations."""
    loader = feedline.Loader(dataset, batch_size, **settings)
    loader._ahead = ahead
    devices = []

    def copies():
        devices.append(LateCopies(seed + len(devices)))
        return devices[-1]

    loader._copies = copies
    return loader, devices


@pytest.mark.parametrize("ahead", [0, 1, 2, 7])
@pytest.mark.parametrize("slabs", [2, 4])
def test_batches_are_those_of_the_host(dataset, ahead, slabs):
    for seed in range(5):
        loader, devices = on_device(dataset, 48, ahead, seed, slabs=slabs)
        plain = feedline.Loader(dataset, 48)
        for _ in range(2):
            for batch, expected in zip(loader, plain, strict=True):
                assert batch.keys() == expected.keys() and len(batch) == len(expected)
                assert all(np.array_equal(batch[name], expected[name]) for name in expected.keys())
                assert not batch.is_copy
        assert [device.started for device in devices] == [21, 21]
        assert not any(device.open for device in devices)


def test_several_copies_are_on_their_way(dataset):
    class Slow(LateCopies):
        most = 0

        def start(self, raw):
            pending = super().start(raw)
            self.most = max(self.most, len(self._jobs))
            return pending

        def is_done(self, pending):
            return pending.done

    # Two ahead and the one that is asked for; with two slabs a copy waits for the one before.
    for slabs, most in ((4, 3), (2, 1)):
        device = Slow(0)
        batches = DeviceEpoch(iter(feedline.Loader(dataset, 50, slabs=slabs)), device, 2)
        assert len(rows_of(batches)) == ROWS and device.most == most


def test_the_state_follows_the_batches_that_were_handed_out(dataset):
    loader, devices = on_device(dataset, 96, ahead=3)
    iterator = iter(loader)
    seen = rows_of([next(iterator) for _ in range(4)])
    # More were copied than were handed out.
    assert devices[0].started == 7 and loader.state_dict()["batch"] == 4 and len(iterator) == 7
    resumed, _ = on_device(dataset, 96)
    resumed.load_state_dict(loader.state_dict())
    rest = rows_of(resumed)
    assert rest == rows_of(iterator) and sorted(seen + rest) == list(range(ROWS))


def test_an_iteration_that_is_left_early_gives_its_memory_back(dataset):
    loader, devices = on_device(dataset, 50)
    iterator = iter(loader)
    next(iterator)
    inner = iterator._epoch._batches
    assert inner.held > 0
    del iterator
    assert inner.held == 0 and not devices[0].open
    assert len(rows_of(loader)) == ROWS


class Scripted:
    """An iteration that gives three batches and an error."""

    holdable = 3

    def __init__(self, epoch):
        self._epoch = epoch
        self._given = 0
        self.handed_out = 0

    def take(self, frames):
        self._given += 1
        if self._given == 4:
            raise feedline.ReadError("cannot read block 4")
        return self._epoch.take(frames)

    def hand_out(self, raw):
        self.handed_out += 1

    def close(self):
        self._epoch.close()


@pytest.mark.parametrize("ahead", [0, 2, 5])
def test_an_error_is_raised_in_its_place(dataset, ahead):
    epoch = Scripted(iter(feedline.Loader(dataset, 50)))
    batches = DeviceEpoch(epoch, LateCopies(0), ahead)
    assert len([next(batches) for _ in range(3)]) == 3 and epoch.handed_out == 3
    with pytest.raises(feedline.ReadError, match="block 4"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_a_copy_that_fails_ends_the_iteration_in_its_place(dataset):
    class Full(LateCopies):
        def start(self, raw):
            if self.started == 2:
                raise MemoryError("the device is full")
            return super().start(raw)

    batches = DeviceEpoch(iter(feedline.Loader(dataset, 50)), Full(0), 4)
    assert len([next(batches) for _ in range(2)]) == 2
    with pytest.raises(MemoryError, match="full"):
        next(batches)
    assert list(batches) == []


def test_wrong_settings_are_refused(dataset):
    for wrong in (-1, 65, 1.5, True, "2"):
        with pytest.raises(feedline.ConfigError, match="`device_prefetch`.*from 0 to 64"):
            feedline.Loader(dataset, 10, device_prefetch=wrong)
    with pytest.raises(feedline.ConfigError, match="cannot use `device_prefetch` without `device`"):
        feedline.Loader(dataset, 10, device_prefetch=2)
    with pytest.raises(feedline.ConfigError, match="cannot use `device` = `teapot`"):
        feedline.Loader(dataset, 10, device="teapot")


class MockCuda:
    """`torch.cuda` of a machine without a GPU: it records the calls."""

    def __init__(self, register=0):
        self.calls = []
        self._register = register
        outer = self

        class Stream:
            def __init__(self, device):
                self.name = "copies"

            def synchronize(self):
                outer.calls.append("synchronize stream")

            def wait_event(self, event):
                outer.calls.append(f"{self.name} waits for {event.number}")

        class Event:
            count = 0

            def __init__(self):
                Event.count += 1
                self.number = Event.count

            def record(self, stream):
                outer.calls.append(f"record {self.number} on {stream.name}")

            def query(self):
                return False

            def synchronize(self):
                outer.calls.append(f"synchronize {self.number}")

        self.Stream, self.Event = Stream, Event

    def stream(self, stream):
        return contextlib.nullcontext()

    def current_stream(self, device):
        stream = self.Stream(device)
        stream.name = "program"
        return stream

    def cudart(self):
        return self

    def cudaHostRegister(self, address, bytes, flags):
        self.calls.append(("lock", address, bytes))
        return self._register

    def cudaHostUnregister(self, address):
        self.calls.append(("unlock", address))
        return 0


class Tensorless:
    """The part of torch that copies need, over numpy."""

    int32, int64 = np.dtype(np.int32), np.dtype(np.int64)

    class Tensor:
        def __init__(self, array, log):
            self.array, self.log = array, log
            self.shape, self.dtype = array.shape, array.dtype

        def data_ptr(self):
            return self.array.__array_interface__["data"][0]

        def numel(self):
            return self.array.size

        def element_size(self):
            return self.array.itemsize

        def copy_(self, host, non_blocking):
            assert non_blocking
            self.array[...] = host.array

        def to(self, dtype):
            return Tensorless.Tensor(self.array.astype(dtype), self.log)

        def record_stream(self, stream):
            self.log.append(f"used on {stream.name}")

    def __init__(self, log):
        self._log = log

    def from_numpy(self, array):
        return self.Tensor(array, self._log)

    def empty(self, shape, dtype, device):
        return self.Tensor(np.empty(shape, dtype), self._log)


def run_on_mock(dataset, cuda, batch_size=200):
    batches = DeviceEpoch(iter(feedline.Loader(dataset, batch_size, slabs=4)), Copies(Tensorless(cuda.calls), "cuda:0", cuda), 1)
    return [batch.origin.array.copy() for batch in batches]


def test_memory_is_locked_once_and_unlocked_after_the_last_copy(dataset):
    cuda = MockCuda()
    # 125 batches in at most 64 slabs.
    rows = run_on_mock(dataset, cuda, batch_size=8)
    assert sorted(np.concatenate(rows)) == list(range(ROWS))
    locked = [call[1] for call in cuda.calls if call[0] == "lock"]
    unlocked = [call[1] for call in cuda.calls if call[0] == "unlock"]
    # `x` and `y` of each slab, by whole pages; `key` and `origin` are not in slabs.
    assert 2 <= len(locked) <= 128 and sorted(locked) == sorted(unlocked) and len(set(locked)) == len(locked)
    assert all(address % 4096 == 0 for address in locked)
    assert all(call[2] % 4096 == 0 for call in cuda.calls if call[0] == "lock")
    order = [call for call in cuda.calls if isinstance(call, str)]
    for number in range(1, 126):
        recorded = order.index(f"record {number} on copies")
        # The program waits for no copy to hand it out; its stream does.
        assert recorded < order.index(f"program waits for {number}") and f"synchronize {number}" in order
    last = max(at for at, call in enumerate(cuda.calls) if isinstance(call, str) and call.startswith("synchronize"))
    assert last < cuda.calls.index(("unlock", unlocked[0]))
    # Four columns of each batch.
    assert order.count("used on program") == 500


def test_memory_that_cannot_be_locked_is_reported_once(dataset):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = run_on_mock(dataset, MockCuda(register=2))
    assert sorted(np.concatenate(rows)) == list(range(ROWS))
    texts = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    assert texts == [
        "cannot page-lock the loader's memory (CUDA error 2): the program waits for each copy to the device"
    ]
    assert caught[0].filename == __file__


def test_class_ids_are_widened_on_the_device(classes):
    cuda = MockCuda()
    batches = DeviceEpoch(iter(feedline.Loader(classes, 50)), Copies(Tensorless(cuda.calls), "cuda:0", cuda), 1)
    for batch in batches:
        assert batch.y.dtype == np.int64
        assert (batch.y.array == batch.origin.array % 10).all()


def test_tensors_of_a_device_have_memory_of_their_own(dataset):
    torch = pytest.importorskip("torch", reason="torch is not installed: it is several GB")
    loader = feedline.Loader(dataset, 64, device="cpu")
    for batch in loader:
        x, y = batch
        assert (x.device.type, x.dtype, y.dtype, batch.key.dtype) == ("cpu", torch.float32, torch.float32, torch.int64)
        assert (x[:, 0] == batch.origin).all()
    assert sorted(rows_of(feedline.Loader(dataset, 64, device="cpu").torch())) == list(range(ROWS))


def test_a_device_that_is_absent_is_refused(dataset):
    torch = pytest.importorskip("torch", reason="torch is not installed: it is several GB")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(feedline.ConfigError, match="cannot use `device` = `cuda:0`: "):
        feedline.Loader(dataset, 10, device="cuda:0")
