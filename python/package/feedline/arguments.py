"""Arguments of a loader: checks, and the settings that the compiled half takes."""

import operator
import os
from collections.abc import Mapping

from .errors import ConfigError

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


def fetch(asked):
    _known("fetch", asked, _FETCH)
    return {name: asked.get(name) for name in _FETCH}


def check_unshuffled(given):
    """Refuses settings of shuffled passes."""
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"cannot use `{name}` with `shuffle=False`: samples come once, as they are stored, so it has no effect; remove one "
                "of the two"
            )


def check_integers(given, limit, may_be_none=True):
    """Refuses settings that are no integers from 0 to below `limit`."""
    for name, value in given.items():
        if value is None and may_be_none:
            continue
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"cannot use `{name}`: it is `{value!r}`, use an integer") from None
        if not 0 <= number < limit:
            raise ConfigError(f"cannot use `{name}`: it is `{value}`, use an integer from 0 to {limit - 1}")


def last_batch(drop_last, last_batch):
    if drop_last and last_batch not in ("keep", "drop"):
        raise ConfigError(
            f'cannot use `drop_last` with `last_batch="{last_batch}"`: it is short for `last_batch="drop"`; give one of the two'
        )
    return "drop" if drop_last else last_batch


def tokens(asked):
    _known("tokens", asked, ("length", "layout", "pack", "padding_id"))
    if "length" not in asked:
        raise ConfigError("cannot use `tokens`: `length` is missing, the number of ids in a row")
    if "layout" in asked and "pack" in asked:
        raise ConfigError("cannot use `tokens`: give either `layout` or `pack`")
    layout = asked.get("layout", "packed" if asked.get("pack", True) else "documents")
    return {"length": asked["length"], "layout": layout, "padding_id": asked.get("padding_id", 0)}


def class_balance(asked):
    if asked is None or not isinstance(asked, str):
        if asked is not None and not len(asked):
            raise ConfigError("cannot use `class_balance`: it has no weights, use `equal` or one for each class")
        return None if asked is None else [float(weight) for weight in asked]
    if asked != "equal":
        raise ConfigError(f"cannot use `class_balance`: it is `{asked}`, use `equal` or a list of weights")
    return []


def mixture(url, weights, ends, stratified, samples_per_epoch):
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


def cache(folder, most):
    if (folder is None) != (most is None):
        raise ConfigError("cannot make a cache: give both `cache_dir` and `cache_bytes`")
    return None if folder is None else {"dir": os.fspath(folder), "bytes": most}


def columns(asked):
    _known("columns", asked, ("x", "y", "image", "tokens", "key"))
    x = asked.get("x", [])
    rest = {name: asked.get(name) for name in ("y", "image", "tokens", "key")}
    return {"x": [x] if isinstance(x, str) else list(x), **rest}


def images(asked, shuffle):
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


def device_prefetch(batches, device):
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


def check_batch_size(batch_size, global_batch_size):
    """Refuses both sizes, and none."""
    if (batch_size is None) == (global_batch_size is None):
        raise ConfigError("cannot determine the size of a batch: give either `batch_size` or `global_batch_size`")


def global_batch(batch_size, global_batch_size, world_size):
    check_batch_size(batch_size, global_batch_size)
    size = batch_size * world_size if global_batch_size is None else global_batch_size
    if not 1 <= size < 1 << 32:
        raise ConfigError(f"cannot use a global batch of `{size}` samples: use `1` to `1073741824`")
    if size < world_size:
        raise ConfigError(
            f"cannot use `global_batch_size` `{size}` with `{world_size}` ranks: some would get batches of 0 samples, whose mean "
            f"is NaN; use at least `{world_size}`"
        )
    return size
