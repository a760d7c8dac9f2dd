"""Documents as rows of token ids."""

import numpy as np
import pytest

import feedline
import shards

COUNT = 90


def document(number):
    """`1 + number % 23` ids that encode the document and their own place."""
    return [100 * number + place for place in range(1 + number % 23)]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return shards.write_tokens(tmp_path_factory.mktemp("tokens"), [document(n) for n in range(COUNT)], shards=2)


def test_packed_rows_hold_every_document_whole_and_once(documents):
    seen = {}
    try:
        loader = feedline.Loader(documents, 8, tokens={"length": 32, "padding_id": 65_000})
    except feedline.ConfigError as error:
        pytest.skip(str(error))
    for batch in loader:
        tokens, segments, positions = batch
        assert tokens.dtype == segments.dtype == positions.dtype == np.uint32
        assert tokens.shape == segments.shape == positions.shape == (len(batch), 32)
        for ids, segment, position in zip(tokens, segments, positions):
            assert (ids[segment == 0] == 65_000).all()
            for number in range(1, segment.max() + 1):
                found = ids[segment == number]
                assert (position[segment == number] == np.arange(len(found))).all()
                seen[int(found[0]) // 100] = found.tolist()
    assert seen == {number: document(number) for number in range(COUNT)}


def test_without_packing_each_document_is_a_row(documents):
    loader = feedline.Loader(documents, 10, tokens={"length": 16, "pack": False})
    rows = {}
    with pytest.warns(UserWarning, match="documents are truncated to `tokens.length`, which is `16`"):
        for batch in loader:
            assert list(batch.keys()) == ["tokens", "key", "origin"]
            rows.update((int(row), ids.copy()) for row, ids in zip(batch.origin, batch.tokens))
    assert len(rows) == COUNT
    assert loader.metrics()["truncated_documents"] == sum(len(document(n)) > 16 for n in range(COUNT))
    for row, ids in rows.items():
        expected = document(row)[:16]
        assert ids.tolist() == expected + [0] * (16 - len(expected))


def test_tokens_need_their_settings(documents):
    with pytest.raises(feedline.ConfigError, match="tokens"):
        feedline.Loader(documents, 8)
