"""Reads an export with the tools it is for.

`python export.py rows FORMAT FOLDER [SPLIT]` prints the rows as a list of JSON objects, with the columns in the order of their
names. Values that JSON has no type for are text: decimals, timestamps (ISO 8601), bytes (hexadecimal), images (`image:`, mode
and size). `python export.py shards DATASET SPLIT` prints the rows of a split as its shards hold them.
"""

import datetime
import decimal
import glob
import json
import struct
import sys
from pathlib import Path


def shown(value):
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return "bytes:" + value.hex()
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    if isinstance(value, decimal.Decimal):
        return "decimal:" + format(value.normalize(), "f")
    if hasattr(value, "mode") and hasattr(value, "size") and hasattr(value, "getpixel"):
        return f"image:{value.mode}:{value.size[0]}x{value.size[1]}"
    if hasattr(value, "tolist"):
        return shown(value.tolist())
    if isinstance(value, float):
        return "float:" + repr(value)
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value


def row(values):
    return {name: shown(values[name]) for name in sorted(values)}


def pyarrow_rows(folder, split):
    import pyarrow.dataset

    folder = Path(folder) / (split or "")
    table = pyarrow.dataset.dataset(folder, format="parquet").to_table()
    return [row(values) for values in table.to_pylist()]


def polars_rows(folder, split):
    import polars

    folder = Path(folder) / (split or "")
    files = sorted(glob.glob(f"{folder}/*.parquet"))
    table = polars.concat([polars.read_parquet(file) for file in files])
    return [row(values) for values in table.to_dicts()]


def duckdb_rows(folder, split):
    import duckdb

    folder = Path(folder) / (split or "")
    table = duckdb.sql(f"select * from read_parquet('{folder}/*.parquet')").to_arrow_table()
    return [row(values) for values in table.to_pylist()]


def huggingface_rows(folder, split):
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(Path(folder).parent / "cache"))
    return [row(values) for values in loaded[split or "train"]]


def webdataset_rows(folder, split):
    import webdataset

    urls = sorted(glob.glob(f"{folder}/{split or 'part'}-*.tar"))
    rows = []
    for sample in webdataset.WebDataset(urls, shardshuffle=False).decode("pil"):
        values = dict(sample["json"])
        for name, value in sample.items():
            if name != "json" and not name.startswith("__"):
                values[name] = value
        rows.append(row(values))
    return rows


def mds_rows(folder, split):
    """The rows as the format is specified, without the library, which needs PyTorch."""
    import io

    import numpy
    from PIL import Image

    def decode(encoding, data):
        if encoding == "json":
            return json.loads(data)
        if encoding == "str":
            return data.decode()
        if encoding == "str_decimal":
            return decimal.Decimal(data.decode())
        if encoding in ("jpeg", "png"):
            return Image.open(io.BytesIO(data))
        if encoding == "bytes":
            return data
        if encoding.startswith("ndarray:"):
            _, number, *shape = encoding.split(":")
            if not shape:
                width = 2 ** (data[0] % 4)
                data = data[1 + width * (data[0] >> 2) :]
            return numpy.frombuffer(data, number)
        return numpy.frombuffer(data, encoding)[0]

    folder = Path(folder) / (split or "")
    rows = []
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        stored = shard["zip_data"] or shard["raw_data"]
        data = (folder / stored["basename"]).read_bytes()
        assert len(data) == stored["bytes"], stored
        if shard["zip_data"]:
            import pyarrow

            data = pyarrow.decompress(data, shard["raw_data"]["bytes"], "zstd", asbytes=True)
        assert len(data) == shard["raw_data"]["bytes"], shard
        (count,) = struct.unpack_from("<I", data)
        assert count == shard["samples"]
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        for begin, end in zip(offsets, offsets[1:]):
            sample = data[begin:end]
            sizes, at = [], 0
            for size in shard["column_sizes"]:
                if size is None:
                    (size,) = struct.unpack_from("<I", sample, at)
                    at += 4
                sizes.append(size)
            values = {}
            for name, encoding, size in zip(shard["column_names"], shard["column_encodings"], sizes):
                values[name] = decode(encoding, sample[at : at + size])
                at += size
            assert at == len(sample)
            rows.append(row(values))
    return rows


def streaming_rows(folder, split):
    import os

    import streaming

    folder = os.path.join(folder, split or "")
    found = streaming.StreamingDataset(local=folder, batch_size=1, shuffle=False, validate_hash="xxh128")
    return [row(found[place]) for place in range(len(found))]


def shard_rows(dataset, split):
    import pyarrow.ipc

    dataset = Path(dataset)
    manifest = json.loads((dataset / (dataset / "CURRENT").read_text().strip()).read_text())
    rows = []
    for part in manifest["splits"]:
        if part["split"] != split:
            continue
        for shard in part["shards"]:
            with pyarrow.ipc.open_file(dataset / shard["path"]) as file:
                rows.extend(row(values) for values in file.read_all().to_pylist())
    return rows


READERS = {
    "pyarrow": pyarrow_rows,
    "polars": polars_rows,
    "duckdb": duckdb_rows,
    "huggingface": huggingface_rows,
    "webdataset": webdataset_rows,
    "mds": mds_rows,
    "streaming": streaming_rows,
}


def features(folder):
    """Features of a Hugging Face dataset."""
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(Path(folder).parent / "cache"))
    split = next(iter(loaded.values()))
    return {name: repr(feature) for name, feature in split.features.items()}


def main():
    what, *arguments = sys.argv[1:]
    if what == "rows":
        reader, folder, *split = arguments
        found = READERS[reader](folder, split[0] if split else None)
    elif what == "shards":
        found = shard_rows(*arguments)
    else:
        found = features(*arguments)
    print(json.dumps(found))


main()
