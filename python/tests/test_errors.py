"""Errors are exceptions of one family, with the loader's own words."""

import pickle
import shutil
import socket

import pytest

import feedline


def refused(kind, text, *arguments, **settings):
    with pytest.raises(kind) as caught:
        feedline.Loader(*arguments, **settings)
    assert text in str(caught.value)
    assert isinstance(caught.value, feedline.Error)


def test_settings_out_of_range_are_named(dataset):
    refused(feedline.ConfigError, "`slabs`: it is `1`, use `2` to `64`", dataset, 8, slabs=1)
    refused(feedline.ConfigError, "rank `2` is not one of `2` ranks", dataset, 8, rank=2, world_size=2)
    refused(feedline.ConfigError, "`split`: it is `dev`, use one of `train`", dataset, 8, split="dev")
    refused(feedline.ConfigError, "`last_batch`: it is `cut`, use one of `keep`", dataset, 8, last_batch="cut")
    refused(feedline.ConfigError, "`target` is none of", dataset, 8, columns={"target": "y"})
    refused(feedline.ConfigError, "give either `batch_size` or `global_batch_size`", dataset)
    refused(feedline.ConfigError, "give either `batch_size` or `global_batch_size`", dataset, 8, global_batch_size=8)
    refused(feedline.ConfigError, "a global batch of `0`", dataset, 0)


def test_settings_of_the_wrong_type_are_type_errors(dataset):
    for name, value in (("seed", None), ("seed", 1.5), ("slabs", "4"), ("batch_size", 1.5), ("rank", 0.5)):
        settings = {"batch_size": 8, "world_size": 2 if name == "rank" else None, name: value}
        with pytest.raises(TypeError, match=f"`{name}`: it is `.*{value}.*`, use an integer"):
            feedline.Loader(dataset, **settings)
    refused(feedline.ConfigError, "`domains`: it is `-1`, use an integer from 0", dataset, 8, domains=-1)
    with pytest.raises(TypeError):
        feedline.Loader(dataset, 8, seed="one")
    with pytest.raises(TypeError):
        feedline.Loader(dataset, 8, bacth_size=9)


def test_a_folder_without_a_dataset_is_named(tmp_path):
    refused(feedline.DataError, f"there is no dataset in `{tmp_path}`", tmp_path, 8)


def test_a_server_that_never_answers_ends_the_opening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/dataset"
        refused(feedline.StalledError, "within `0.2` s: no response", url, 8, stall_timeout_s=0.2)


def test_a_split_without_samples_is_named(dataset):
    refused(feedline.DataError, "split `test`", dataset, 8, split="test")


def test_a_damaged_block_is_never_handed_out(dataset, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "copy")
    shard = folder / "shards" / "train" / "00001.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(feedline.DataError, match="is damaged") as caught:
        for batch in feedline.Loader(folder, 8):
            assert (batch.x[:, 0] == batch.origin).all()
    assert "00001.arrow" in str(caught.value)


def test_a_damaged_block_within_the_limit_is_replaced_with_a_warning(dataset, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "copy")
    shard = folder / "shards" / "train" / "00001.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    loader = feedline.Loader(folder, 50, shuffle=False, max_bad_fraction=0.05)
    own, named = [], 0
    with pytest.warns(UserWarning, match="another one is given in its place.*00001.arrow") as caught:
        for batch in loader:
            named += len(batch.substituted)
            own += [int(row) for place, row in enumerate(batch.origin) if place not in batch.substituted]
    assert len(caught) == 1 and named == 16 == loader.metrics()["substituted"]
    assert len(own) == len(set(own)) == 1_000 - 16
    with pytest.raises(feedline.DataError, match="is damaged"):
        list(feedline.Loader(folder, 500, max_bad_fraction=0))


def test_a_missing_shard_is_named(dataset, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "copy")
    (folder / "shards" / "train" / "00002.arrow").unlink()
    with pytest.raises(feedline.DataError, match="00002.arrow` is missing"):
        list(feedline.Loader(folder, 500))


def test_an_iteration_ends_with_its_error(dataset, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "copy")
    shutil.rmtree(folder / "shards")
    iterator = iter(feedline.Loader(folder, 8))
    with pytest.raises(feedline.DataError):
        next(iterator)
    assert next(iterator, None) is None


def test_a_loader_has_no_samples_by_index_and_no_pickle(dataset):
    for loader in (feedline.Loader(dataset, 8), feedline.Loader(dataset, 8).torch()):
        with pytest.raises(TypeError, match="iterate over the loader itself"):
            loader[0]
        with pytest.raises(TypeError, match="open it in the process that iterates.*WorkerDataset"):
            pickle.dumps(loader)


def test_settings_that_are_no_dicts_are_named(dataset):
    refused(feedline.ConfigError, "`columns`: it is a list, give a dict such as `{\"x\": ...}`", dataset, 8, columns=["a"])
    refused(feedline.ConfigError, "`tokens`: it is a int, give a dict", dataset, 8, tokens=7)


@pytest.mark.parametrize(
    "settings, key",
    [
        ({"columns": {"x": ["a"]}}, "columns"),
        ({"target": "none"}, "target"),
        ({"tokens": {"length": 9}}, "tokens"),
        ({"drop_last": True, "last_batch": "pad"}, "drop_last"),
        ({"stall_timeout_s": -1}, "stall_timeout_s"),
        ({"stall_timeout_s": 0}, "stall_timeout_s"),
        ({"images": {"height": 8, "width": 8}}, "images"),
        ({"ends": "stop"}, "ends"),
        ({"shuffle": False, "class_balance": "equal"}, "class_balance"),
        ({"shuffle": False, "drop_last": True}, "drop_last"),
        ({"shuffle": False, "last_batch": "pad"}, "last_batch"),
        ({"shuffle": False, "images": {"height": 8, "width": 8, "mix": {"mixup_probability": 0.5}}}, "images.mix"),
        ({"shuffle": False, "weights": [1]}, "weights"),
        ({"shuffle": False, "domains": 4}, "domains"),
        ({"shuffle": False, "window_blocks": 4}, "window_blocks"),
    ],
)
def test_settings_without_effect_are_refused(dataset, settings, key):
    with pytest.raises(feedline.ConfigError, match=f"`{key}`"):
        feedline.Loader(dataset, 32, **settings)
    feedline.Loader(dataset, 32, drop_last=True, last_batch="drop", stall_timeout_s=float("inf"))
    feedline.Loader(dataset, 32, shuffle=False, last_batch="keep", ends="repeat", stratified=False)
