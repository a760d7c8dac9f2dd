"""The loader: one split of a dataset, an epoch per iteration."""

import json
import os
import warnings
from collections.abc import Mapping

from . import _feedline, arguments, ranks
from .batch import Batch
from .device import DeviceEpoch, copies_to
from .errors import ConfigError

__all__ = ["Loader"]

_NO_DATASET = (
    "a feedline loader gives whole batches in order and has no samples by index, so it cannot be the dataset of a DataLoader: "
    "iterate over the loader itself, which shuffles, makes batches and reads ahead with threads of its own"
)
_NO_PICKLE = (
    "a feedline loader has threads of its own and cannot be sent to another process: open it in the process that iterates over "
    "it, for a DataLoader with `num_workers` by `feedline.WorkerDataset`, whose workers share the samples out"
)

_STORES = ("AWS_", "GOOGLE_", "AZURE_")


class Loader:
    """Shuffled batches of one split of a dataset, made ahead by threads of its own.

    Iterating gives one epoch; the next iteration gives the next one, in another order. A loader that is opened again begins
    at epoch 0, unless `set_epoch` or `load_state_dict` says otherwise. Where a `DataLoader` was:

        loader = feedline.Loader("s3://bucket/dataset", batch_size=4096)
        for x, y in loader.torch():
            ...

    The order is a pure function of (dataset, seed, epoch), so that a run resumes exactly from `state_dict`, also on
    another number of ranks, if `global_batch_size` is what was fixed.

    Columns of a batch of `n` samples; what `x, y = batch` unpacks is marked:

    ============= ====================== ================ ======================================================
    name          shape                  dtype            what
    ============= ====================== ================ ======================================================
    `x` *         `[n, features]`        float32          features, row-major
    `image` *     `[n, height, width, 3]` uint8           RGB pixels
    `tokens` *    `[n, length]`          uint32           token ids (int32 as a tensor)
    `lengths` *   `[n]`                  uint32           rows of several parts: token ids of the row, the others are 0
    `segments` *  `[n, length]`          uint32           packed or filled tokens: document in the row, from 1; 0 is padding
    `positions` * `[n, length]`          uint32           packed or filled tokens: position in the document, from 0
    `y` *         `[n]`                  float32 or int32 target, or class id, see `classes` (int64 as a tensor); not of tokens
    `y_partner`   `[n]`                  as `y`           mixed images: target of the image mixed in
    `lam`         `[n]`                  float32          mixed images: share of `y`; that of `y_partner` is 1 - lam
    `key`         `[n]`                  uint64           first 8 bytes of the record's content hash (int64 as a tensor)
    `origin`      `[n]`                  uint64           where the record came from (int64 as a tensor)
    ============= ====================== ================ ======================================================

    Arguments:
        url: folder of the dataset (our shards, Parquet files, WebDataset tars or MDS): a path, `file://`, `s3://`, `gs://`, `az://` or `http(s)://`. Credentials of
            object stores come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`). A list of folders is mixed: their
            samples share batches, see `weights`. Their rows must mean the same: other names of features, classes or
            targets are an error, other fitted numbers a warning.
        batch_size: samples in a batch of one rank, as for a `DataLoader`. The global batch is this times the world size.
        split: `"train"`, `"validation"` or `"test"`; by default `"train"`. In formats other than our own, the names of folders
            or files must say which files belong to the split: `train-00000-of-00001.parquet`, `val/index.json`,
            `imagenet-test-0007.tar`; the usual words are `train`, `training`, `validation`, `valid`, `val`, `dev`, `test`,
            `testing`, `eval` and `evaluation`. Where they do not, a split that is given is refused: give the folder of the
            split as `url`. Without `split`, such a dataset is read whole where no name mentions a split, and its only
            split, or `train`, where names do; files of two splits are never read together.
        seed: seed of the shuffle.
        shuffle: `False` gives the samples in the order they are stored, for evaluation. Its states resume as others do, and
            fit only a loader with the same `shuffle`. Settings of shuffled passes are refused then: `class_balance`,
            `drop_last`, `last_batch` but `"keep"`, `"mix"` of `images`, `domains`, `window_blocks` and those of a mixture.
        rank, world_size: which rank of how many; by default those of torch.distributed where it is initialised, else
            `RANK` and `WORLD_SIZE`, else one rank alone. Every rank gets its own samples of every global batch. A loader
            that is opened in a worker process of a `DataLoader` (`num_workers`) counts each worker as a rank, so that the
            workers share the samples out; `rank` and `world_size` given there must differ between the workers. A spawned
            worker cannot see the process group of its parent: without `RANK`, it warns that it takes the parent for the
            only rank. `feedline.WorkerDataset` takes rank and epoch from the parent. No worker is needed for speed: the
            loader has threads of its own.
        global_batch_size: samples in a batch over all ranks, instead of `batch_size`. Give this if the number of ranks
            may change between runs that resume each other: it is a part of the order, and ranks get shares that
            differ by one sample at most. A last batch with fewer samples than ranks leaves some ranks none, whose mean
            is NaN: there is a warning when the loader is opened, and `last_batch` "drop" or "pad" avoids it.
        drop_last: leave out the samples of an epoch that do not fill a batch: short for `last_batch="drop"`.
        last_batch: what becomes of them: `"keep"` makes a smaller batch, `"drop"` leaves them out, `"pad"` fills their
            batch up with others; see `Batch.padding`.
        images: what is done to images, needed for datasets of them: a dict as
            `{"height": 224, "width": 224}` for training (random resized crop, mirrored half of the time), with `"crop"`
            and `"augment"` for other crops and changes: `{"kind": "center", "shorter_side": 256}`, `{"kind": "whole"}`,
            `[{"type": "horizontal_flip"}]`. The changes have the keys and defaults of `train.images.augment` in a pipeline
            file; `kind` is another name of `type`.
            `"mix"` mixes images of a batch in pairs: `{"mixup_probability": 0.5, "cutmix_probability": 0.5}`; a loss
            is then `lam * loss(y) + (1 - lam) * loss(y_partner)`.
            `"limits"` bounds what is decoded: `{"encoded_bytes": 64 << 20, "side": 16384, "pixels": 64_000_000,
            "decoder_bytes": 512 << 20}` are the defaults, for shards raised to those of `[dataset.image]`; an image over one
            counts as damaged, see `max_bad_fraction`.
            `"background"` is the colour that transparent pixels are blended onto: `"white"`, `"black"`, `"#rrggbb"`, or
            `"none"`, which drops alpha. The default is that of `[dataset.image]` for shards, otherwise `"none"`.
            Without `shuffle` the default is the centre, for evaluation. Random numbers depend on (seed, epoch, sample)
            only, so that a resumed run sees the same pixels.
        tokens: how documents become rows, needed for datasets of tokens: `{"length": 1025}`, with `"pack"` (several
            documents to a row, default true) and `"padding_id"` (default 0). Instead of `"pack"`, `"layout"` is `"packed"`,
            `"documents"` (one to a row; ids beyond `length` are left out, with a warning, and
            `metrics()["truncated_documents"]` counts the documents), `"stream"` (all documents one after the other, cut
            anywhere; rows overlap by one id) or `"filled"` (a stream that separates documents). Where a batch has no
            `segments`, give a `padding_id` that is no token's, to find the padding.
        class_balance: how often each class comes, whatever its share of the rows: `"equal"`, or a list of weights, one for
            each class in the order of their ids. A part of the order. By default each row comes once in an epoch.
        weights: for a list of datasets, how much of each the mixture has; by default as much as it has samples. They may be
            others when a run is resumed, and hold from there on.
        ends: for a list of datasets, what comes after the last sample of each: `"repeat"` (its first, in a new order) or
            `"stop"`; one for all or a list. Default `"repeat"`.
        stratified: for a list of datasets, whether each global batch has the same make-up. Default false.
        samples_per_epoch: for a list of datasets, samples in an epoch. Default: until all datasets that stop are at their
            end, and one that ends earlier is replaced by the others; if all repeat, as many as all datasets have together. So
            with `ends="stop"` for all each sample comes once, and the last batches are of the largest dataset alone.
        cache_dir, cache_bytes: a folder on a local disk that keeps what was read from a remote store, and most bytes of it, at
            least two shuffle windows. Ranks and jobs may share it.
        fetch: how blocks are requested, a dict with any of `"deadline_s"` (default 300: a block that is late by this long ends the
            iteration; opening the dataset has the limits of its store and `stall_timeout_s`), `"hedge_permille"` (45: most
            second requests for what is late, in thousandths of all), `"hedge_least_s"`, `"attempt_least_s"`,
            `"attempt_most_s"`, `"least_bytes_per_second"`, `"progress_window_s"`, `"backoff_s"`, `"backoff_most_s"` and
            `"local_threads"`.
        format: `"shards"`, `"parquet"`, `"webdataset"` or `"mds"`; by default what lies at the URL decides.
        columns: for formats other than our own, which columns are read, by what they are used as: a dict with any of
            `"x"` (a list of names; of WebDataset keys of the `json` member), `"y"`, `"image"`, `"tokens"` and `"key"`. By
            default an export of feedline has the features, the target and the key of its dataset. Of other files numeric
            columns are `x`, but those called `_feedline_*`, `*__landed` or `__index_level_*` (pandas), and `y`, `label`,
            `target` or `cls` is the target; without one of these there is a warning, and several are an error unless `"y"`
            names one.
            Of an export with several targets one is read, which `"y"` must name.
        target: for those formats, `"none"`, `"regression"`, `"classification"` or the number of classes. By default the
            type of the column decides.
        bad_values: what happens to rows with NaN, infinity or a class out of range: `"fail"`, `"skip"` (another row takes
            its place) or `"keep"`. Nulls of Parquet, which pandas writes for NaN, are always an error.
        extent_bytes: bytes of neighbouring blocks that are dealt together, and that a remote store is asked for by one
            request; 8 MiB suits object stores. Default 0, each block on its own.
        domains, window_blocks: shape of the shuffle: samples are mixed among `domains * window_blocks` blocks (of
            about 1 MiB) at a time. Default 64 and 8. Where a batch has fewer samples than `domains`, or the dataset fewer
            blocks, there are fewer domains, and as many times more blocks in a window of each.
        prefetch_bytes: most bytes of blocks in memory or on their way. Default 1 GiB.
        slabs: batches that can be filled, ready or in use at one time, 2 to 64. Default 4; of small batches there are
            more, up to 64 that take 4 MiB together. All but one may be held by the program; what is held beyond that is copied, once with a warning.
        threads: most threads that fill batches, one for each processor by default.
        reads: most reads under way at one time.
        stall_timeout_s: seconds after which waiting for a batch, or for the dataset to open, raises `StalledError`;
            `math.inf` for no limit. Default 600.
        max_bad_fraction: most samples that may be replaced by others because they, or their blocks, are damaged, as a share of
            the split. The first is a `UserWarning`, and `Batch.substituted` has the rows; beyond, there is a `DataError`. Each
            rank counts those that it has read, as a share of the whole split. Default 0.001; `0` refuses any.
        bad_shards: for our shards, whether one that is missing or has another length than its manifest says is an error
            (`"fail"`) or left out of the order (`"skip"`), counted in `metrics()["skipped_shards"]` and remembered by the state.
        as_torch: whether iterating gives torch tensors instead of numpy arrays; see also `torch`.
        device: a device by the name that torch has for it, such as `"cuda:0"`: batches are tensors there. On CUDA, the
            loader's memory is page-locked, batches are copied ahead on a stream of their own, and the stream that is
            current as a batch is handed out waits for its copy; the program does not. Other devices get plain copies.
        device_prefetch: batches that are copied to `device` before they are asked for, 0 to 64. Each takes its memory
            there. Default 2; only with `device`.

    Raises:
        ConfigError, DataError, ReadError: see `feedline.errors`.
    """

    def __init__(
        self,
        url,
        batch_size=None,
        *,
        split=None,
        seed=0,
        shuffle=True,
        rank=None,
        world_size=None,
        global_batch_size=None,
        drop_last=False,
        last_batch="keep",
        images=None,
        tokens=None,
        class_balance=None,
        weights=None,
        ends="repeat",
        stratified=False,
        samples_per_epoch=None,
        cache_dir=None,
        cache_bytes=None,
        fetch=None,
        format=None,
        columns=None,
        target=None,
        bad_values="fail",
        extent_bytes=None,
        domains=None,
        window_blocks=None,
        prefetch_bytes=None,
        slabs=4,
        threads=None,
        reads=None,
        stall_timeout_s=None,
        max_bad_fraction=None,
        bad_shards="fail",
        as_torch=False,
        device=None,
        device_prefetch=None,
    ):
        arguments.check_integers(
            {
                "batch_size": batch_size,
                "global_batch_size": global_batch_size,
                "rank": rank,
                "world_size": world_size,
                "domains": domains,
                "window_blocks": window_blocks,
                "slabs": slabs,
                "threads": threads,
                "reads": reads,
            },
            1 << 32,
        )
        large = {"prefetch_bytes": prefetch_bytes, "extent_bytes": extent_bytes, "samples_per_epoch": samples_per_epoch}
        arguments.check_integers({**large, "cache_bytes": cache_bytes}, 1 << 64)
        arguments.check_integers({"seed": seed}, 1 << 64, may_be_none=False)
        self._copies = None if device is None else copies_to(device)
        self._ahead = arguments.device_prefetch(device_prefetch, device)
        if not shuffle:
            arguments.check_unshuffled(
                {
                    "class_balance": class_balance is not None,
                    "drop_last": drop_last,
                    "last_batch": last_batch != "keep",
                    "images.mix": isinstance(images, Mapping) and images.get("mix") is not None,
                    "weights": weights is not None,
                    "ends": ends != "repeat",
                    "stratified": stratified,
                    "samples_per_epoch": samples_per_epoch is not None,
                    "domains": domains is not None,
                    "window_blocks": window_blocks is not None,
                }
            )
            if isinstance(url, (list, tuple)) and len(url) > 1:
                raise ConfigError(
                    f"cannot use `shuffle=False` with `{len(url)}` datasets: a pass in stored order goes over one; open each by itself"
                )
        self.rank, self.world_size = ranks.resolve(rank, world_size)
        urls = [os.fspath(one) for one in url] if isinstance(url, (list, tuple)) else [os.fspath(url)]
        self._inner = _feedline.Loader(
            urls,
            {
                "split": split,
                "seed": seed,
                "global_batch": arguments.global_batch(batch_size, global_batch_size, self.world_size),
                "rank": self.rank,
                "world_size": self.world_size,
                "domains": domains,
                "window_blocks": window_blocks,
                "prefetch_bytes": prefetch_bytes,
                "slabs": slabs,
                "threads": threads,
                "reads": reads,
                "stall_timeout_s": stall_timeout_s,
                "max_bad_fraction": max_bad_fraction,
                "bad_shards": bad_shards,
                "images": None if images is None else json.dumps(arguments.images(images, shuffle)),
                "tokens": None if tokens is None else arguments.tokens(tokens),
                "class_balance": arguments.class_balance(class_balance),
                "mixture": arguments.mixture(url, weights, ends, stratified, samples_per_epoch),
                "cache": arguments.cache(cache_dir, cache_bytes),
                "fetch": arguments.fetch(fetch or {}),
                "extent_bytes": extent_bytes,
                "last_batch": arguments.last_batch(drop_last, last_batch),
                "format": format,
                "columns": arguments.columns(columns or {}),
                "target": "classification" if isinstance(target, int) else target,
                "classes": target if isinstance(target, int) else None,
                "bad_values": bad_values,
                "variables": {k: v for k, v in os.environ.items() if k.startswith(_STORES)},
            },
        )
        self._shuffle = bool(shuffle)
        self._as_torch = as_torch
        self._holdable = slabs - 1
        self._warned = set()
        self._may_warn_of_replaced = True
        self._warn(2)
        self._warn_of_empty_batch(2)
        # The state after the last batch handed out, and a flag: iterating continues from there.
        self._state = self._inner.start_state(0, self._shuffle)
        self._fresh = True
        # True if `set_epoch` named the epoch of the state and no batches of it are left: the next iteration is empty.
        self._is_over = False
        self._may_warn_of_epoch = bool(shuffle)

    def __iter__(self):
        """Starts an epoch: the rest of the one that was loaded or set, else the next one.

        An epoch counts as begun when its first batch is handed out: two iterations that begin before that, as in
        `zip(loader, loader)`, give the same epoch.
        """
        return self._epoch(self._as_torch)

    def __len__(self):
        """Batches in a whole epoch; the same on every rank."""
        return self._inner.batches_per_epoch

    def __getitem__(self, index):
        raise TypeError(_NO_DATASET)

    def __reduce__(self):
        raise TypeError(_NO_PICKLE)

    def torch(self):
        """The same loader, whose batches are torch tensors; position and state are shared with this one."""
        return _Torch(self)

    @property
    def samples(self):
        """Samples of the split, over all ranks."""
        return self._inner.samples

    @property
    def classes(self):
        """Names of the classes of the target: the class with id `i` is `classes[i]`.

        Ids follow the labels (numbers by value, then texts by code points), or `dataset.classes` where that lists them.
        `None` where the target is no class, and for formats other than our own, whose ids are the labels themselves.
        """
        return self._inner.classes

    @property
    def global_batch_size(self):
        """Samples in a full batch, over all ranks."""
        return json.loads(self._state)["global_batch"]

    @property
    def epoch(self):
        """The epoch that the next iteration gives, from 0."""
        return json.loads(self._next_state())["epoch"]

    def set_epoch(self, epoch):
        """Makes the next iteration give `epoch`, from its start; or its rest, if a state in that epoch was just loaded.

        Of a state after the last batch the rest is empty, and the next iteration gives no batches. So a loop over the epochs
        from that of a checkpoint on repeats none.
        """
        arguments.check_integers({"epoch": epoch}, 1 << 32, may_be_none=False)
        self._may_warn_of_epoch = False
        state = json.loads(self._state)
        if self._fresh and state["epoch"] == epoch:
            self._is_over = state["batch"] >= len(self)
            return
        self._state = self._inner.start_state(epoch, self._shuffle)
        self._fresh = True
        self._is_over = False

    def state_dict(self):
        """The position after the last batch that was handed out, as a dict of strings and integers.

        Take it when the step on that batch is done: resuming then repeats nothing and leaves nothing out. It is the
        same on every rank.
        """
        return json.loads(self._state)

    def load_state_dict(self, state):
        """Makes the next iteration go on after the position `state`.

        Raises:
            StateMismatchError: with every field in which the state differs from this loader.
        """
        state = json.dumps(dict(state))
        self._inner.check_state(state, self._shuffle)
        self._state = state
        self._fresh = True
        self._is_over = False
        self._may_warn_of_epoch = False

    def metrics(self):
        """Where the time of all iterations so far went: seconds at work, starved and blocked by stage, bytes, samples."""
        return json.loads(self._inner.metrics())

    def quarantine(self):
        """The samples and blocks that were replaced by others so far: file, block, row, key and reason, as text.

        The first of them is also a Python warning of the category `UserWarning`. `metrics()["quarantined"]` counts the
        samples, `metrics()["substituted"]` the rows that others were given in over all iterations, and `Batch.substituted`
        has the rows of a batch. A damaged block is replaced as a whole, by another block.
        """
        return self._inner.quarantine()

    def quarantined_keys(self):
        """Keys of the samples that were replaced by others so far, as in the column `key`; damaged blocks have none."""
        return self._inner.quarantined_keys()

    def warnings(self):
        """Decisions about datasets, as sentences, such as files in another format than our own that belong to no split, or
        fitted numbers that differ in a mixture. Each is also a Python warning of the category `UserWarning` when it comes up."""
        return self._inner.warnings()

    def _warn(self, frames):
        """Issues the warnings that came up since the last call, for the caller this many frames above."""
        if self._inner.warning_count == len(self._warned):
            return
        for text in self._inner.warnings():
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, UserWarning, stacklevel=frames + 1)

    def _warn_of_replaced(self, frames):
        """Issues a warning the first time that a sample is given in the place of one that cannot be used."""
        if not self._may_warn_of_replaced:
            return
        self._may_warn_of_replaced = False
        bad = self.quarantine()
        warnings.warn(
            f"a sample cannot be used, and another one is given in its place: {bad[-1] if bad else 'its block is damaged'}; "
            "`Batch.substituted` has the places of such, `quarantine()` lists what cannot be used, and "
            '`metrics()["substituted"]` counts the rows; `max_bad_fraction=0` makes it an error',
            UserWarning,
            stacklevel=frames + 1,
        )

    def _warn_of_empty_batch(self, frames):
        """Issues a warning if the last batch of an epoch has no sample for some rank."""
        rows = self._inner.last_batch_rows(self._shuffle)
        if not 0 < rows < self.world_size:
            return
        cure = '`last_batch="drop"` or `"pad"`, or another `global_batch_size`' if self._shuffle else "another `global_batch_size`"
        warnings.warn(
            f"the last batch of an epoch has {rows} samples for {self.world_size} ranks, so some ranks get a batch of 0 samples, "
            f"whose mean is NaN; use {cure}",
            UserWarning,
            stacklevel=frames + 1,
        )

    def _warn_of_epoch(self, frames):
        """Issues a warning when a worker process begins epoch 0, and no epoch was set."""
        if not self._may_warn_of_epoch:
            return
        self._may_warn_of_epoch = False
        if ranks.is_worker():
            warnings.warn(
                "a loader that is opened in a worker process of a DataLoader begins at epoch 0, so one that is opened for each "
                "epoch gives the same order each time; call `set_epoch(epoch)`, or use `feedline.WorkerDataset`",
                UserWarning,
                stacklevel=frames + 1,
            )

    def _next_state(self):
        """The state that an iteration begun now starts from."""
        state = json.loads(self._state)
        ended = state["batch"] >= len(self) and not self._is_over
        if ended or not self._fresh:
            return self._inner.start_state(state["epoch"] + 1, self._shuffle)
        return self._state

    def _epoch(self, as_torch):
        epoch = _Epoch(self, as_torch)
        return epoch if self._copies is None else DeviceEpoch(epoch, self._copies(), self._ahead)

    def _begin(self):
        self._warn_of_epoch(5)
        self._state = self._next_state()
        self._fresh = True
        self._is_over = False
        return self._inner.start(self._state)

    def _finished(self, raw):
        """Notes that `raw` was handed out."""
        self._state = raw.state
        self._fresh = False


