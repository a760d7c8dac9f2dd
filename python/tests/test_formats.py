"""Files that other libraries wrote, read with equal content."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import feedline
from conftest import numbers

ROWS = 300


def check_rows(folder, rows=ROWS, **settings):
    """`x[i] = [i, 1, 2]` and `y[i] = i`, every row once, in both orders."""
    x = numbers(rows)
    for shuffle in (True, False):
        found = [(bx.copy(), by.copy()) for bx, by in feedline.Loader(folder, 32, shuffle=shuffle, **settings)]
        bx, by = (np.concatenate(parts) for parts in zip(*found))
        order = np.argsort(by, kind="stable")
        assert (bx[order] == x).all() and (by[order] == np.arange(rows)).all()
        assert shuffle != (order == np.arange(rows)).all()


def test_parquet_of_scalars(tmp_path):
    x = numbers(ROWS)
    for part in range(3):
        rows = slice(100 * part, 100 * part + 100)
        table = pa.table({"a": x[rows, 0], "b": x[rows, 1], "c": x[rows, 2].astype(np.int16), "y": x[rows, 0]})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=37, compression="zstd")
    check_rows(tmp_path)
    check_rows(tmp_path, columns={"x": ["a", "b", "c"], "y": "y"}, format="parquet")


def test_parquet_of_lists_with_named_columns(tmp_path):
    x = numbers(ROWS)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
    pq.write_table(pa.table({"features": lists, "price": x[:, 0], "noise": x[:, 1]}), tmp_path / "all.parquet")
    check_rows(tmp_path, columns={"x": "features", "y": "price"})


def test_parquet_classes_and_bad_values(tmp_path):
    x = numbers(40)
    x[7, 1] = np.nan
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "label": np.arange(40, dtype=np.int64) % 4})
    pq.write_table(table, tmp_path / "all.parquet")
    with pytest.raises(feedline.Error, match="all.parquet"):
        for _ in feedline.Loader(tmp_path, 8):
            pass
    for bx, by in feedline.Loader(tmp_path, 8, bad_values="keep", target=4):
        assert by.dtype == np.int32 and (by == bx[:, 0] % 4).all()


def test_of_two_columns_that_are_called_like_a_target_one_must_be_named(tmp_path):
    x = numbers(40)
    table = pa.table({"a": x[:, 0], "label": (x[:, 0] > 20).astype(np.int64), "target": x[:, 0]})
    pq.write_table(table, tmp_path / "all.parquet")
    with pytest.raises(feedline.DataError, match="`label` and `target` are all called like a target.*`columns.y`"):
        feedline.Loader(tmp_path, 8)
    with pytest.warns(UserWarning, match="features are called like a target: `label`"):
        feedline.Loader(tmp_path, 8, columns={"y": "target"})
    loader = feedline.Loader(tmp_path, 8, columns={"x": ["a"], "y": "target"})
    assert loader.warnings() == []


def test_settings_without_effect_on_other_formats_are_refused(tmp_path):
    x = numbers(40)
    pq.write_table(pa.table({"a": x[:, 0], "price": x[:, 1]}), tmp_path / "all.parquet")
    for settings, key in (({"bad_shards": "skip"}, "bad_shards"), ({"columns": {"y": "price"}, "target": "none"}, "columns.y")):
        with pytest.raises(feedline.ConfigError, match=f"`{key}`"):
            feedline.Loader(tmp_path, 8, **settings)


def test_tables_whose_columns_have_another_order_are_not_mixed(tmp_path):
    x = numbers(40)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0]})
    folders = [tmp_path / name for name in ("first", "second")]
    for folder, names in zip(folders, (["a", "b", "y"], ["b", "a", "y"])):
        folder.mkdir()
        pq.write_table(table.select(names), folder / "all.parquet")
    with pytest.raises(feedline.ConfigError, match="element `0` of `x` is `a` in the first and `b` in the second"):
        feedline.Loader(folders, 8)
    mixed = feedline.Loader(folders, 8, columns={"x": ["b", "a"]})
    assert sum(len(batch) for batch in mixed) == 80 and mixed.warnings() == []


def drawn(number):
    return np.full((16, 24, 3), 5 * number, np.uint8)


def png(number):
    out = io.BytesIO()
    Image.fromarray(drawn(number)).save(out, "PNG")
    return out.getvalue()


def check_images(folder, count, **settings):
    whole = {"height": 16, "width": 24, "crop": {"kind": "whole"}}
    seen = []
    for image, y in feedline.Loader(folder, 8, images=whole, **settings):
        for pixels, label in zip(image, y):
            assert (pixels == drawn(int(label))).all()
            seen.append(int(label))
    assert sorted(seen) == list(range(count))


def test_webdataset_tars(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    for part in range(2):
        with webdataset.TarWriter(str(tmp_path / f"{part:03}.tar")) as writer:
            for number in range(20 * part, 20 * part + 20):
                writer.write({"__key__": f"{number:05}", "png": png(number), "cls": number})
    check_images(tmp_path, 40)


def test_parquet_of_images(tmp_path):
    table = pa.table({"image": [{"bytes": png(n), "path": f"{n}.png"} for n in range(40)], "label": list(range(40))})
    pq.write_table(table, tmp_path / "train.parquet")
    check_images(tmp_path, 40)


def test_mds_rows(tmp_path):
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed: it needs torch")
    columns = {"x": "ndarray:float32:3", "y": "float32"}
    with streaming.MDSWriter(out=str(tmp_path), columns=columns, size_limit=4096) as writer:
        for row in numbers(ROWS):
            writer.write({"x": row, "y": row[0]})
    check_rows(tmp_path)


def test_mds_images(tmp_path):
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming is not installed: it needs torch")
    columns = {"png": "bytes", "label": "int"}
    with streaming.MDSWriter(out=str(tmp_path), columns=columns, size_limit=4096, hashes=["xxh64"]) as writer:
        for number in range(40):
            writer.write({"png": png(number), "label": number})
    check_images(tmp_path, 40, columns={"image": "png"})
