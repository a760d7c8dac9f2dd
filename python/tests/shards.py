"""Writes datasets in feedline's own shard format from numpy arrays: a second writer, made from the format's description.

It serves tests and benches; `feedline shards build` is the writer for real data.
"""

import io
import json
import pathlib

import crc32c
import numpy as np
import pyarrow as pa
import xxhash

BLOCK_BYTES = 1 << 20
ALIGNMENT = 64


def write(folder, x, y=None, *, classes=None, rows_per_block=None, keys=None, **more):
    """Publishes `x` [rows, features] float32 and `y` [rows] or [rows, targets] (float32, or int32 with `classes`) as one split.

    `key` is the row number inverted, `origin` the row number, unless `keys` are given.
    """
    features = x.shape[1]
    columns, target = _targets(y, classes)
    columns = {"x": _lists(np.ascontiguousarray(x, np.float32)), **columns}
    layout = {"kind": "dense", "features": features, "target": target}
    targets = target.get("targets", 1)
    per_block = rows_per_block or max(1, BLOCK_BYTES // (4 * features + 4 * targets + 16))
    return _write(folder, columns, layout, per_block, keys=keys, **more)


def write_images(folder, encoded, y=None, *, classes=None, rows_per_block=16, **more):
    """Publishes whole JPEG, PNG or WebP files, and targets as in `write`."""
    columns, target = _targets(y, classes)
    columns = {"image": pa.array(encoded, pa.binary()), **columns}
    return _write(folder, columns, {"kind": "images", "target": target}, rows_per_block, **more)


def write_tokens(folder, documents, *, vocabulary=1 << 16, rows_per_block=16, **more):
    """Publishes documents, each a sequence of token ids below 65,536."""
    item = pa.field("item", pa.uint16(), nullable=False)
    columns = {"tokens": pa.array([np.asarray(d, np.uint16) for d in documents], pa.list_(item))}
    layout = {"kind": "tokens", "id": "u16", "vocabulary": vocabulary}
    return _write(folder, columns, layout, rows_per_block, **more)


def _targets(y, classes):
    if y is None:
        return {}, {"kind": "none"}
    if classes:
        return {"y": pa.array(np.asarray(y, np.int32))}, {"kind": "classification", "classes": classes}
    y = np.ascontiguousarray(y, np.float32)
    if y.ndim == 2:
        return {"y": _lists(y)}, {"kind": "regressions", "targets": y.shape[1]}
    return {"y": pa.array(y)}, {"kind": "regression"}


def _write(folder, columns, layout, rows_per_block, *, shards=1, split="train", keys=None):
    folder = pathlib.Path(folder)
    (folder / "shards" / split).mkdir(parents=True, exist_ok=True)
    rows = len(next(iter(columns.values())))
    number = np.arange(rows, dtype=np.uint64)
    columns["key"] = pa.array(~number if keys is None else keys)
    columns["origin"] = pa.array(number)
    schema = pa.schema([pa.field(name, c.type, nullable=False) for name, c in columns.items()])
    table = pa.record_batch(list(columns.values()), schema=schema)
    blocks = -(-rows // rows_per_block)
    per_shard = max(1, -(-blocks // shards)) * rows_per_block
    entries = []
    for shard, first in enumerate(range(0, rows, per_shard)):
        part = table.slice(first, min(per_shard, rows - first))
        entries.append(_write_shard(folder, f"shards/{split}/{shard:05}.arrow", part, rows_per_block))
    publish(folder, layout, [{"split": split, "rows": rows, "shards": entries}])
    return folder


def publish(folder, layout, splits):
    """Writes the manifest and points `CURRENT` at it."""
    zero = "0" * 32
    counts = {"rows_in": 0, "duplicates": 0, "rejected": {}, "train": 0, "validation": 0, "test": 0}
    names = range(layout.get("target", {}).get("classes") or 0)
    if names:
        counts["classes"] = [{"name": f"class {id}", "train": 0, "validation": 0, "test": 0} for id in names]
    manifest = {
        "format": "feedline.manifest",
        "version": 3,
        "fingerprint": zero,
        "dataset": "numbers",
        "input_hash": zero,
        "layout": layout,
        "transform": {"path": "transform-0.json", "hash": zero, "dataset": "numbers"},
        "shuffle_seed": None,
        "sources": [],
        "counts": counts,
        "splits": splits,
        "rejects": [],
    }
    manifest["fingerprint"] = xxhash.xxh3_128(_encode(manifest)).hexdigest()
    (folder / "manifest-000001.json").write_bytes(_encode(manifest))
    (folder / "CURRENT").write_text("manifest-000001.json")


def _encode(document):
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _lists(x):
    item = pa.field("item", pa.float32(), nullable=False)
    return pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), type=pa.list_(item, x.shape[1]))


def _write_shard(folder, path, part, rows_per_block):
    sink = io.BytesIO()
    blocks = []
    with pa.ipc.new_file(sink, part.schema) as writer:
        for first in range(0, max(1, part.num_rows), rows_per_block):
            batch = _compact(part.slice(first, rows_per_block))
            padding = _padding(batch)
            start = sink.tell()
            writer.write_batch(batch, custom_metadata={"pad": " " * padding})
            # The first write also puts the magic and the schema before the batch.
            start = start or _first_block(sink.getbuffer())
            blocks.append(_block(sink.getbuffer()[start:], start, batch.num_rows))
    data = sink.getvalue()
    (folder / path).write_bytes(data)
    shard = {
        "path": path,
        "rows": part.num_rows,
        "bytes": len(data),
        "hash": xxhash.xxh3_128(data).hexdigest(),
        "blocks": blocks,
    }
    if "tokens" in part.schema.names:
        shard["lengths"] = _write_lengths(folder, path, part, blocks)
    return shard


def _write_lengths(folder, path, part, blocks):
    """The lengths of the documents in a file of their own, and their sum in every block."""
    lengths = np.diff(part.column("tokens").offsets.to_numpy()).astype("<u4")
    first = 0
    for block in blocks:
        block["tokens"] = int(lengths[first : first + block["rows"]].sum())
        first += block["rows"]
    path = path.replace(".arrow", ".lengths")
    (folder / path).write_bytes(lengths.tobytes())
    return {"path": path, "crc32c": crc32c.crc32c(lengths.tobytes())}


def _compact(batch):
    """The batch without the offset of a slice, which the file would otherwise carry the bytes before."""
    return pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.columns], schema=batch.schema)


def _padding(batch):
    """Characters of metadata after which the body begins at a multiple of 64 bytes, as in our own writer's files."""
    for padding in range(1, 2 * ALIGNMENT):
        message = io.BytesIO()
        with pa.ipc.new_stream(message, batch.schema) as writer:
            writer.write_batch(batch.slice(0, 1), custom_metadata={"pad": " " * padding})
        data = message.getbuffer()
        schema = _message_bytes(data)
        if _message_bytes(data[schema:]) % ALIGNMENT == 0:
            return padding
    raise AssertionError("some padding fits")


def _message_bytes(data):
    """Length of the metadata of the message at the start of `data`, its 8 bytes of prefix included."""
    assert bytes(data[:4]) == b"\xff\xff\xff\xff"
    return 8 + int.from_bytes(data[4:8], "little")


def _first_block(data):
    return 8 + _message_bytes(data[8:])


def _block(data, offset, rows):
    metadata = _message_bytes(data)
    return {
        "offset": offset,
        "metadata_bytes": metadata,
        "body_bytes": len(data) - metadata,
        "rows": rows,
        "crc32c": crc32c.crc32c(bytes(data)),
    }