class _Torch:
    """A loader seen through tensors."""

    def __init__(self, loader):
        self._loader = loader

    def __iter__(self):
        return self._loader._epoch(True)

    def __len__(self):
        return len(self._loader)

    def __getitem__(self, index):
        raise TypeError(_NO_DATASET)

    def __reduce__(self):
        raise TypeError(_NO_PICKLE)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Epoch:
    """The batches of one iteration."""

    def __init__(self, loader, as_torch):
        self._loader = loader
        self._as_torch = as_torch
        self._batches = loader._begin()
        self._remaining = len(loader) - json.loads(loader._state)["batch"]
        self._may_warn = True

    def __iter__(self):
        return self

    def __len__(self):
        """Batches still to come."""
        return self._remaining

    def __next__(self):
        raw = self.take(frames=3)
        if raw is None:
            self.close()
            raise StopIteration
        self.hand_out(raw)
        return Batch(raw, self._as_torch)

    @property
    def holdable(self):
        """Batches that the program may hold while the loader continues without copying."""
        return self._loader._holdable

    def take(self, frames):
        """The next batch of the loader, or `None`; warnings are for the caller this many frames above."""
        raw = self._batches.next() if self._remaining > 0 else None
        if raw is None:
            return None
        self._remaining -= 1
        self._loader._warn(frames)
        if raw.substituted:
            self._loader._warn_of_replaced(frames)
        if raw.is_copy and self._may_warn:
            self._may_warn = False
            warnings.warn(
                "the program holds so many batches that further ones are copied; drop them earlier or raise `slabs`",
                RuntimeWarning,
                stacklevel=frames,
            )
        return raw

    def hand_out(self, raw):
        """Notes that the program has the batch: its state is the loader's from here on."""
        self._loader._finished(raw)

    def close(self):
        """Ends the iteration and its threads."""
        self._remaining = 0
        self._batches.close()
