"""The loader: one split of a dataset, an epoch per iteration."""

import json
import os
import warnings
from collections.abc import Mapping

from . import _feedline, ranks
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
    "it, for a DataLoader with `num_workers` in `__iter__` of an IterableDataset, where the workers share the samples out"
)

_STORES = ("AWS_", "GOOGLE_", "AZURE_")


class Loader:
    """Shuffled batches of one split of a dataset, made ahead by threads of its own.

    Iterating gives one epoch; the next iteration gives the next one, in another order. Where a `DataLoader` was:

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
            workers share the samples out; `rank` and `world_size` given there must differ between the workers. No worker is
            needed for speed: the loader has threads of its own.
        global_batch_size: samples in a batch over all ranks, instead of `batch_size`. Give this if the number of ranks
            may change between runs that resume each other: it is a part of the order, and ranks get shares that
            differ by one sample at most.
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
            `"documents"` (one to a row), `"stream"` (all documents one after the other, cut anywhere; rows overlap by one
            id) or `"filled"` (a stream that tells documents apart).
        class_balance: how often each class comes, whatever its share of the rows: `"equal"`, or a list of weights, one for
            each class in the order of their ids. A part of the order. By default each row comes once in an epoch.
        weights: for a list of datasets, how much of each the mixture has; by default as much as it has samples. They may be
            others when a run is resumed, and hold from there on.
        ends: for a list of datasets, what comes after the last sample of each: `"repeat"` (its first, in a new order) or
            `"stop"`; one for all or a list. Default `"repeat"`.
        stratified: for a list of datasets, whether each global batch has the same make-up. Default false.
        samples_per_epoch: for a list of datasets, samples in an epoch. Default: until the first dataset that stops is at its
            end; if all repeat, as many as all datasets have together.
        cache_dir, cache_bytes: a folder on a local disk that keeps what was read from a remote store, and most bytes of it, at
            least two shuffle windows. Ranks and jobs may share it.
        fetch: how bytes are asked for, a dict with any of `"deadline_s"` (default 300: what cannot be had for this long ends the
            iteration), `"hedge_permille"` (45: most second requests for what is late, in thousandths of all), `"hedge_least_s"`,
            `"attempt_least_s"`, `"attempt_most_s"`, `"least_bytes_per_second"`, `"progress_window_s"`, `"backoff_s"`,
            `"backoff_most_s"` and `"local_threads"`.
        format: `"shards"`, `"parquet"`, `"webdataset"` or `"mds"`; by default what lies at the URL decides.
        columns: for formats other than our own, which columns are read, by what they are used as: a dict with any of
            `"x"` (a list of names; of WebDataset keys of the `json` member), `"y"`, `"image"`, `"tokens"` and `"key"`. By
            default an export of feedline has the features, the target and the key of its dataset. Of other files numeric
            columns are `x`, but those called `_feedline_*` or `*__landed`, and `y`, `label`, `target` or `cls` is the target;
            without one of these there is a warning. Of an export with several targets one is read, which `"y"` must name.
        target: for those formats, `"none"`, `"regression"`, `"classification"` or the number of classes. By default the
            type of the column decides.
        bad_values: what happens to rows with NaN, infinity or a class out of range: `"fail"`, `"skip"` (another row takes
            its place) or `"keep"`.
        extent_bytes: bytes of neighbouring blocks that are dealt together, and that a remote store is asked for by one
            request; 8 MiB suits object stores. Default 0, each block on its own.
        domains, window_blocks: shape of the shuffle: samples are mixed among `domains * window_blocks` blocks (of
            about 1 MiB) at a time. Default 64 and 8.
        prefetch_bytes: most bytes of blocks in memory or on their way. Default 1 GiB.
        slabs: batches that can be filled, ready or in use at one time, 2 to 64. Default 4; of small batches there are
            more, up to 64 that take 4 MiB together. All but one may be held by the program; what is held beyond that is copied, once with a warning.
        threads: most threads that fill batches, one for each processor by default.
        reads: most reads under way at one time.
        stall_timeout_s: seconds after which waiting for a batch raises `StalledError`; `math.inf` for no limit. Default
            600.
        max_bad_fraction: most samples that may be replaced by others because they are damaged, as a share of the split.
            Default 0.001.
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
        self._copies = None if device is None else copies_to(device)
        self._ahead = _device_prefetch(device_prefetch, device)
        if not shuffle:
            _check_unshuffled(
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
        self.rank, self.world_size = ranks.resolve(rank, world_size)
        urls = [os.fspath(one) for one in url] if isinstance(url, (list, tuple)) else [os.fspath(url)]
        self._inner = _feedline.Loader(
            urls,
            {
                "split": split,
                "seed": seed,
                "global_batch": _global_batch(batch_size, global_batch_size, self.world_size),
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
                "images": None if images is None else json.dumps(_images(images, shuffle)),
                "tokens": None if tokens is None else _tokens(tokens),
                "class_balance": _class_balance(class_balance),
                "mixture": _mixture(url, weights, ends, stratified, samples_per_epoch),
                "cache": _cache(cache_dir, cache_bytes),
                "fetch": _fetch(fetch or {}),
                "extent_bytes": extent_bytes,
                "last_batch": _last_batch(drop_last, last_batch),
                "format": format,
                "columns": _columns(columns or {}),
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
        # The state after the last batch handed out, and a flag: iterating continues from there.
        self._state = self._inner.start_state(0, self._shuffle)
        self._fresh = True

    def __iter__(self):
        """Starts an epoch: the rest of the one that was loaded or set, else the next one."""
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
        """The epoch that the next batch belongs to, from 0."""
        return json.loads(self._next_state())["epoch"]

    def set_epoch(self, epoch):
        """Makes the next iteration give `epoch`, from its start; or goes on in the middle of it, if a state in that
        epoch was just loaded."""
        if not (self._fresh and json.loads(self._state)["epoch"] == epoch):
            self._state = self._inner.start_state(epoch, self._shuffle)
            self._fresh = True

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

    def metrics(self):
        """Where the time of all iterations so far went: seconds at work, starved and blocked by stage, bytes, samples."""
        return json.loads(self._inner.metrics())

    def quarantine(self):
        """The samples and blocks that were replaced by others so far: file, block, row, key and reason, as text.

        The first of them is also a Python warning of the category `UserWarning`. `metrics()["quarantined"]` counts the
        samples, `metrics()["substituted"]` the rows that others were given in over all iterations, and `Batch.substituted`
        has the rows of a batch. A damaged block is replaced as a whole; its rows are in `quarantined` alone.
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
            f"a sample cannot be used and another one is given in its place: {bad[-1] if bad else 'its block is damaged'}; "
            "`Batch.substituted` has the places of such, `quarantine()` lists what cannot be used, and "
            '`metrics()["substituted"]` counts the rows',
            UserWarning,
            stacklevel=frames + 1,
        )

    def _next_state(self):
        """The state that an iteration begun now starts from."""
        state = json.loads(self._state)
        ended = state["batch"] >= len(self)
        if ended or not self._fresh:
            return self._inner.start_state(state["epoch"] + 1, self._shuffle)
        return self._state

    def _epoch(self, as_torch):
        epoch = _Epoch(self, as_torch)
        return epoch if self._copies is None else DeviceEpoch(epoch, self._copies(), self._ahead)

    def _begin(self):
        self._state = self._next_state()
        self._fresh = True
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


