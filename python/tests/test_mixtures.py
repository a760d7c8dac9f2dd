"""Several datasets in one loader, balanced classes, streams of tokens, and a cache of what is far away."""

import collections
import http.server
import os
import threading

import numpy as np
import pytest

import feedline
import shards


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Datasets of 300 rows `x = [i, 0]` and 100 rows `x = [i, 1]`."""
    folders = []
    for number, rows in enumerate((300, 100)):
        x = np.stack([np.arange(rows), np.full(rows, number)], 1).astype(np.float32)
        folder = tmp_path_factory.mktemp(f"source{number}")
        folders.append(shards.write(folder, x, x[:, 0], shards=2, rows_per_block=16))
    return folders


def samples(loader):
    return [(int(source), int(row)) for batch in loader for row, source in np.asarray(batch.x)]


def test_datasets_are_mixed_by_size_and_each_sample_comes_once(two):
    found = samples(feedline.Loader(two, 16))
    assert sorted(found) == [(0, i) for i in range(300)] + [(1, i) for i in range(100)]
    firsts = [source for source, _ in found[:200]]
    assert 30 <= sum(firsts) <= 70, "the small dataset is spread over the epoch"


def test_weights_say_how_much_of_each(two):
    loader = feedline.Loader(two, 20, weights=[1, 3], stratified=True, samples_per_epoch=400)
    batches = [[int(source) for _, source in np.asarray(batch.x)] for batch in loader]
    assert [sum(batch) for batch in batches] == [15] * 20


def test_a_mixture_in_stored_order_is_refused_when_it_is_opened(two):
    with pytest.raises(feedline.ConfigError, match="`shuffle=False` with `2` datasets"):
        feedline.Loader(two, 16, shuffle=False)


def test_if_all_datasets_stop_each_sample_comes_once(two):
    loader = feedline.Loader(two, 16, weights=[1, 1], ends="stop")
    found = list(samples(loader))
    assert len(found) == len(set(found)) == loader.samples


def test_a_dataset_that_stops_ends_the_epoch(two):
    counts = collections.Counter(source for source, _ in samples(feedline.Loader(two, 16, weights=[1, 1], ends=["repeat", "stop"])))
    assert counts[1] == 100
    assert 90 <= counts[0] <= 110


def test_a_mixture_resumes_on_other_ranks(two):
    whole = samples(feedline.Loader(two, 24, weights=[2, 1]))
    first = feedline.Loader(two, global_batch_size=24, weights=[2, 1])
    begun = iter(first)
    head = [(int(source), int(row)) for row, source in np.asarray(next(begun).x)]
    begun.close()
    ranks = [feedline.Loader(two, global_batch_size=24, weights=[2, 1], rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(first.state_dict())
    rest = []
    for parts in zip(*ranks):
        rest += [(int(source), int(row)) for part in parts for row, source in np.asarray(part.x)]
    assert head + rest == whole


def test_mixtures_that_cannot_be_are_named(two):
    refused = {
        "`weights`: there are `1` of them and `2` datasets": {"weights": [1]},
        "`ends`: it is `halt`, use one of `repeat`, `stop`": {"ends": "halt"},
        "`ends`: there are `3` of them": {"ends": ["stop"] * 3},
    }
    for text, settings in refused.items():
        with pytest.raises(feedline.ConfigError) as caught:
            feedline.Loader(two, 16, **settings)
        assert text in str(caught.value)
    with pytest.raises(feedline.ConfigError, match="there is one dataset, give a list"):
        feedline.Loader(two[0], 16, weights=[1])


@pytest.fixture(scope="module")
def unequal(tmp_path_factory):
    """900 rows of class 0, 90 of class 1, 10 of class 2."""
    y = np.repeat([0, 1, 2], [900, 90, 10])
    x = np.arange(1000, dtype=np.float32)[:, None]
    return shards.write(tmp_path_factory.mktemp("unequal"), x, y, classes=3, rows_per_block=16)


def test_classes_come_equally_often_or_by_weight(unequal):
    def counts(balance):
        loader = feedline.Loader(unequal, 50, class_balance=balance)
        return collections.Counter(int(y) for batch in loader for y in np.asarray(batch.y))

    assert counts(None) == {0: 900, 1: 90, 2: 10}
    assert counts("equal") == {0: 334, 1: 334, 2: 334}
    assert counts([1, 3, 0]) == {0: 250, 1: 750}
    for wrong in ("evenly", []):
        with pytest.raises(feedline.ConfigError, match="class_balance"):
            feedline.Loader(unequal, 50, class_balance=wrong)


def test_a_stream_of_tokens_cuts_documents_anywhere(tmp_path):
    documents = [list(range(1, 20)), list(range(20, 26)), list(range(26, 66))]
    folder = shards.write_tokens(tmp_path, documents)
    loader = feedline.Loader(folder, 2, tokens={"length": 9, "layout": "stream"})
    rows = sorted(ids.tolist() for batch in loader for ids in np.asarray(batch.tokens))
    assert rows == [list(range(first, first + 9)) for first in range(1, 65, 8)], "each id but the first is predicted once"
    for wrong, text in (({"layout": "stream"}, "`length`"), ({"length": 9, "layout": "heap"}, "tokens.layout")):
        with pytest.raises(feedline.ConfigError, match=text):
            feedline.Loader(folder, 2, tokens=wrong)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files with ranges and versions, and a count of what was asked for."""

    def do_GET(self):
        path = self.translate_path(self.path)
        if not os.path.isfile(path):
            return self.send_error(404)
        with open(path, "rb") as file:
            body = file.read()
        first, last = 0, len(body) - 1
        asked = self.headers.get("Range")
        if asked:
            bounds = asked.removeprefix("bytes=").split("-")
            first, last = int(bounds[0]), min(int(bounds[1] or last), last)
        is_read = self.command == "GET" and path.endswith(".arrow")
        self.server.read += last - first + 1 if is_read else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{os.stat(path).st_mtime_ns}"')
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[first : last + 1])

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def test_a_second_loader_reads_from_the_cache(dataset, tmp_path):
    handler = lambda *arguments: Ranges(*arguments, directory=dataset)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.read = 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        read = []
        for _ in range(2):
            loader = feedline.Loader(url, 50, cache_dir=tmp_path, cache_bytes=1 << 30, fetch={"deadline_s": 20})
            rows = sorted(int(row) for batch in loader for row in np.asarray(batch.origin))
            assert rows == list(range(1000))
            read.append(server.read)
        server.shutdown()
    # Whether the shards are still those is asked by a byte of each.
    assert read[0] > 10_000 and read[1] - read[0] < 100, read


