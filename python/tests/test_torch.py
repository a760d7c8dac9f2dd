"""Tensors, and ranks of a real process group. Runs where torch is installed."""

import json
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import feedline
from conftest import ROWS, rows_of

torch = pytest.importorskip("torch", reason="torch is not installed: it is several GB, and its own tests ran where it is")


def test_tensors_share_the_memory_of_the_arrays(dataset):
    loader = feedline.Loader(dataset, 64)
    for batch in loader.torch():
        x, y = batch
        assert (x.dtype, y.dtype, batch.key.dtype) == (torch.float32, torch.float32, torch.int64)
        assert x.data_ptr() == np.asarray(batch._raw.column("x")).ctypes.data
        assert (x[:, 0] == batch.origin).all()
    assert sum(len(batch) for batch in feedline.Loader(dataset, 64, as_torch=True)) == ROWS


def test_a_tensor_keeps_its_memory(dataset):
    iterator = iter(feedline.Loader(dataset, 50, slabs=3).torch())
    x = next(iterator)["x"][:10]
    expected = x.clone()
    for _ in iterator:
        assert torch.equal(x, expected)
    del x, _
    assert iterator._batches.held == 0


def test_class_ids_suit_a_loss(classes):
    for x, y in feedline.Loader(classes, 64).torch():
        assert torch.nn.functional.cross_entropy(torch.zeros(len(x), 10), y) > 0


def test_the_tensor_view_shares_position_and_state(dataset):
    loader = feedline.Loader(dataset, 96)
    seen = loader.torch()
    next(iter(seen))
    assert seen.state_dict() == loader.state_dict() and loader.state_dict()["batch"] == 1
    resumed = feedline.Loader(dataset, 96).torch()
    resumed.load_state_dict(seen.state_dict())
    assert len(resumed) == 11 and len(rows_of(resumed)) == ROWS - 96


def test_a_state_goes_through_a_torch_checkpoint(dataset, tmp_path):
    loader = feedline.Loader(dataset, 96)
    next(iter(loader))
    torch.save({"loader": loader.state_dict()}, tmp_path / "checkpoint.pt")
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["loader"]
    resumed = feedline.Loader(dataset, 96)
    resumed.load_state_dict(state)
    assert len(rows_of(resumed)) == ROWS - 96


def test_the_loader_is_stateful_to_distributed_checkpoints(dataset, tmp_path):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.stateful import Stateful

    loader = feedline.Loader(dataset, 96)
    assert isinstance(loader, Stateful)
    next(iter(loader))
    checkpoint.save({"loader": loader}, checkpoint_id=str(tmp_path / "saved"), no_dist=True)
    resumed = feedline.Loader(dataset, 96)
    checkpoint.load({"loader": resumed}, checkpoint_id=str(tmp_path / "saved"), no_dist=True)
    assert resumed.state_dict() == loader.state_dict()
    assert len(rows_of(resumed)) == ROWS - 96


RANK = """
import json, sys
import torch.distributed as distributed
import feedline

folder, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
loader = feedline.Loader(folder, 50)
assert (loader.rank, loader.world_size) == (rank, 2)
rows = []
for batch in loader.torch():
    total = batch.origin.sum()
    distributed.all_reduce(total)
    rows.append((batch.origin.tolist(), int(total)))
print(json.dumps(rows), flush=True)
distributed.destroy_process_group()
"""


def test_two_processes_of_a_group_share_an_epoch(dataset, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(RANK), str(dataset), str(tmp_path / "store")]
    processes = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outputs)
    whole = [rows_of([b]) for b in feedline.Loader(dataset, global_batch_size=100)]
    assert [a + b for (a, _), (b, _) in zip(first, second)] == whole
    assert [total for _, total in first] == [total for _, total in second] == [sum(batch) for batch in whole]


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_share_the_samples_out(dataset, workers, context):
    import wrapped

    settings = {"multiprocessing_context": context} if workers else {}
    loader = torch.utils.data.DataLoader(wrapped.Wrapped(dataset), batch_size=None, num_workers=workers, **settings)
    rows = torch.cat(list(loader)).tolist()
    assert sorted(rows) == list(range(ROWS))


GROUP = """
import json, sys
import torch
import torch.distributed as distributed
import feedline

def main():
    folder, store, rank, context = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    data = feedline.WorkerDataset(folder, 32)
    assert (data.rank, data.world_size) == (rank, 2)
    settings = {"multiprocessing_context": context, "persistent_workers": True}
    batches = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, **settings)
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append([int(row) for x, y in batches for row in x[:, 0]])
    print(json.dumps(epochs), flush=True)
    distributed.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_two_ranks_share_an_epoch_however_they_are_started(dataset, tmp_path, context):
    program = tmp_path / "program.py"
    program.write_text(GROUP)
    command = [sys.executable, str(program), str(dataset), str(tmp_path / "store")]
    processes = [
        subprocess.Popen([*command, str(rank), context], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outputs)
    for ours, theirs in zip(first, second):
        assert sorted(ours + theirs) == list(range(ROWS))
    assert first[0] != first[1], "epochs differ in their order"


def test_without_workers_a_worker_dataset_counts_its_epochs(dataset):
    batches = torch.utils.data.DataLoader(feedline.WorkerDataset(dataset, 32), batch_size=None)
    epochs = [[int(row) for x, _ in batches for row in x[:, 0]] for _ in range(2)]
    loader = feedline.Loader(dataset, 32)
    assert epochs == [rows_of(loader), rows_of(loader)]
    with pytest.raises(feedline.ConfigError, match="`device`"):
        feedline.WorkerDataset(dataset, 32, device="cpu")


def test_a_worker_dataset_has_global_batches_over_all_ranks(dataset, monkeypatch):
    from feedline import ranks

    data = feedline.WorkerDataset(dataset, global_batch_size=64, rank=1, world_size=2)
    monkeypatch.setattr(ranks, "worker_of_torch", lambda: (3, 4))
    x, _ = next(iter(data))
    assert len(x) == 32


def test_a_worker_dataset_that_is_made_in_a_worker_is_refused(dataset, monkeypatch):
    from feedline import ranks

    monkeypatch.setattr(ranks, "is_worker", lambda: True)
    with pytest.raises(feedline.ConfigError, match="in a worker process.*feedline.Loader"):
        feedline.WorkerDataset(dataset, 32)


def test_the_epoch_of_a_worker_dataset_is_on_the_cpu_whatever_the_default_device_is(dataset):
    # A tensor of the device "meta" has no value.
    with torch.device("meta"):
        data = feedline.WorkerDataset(dataset, 32)
    data.set_epoch(3)
    assert int(data._epoch) == 3


def test_a_worker_that_begins_at_epoch_0_unasked_is_warned_of(dataset, monkeypatch):
    from feedline import ranks

    monkeypatch.setattr(ranks, "is_worker", lambda: True)
    with pytest.warns(UserWarning, match="call `set_epoch"):
        rows_of(feedline.Loader(dataset, 96))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = feedline.Loader(dataset, 96)
        loader.set_epoch(0)
        rows_of(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_as_the_dataset_of_a_data_loader_is_named(dataset, workers):
    for loader in (feedline.Loader(dataset, 32), feedline.Loader(dataset, 32).torch()):
        misused = torch.utils.data.DataLoader(loader, num_workers=workers)
        with pytest.raises(TypeError, match="cannot be the dataset of a DataLoader"):
            next(iter(misused))