_FETCH = (
    "local_threads",
    "deadline_s",
    "attempt_least_s",
    "attempt_most_s",
    "least_bytes_per_second",
    "progress_window_s",
    "hedge_permille",
    "hedge_least_s",
    "backoff_s",
    "backoff_most_s",
)


def _known(setting, asked, names):
    """Refuses keys that are not known."""
    if not isinstance(asked, Mapping):
        example = "{" + f'"{names[0]}": ...' + "}"
        raise ConfigError(f"cannot use `{setting}`: it is a {type(asked).__name__}, give a dict such as `{example}`")
    unknown = set(asked) - set(names)
    if unknown:
        known = ", ".join(f"`{name}`" for name in names)
        raise ConfigError(f"cannot use `{setting}`: `{min(unknown)}` is none of {known}")


def _fetch(asked):
    _known("fetch", asked, _FETCH)
    return {name: asked.get(name) for name in _FETCH}


def _check_unshuffled(given):
    """Refuses settings of shuffled passes."""
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"cannot use `{name}` with `shuffle=False`: samples come once, as they are stored, so it has no effect; remove one "
                "of the two"
            )


def _last_batch(drop_last, last_batch):
    if drop_last and last_batch not in ("keep", "drop"):
        raise ConfigError(
            f'cannot use `drop_last` with `last_batch="{last_batch}"`: it is short for `last_batch="drop"`; give one of the two'
        )
    return "drop" if drop_last else last_batch


def _tokens(asked):
    _known("tokens", asked, ("length", "layout", "pack", "padding_id"))
    if "length" not in asked:
        raise ConfigError("cannot use `tokens`: `length` is missing, the number of ids in a row")
    if "layout" in asked and "pack" in asked:
        raise ConfigError("cannot use `tokens`: give either `layout` or `pack`")
    layout = asked.get("layout", "packed" if asked.get("pack", True) else "documents")
    return {"length": asked["length"], "layout": layout, "padding_id": asked.get("padding_id", 0)}