def test_a_shard_cut_short_is_named_or_left_out(tmp_path):
    x = np.arange(1000, dtype=np.float32)[:, None]
    folder = shards.write(tmp_path, x, x[:, 0], shards=4, rows_per_block=16)
    path = sorted((folder / "shards" / "train").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(feedline.Error, match=path.name):
        feedline.Loader(folder, 50)
    loader = feedline.Loader(folder, 50, bad_shards="skip")
    rows = sorted(int(row) for batch in loader for row in np.asarray(batch.origin))
    assert rows == list(range(256)) + list(range(512, 1000))
    assert loader.metrics()["skipped_shards"] == 1
    with pytest.raises(feedline.ConfigError, match="`bad_shards`: it is `drop`, use one of `fail`, `skip`"):
        feedline.Loader(folder, 50, bad_shards="drop")


def test_caches_and_fetch_settings_that_cannot_be_are_named(dataset, tmp_path):
    refused = {
        "both `cache_dir` and `cache_bytes`": {"cache_dir": tmp_path},
        "`fetch`: `deadline` is none of": {"fetch": {"deadline": 3}},
        "`fetch.deadline_s`: it is `-1`": {"fetch": {"deadline_s": -1}},
        "`fetch.hedge_permille`: it is `2000`": {"fetch": {"hedge_permille": 2000}},
    }
    for text, settings in refused.items():
        with pytest.raises(feedline.ConfigError) as caught:
            feedline.Loader(dataset, 16, **settings)
        assert text in str(caught.value)