def _class_balance(asked):
    if asked is None or not isinstance(asked, str):
        if asked is not None and not len(asked):
            raise ConfigError("cannot use `class_balance`: it has no weights, use `equal` or one for each class")
        return None if asked is None else [float(weight) for weight in asked]
    if asked != "equal":
        raise ConfigError(f"cannot use `class_balance`: it is `{asked}`, use `equal` or a list of weights")
    return []


def _mixture(url, weights, ends, stratified, samples_per_epoch):
    if not isinstance(url, (list, tuple)):
        given = {
            "weights": weights is not None,
            "ends": ends != "repeat",
            "samples_per_epoch": samples_per_epoch is not None,
            "stratified": stratified,
        }
        for name, is_given in given.items():
            if is_given:
                raise ConfigError(f"cannot use `{name}`: there is one dataset, give a list of them")
        return None
    ends = [ends] * len(url) if isinstance(ends, str) else list(ends)
    weights = [None] * len(url) if weights is None else [float(weight) for weight in weights]
    for name, values in (("weights", weights), ("ends", ends)):
        if len(values) != len(url):
            raise ConfigError(f"cannot use `{name}`: there are `{len(values)}` of them and `{len(url)}` datasets")
    return {"weights": weights, "ends": ends, "stratified": stratified, "samples_per_epoch": samples_per_epoch}


def _cache(folder, most):
    if (folder is None) != (most is None):
        raise ConfigError("cannot make a cache: give both `cache_dir` and `cache_bytes`")
    return None if folder is None else {"dir": os.fspath(folder), "bytes": most}


def _columns(asked):
    _known("columns", asked, ("x", "y", "image", "tokens", "key"))
    x = asked.get("x", [])
    rest = {name: asked.get(name) for name in ("y", "image", "tokens", "key")}
    return {"x": [x] if isinstance(x, str) else list(x), **rest}


def _images(asked, shuffle):
    """The complete settings of images. Keys are those of `[train.images]`, too."""
    asked = dict(asked)
    if isinstance(asked.get("crop"), Mapping):
        asked["crop"] = _with_kind("images.crop", asked["crop"])
    if isinstance(asked.get("augment"), (list, tuple)):
        named = enumerate(asked["augment"])
        asked["augment"] = [_with_kind(f"images.augment[{place}]", step) for place, step in named]
        if "crop" not in asked and asked["augment"] and asked["augment"][0]["kind"] == "random_resized_crop":
            asked["crop"] = {**asked["augment"].pop(0), "kind": "random_resized"}
    if "crop" in asked:
        return asked
    if shuffle:
        usual = {"crop": {"kind": "random_resized"}, "augment": [{"kind": "horizontal_flip", "probability": 0.5}]}
    else:
        larger = max(int(asked.get("height", 1)), int(asked.get("width", 1)))
        usual = {"crop": {"kind": "center", "shorter_side": -(-larger * 8 // 7)}}
    return {**usual, **asked}


def _with_kind(key, asked):
    """A crop or a change of images with its name in `kind`; pipeline files call it `type`."""
    if not isinstance(asked, Mapping):
        raise ConfigError(f"cannot use loader setting `{key}`: it is `{asked!r}`, use a dict with a `type`")
    rest = {name: value for name, value in asked.items() if name not in ("kind", "type")}
    if "kind" in asked and "type" in asked:
        raise ConfigError(f"cannot use loader setting `{key}`: `type` and `kind` are the same key, so give one of them")
    if "kind" not in asked and "type" not in asked:
        raise ConfigError(f"cannot use loader setting `{key}`: it has no `type`, give its name there")
    return {"kind": asked.get("kind", asked.get("type")), **rest}


def _device_prefetch(batches, device):
    if batches is None:
        return 2
    if not isinstance(batches, int) or isinstance(batches, bool) or not 0 <= batches <= 64:
        raise ConfigError(f"cannot use `device_prefetch`: it is `{batches}`, use a number of batches from 0 to 64")
    if device is None:
        raise ConfigError(
            "cannot use `device_prefetch` without `device`: it counts batches that are copied to a device; set `device`, such as "
            'to `"cuda:0"`, or remove it. `slabs` sets the number of batches that are ready in the memory of the host'
        )
    return batches


def _global_batch(batch_size, global_batch_size, world_size):
    if (batch_size is None) == (global_batch_size is None):
        raise ConfigError("cannot determine the size of a batch: give either `batch_size` or `global_batch_size`")
    size = batch_size * world_size if global_batch_size is None else global_batch_size
    if not 1 <= size < 1 << 32:
        raise ConfigError(f"cannot use a global batch of `{size}` samples: use `1` to `1073741824`")
    return size
