"""Checks what a run left against numpy: rows, splits, fitted numbers, and every output column.

usage: check.py WHO INPUT OUTPUT

The input is read again and its copies are dropped row by row. Which split an id is in is computed from it, and each split must
hold the very ids, as often as they are there. Everything fitted is computed again on the very training rows, in 64 bits; the
outputs of a split are compared column by column in sums that no order changes, one of them weighted by the id, so that a
value beside the wrong row shows. Prints a line, fails above 1e-9 deviations (scikit-learn fits the median of 32-bit floats in
32 bits: 1e-4).
"""
import glob
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

COLUMNS = [f"f{i:02d}" for i in range(32)]
SPLITS = ("train", "validation", "test")
FACTOR, RANGE, STEP = 2654435761, 4294967296, 65536
STEPS = {"impute": {"median": "value"}, "winsorize": {"low": "low", "high": "high"}, "standardize": {"mean": "mean", "std": "scale"}}


def expected(folder):
    """Id, label and features of the distinct rows."""
    table = pq.read_table(folder)
    ids, label = table["id"].to_numpy(), table["label"].to_numpy()
    x = np.stack([table[c].combine_chunks().fill_null(float("nan")).to_numpy() for c in COLUMNS], 1)
    bits = [ids.view(np.uint64), table["ts"].cast(pa.int64()).to_numpy().view(np.uint64), label.astype(np.uint64)]
    bits = np.column_stack([*bits, np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)])
    order = np.argsort(ids, kind="stable")
    keep, ranked = np.ones(len(ids), bool), ids[order]
    first = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    end = np.r_[first[1:], len(ids)]
    for start, stop in zip(first[end - first > 1], end[end - first > 1]):
        seen = set()
        for row in order[start:stop]:
            content = bits[row].tobytes()
            keep[row] = content not in seen
            seen.add(content)
    return ids[keep], label[keep], x[keep]


def outputs(who, out):
    """Of each split: id, label, features. And what was fitted."""
    if who.startswith("feedline"):
        return ours(out)
    found = {}
    for split in SPLITS:
        if os.path.exists(f"{out}/{split}.npz"):
            part = np.load(f"{out}/{split}.npz")
            found[split] = (part["id"], part["label"], part["x"])
            continue
        if os.path.exists(f"{out}/{split}.arrow"):
            table = ipc.open_file(pa.memory_map(f"{out}/{split}.arrow")).read_all()
        else:
            table = pq.read_table(f"{out}/{split}")
        assert all(table.schema.field(c).type == pa.float32() for c in COLUMNS)
        found[split] = (table["id"].to_numpy(), table["label"].to_numpy(), np.stack([table[c].to_numpy() for c in COLUMNS], 1))
    return found, json.load(open(f"{out}/fitted.json"))


def ours(out):
    """Shards hold the features in one column, and id and label as they were read beside them."""
    folder = f"{out}/dataset"
    manifest = json.load(open(os.path.join(folder, open(f"{folder}/CURRENT").read().strip())))
    artefact = json.load(open(os.path.join(folder, manifest["transform"]["path"])))
    assert [f["name"] for f in artefact["features"]] == COLUMNS
    classes = np.array([int(c) for c in artefact["target"]["classes"]])
    found = {}
    for part in manifest["splits"]:
        tables = [ipc.open_file(pa.memory_map(f"{folder}/{shard['path']}")).read_all() for shard in part["shards"]]
        table = pa.concat_tables(tables)
        x = np.concatenate([c.flatten().to_numpy() for c in table["x"].chunks]).reshape(-1, len(COLUMNS))
        label = table["label"].to_numpy()
        assert np.array_equal(classes[table["y"].to_numpy()], label), "classes differ from the labels beside them"
        found[part["split"]] = (table["id"].to_numpy(), label, x)
    fitted = {c: {} for c in COLUMNS}
    for step in artefact["steps"]:
        for column in step["columns"]:
            for ours, theirs in STEPS[step["type"]].items():
                fitted[column["name"]][ours] = column[theirs]
    return found, fitted


def main(who, folder, out):
    ids, label, x = expected(folder)
    found, fitted = outputs(who, out)
    bucket = (ids * FACTOR) % RANGE // STEP % 10
    splits = np.where(bucket < 8, 0, np.where(bucket == 8, 1, 2))
    for code, split in enumerate(SPLITS):
        assert np.array_equal(np.sort(found[split][0]), np.sort(ids[splits == code])), f"the {split} split has other ids"
    rows = {split: int((splits == code).sum()) for code, split in enumerate(SPLITS)}
    assert rows == {split: len(found[split][0]) for split in SPLITS}, rows
    weights = ids % 1009
    worst_fit = worst_sum = 0.0
    for i, column in enumerate(COLUMNS):
        cells = x[:, i].astype(np.float64)
        train = cells[splits == 0]
        median, low, high = np.percentile(train[~np.isnan(train)], [50, 1, 99])
        cells = np.clip(np.where(np.isnan(cells), median, cells), low, high)
        mean, std = cells[splits == 0].mean(), cells[splits == 0].std()
        numbers = dict(median=median, low=low, high=high, mean=mean, std=std)
        worst_fit = max(worst_fit, *(abs(fitted[column][n] - value) / std for n, value in numbers.items()))
        cells = ((cells - mean) / std).astype(np.float32).astype(np.float64)
        for code, split in enumerate(SPLITS):
            theirs, mine = found[split][2][:, i].astype(np.float64), cells[splits == code]
            given = found[split][0] % 1009
            sums = [(theirs.sum(), mine.sum()), ((theirs**2).sum(), (mine**2).sum()), ((theirs * given).sum() / 1009, (mine * weights[splits == code]).sum() / 1009)]
            worst_sum = max(worst_sum, *(abs(a - b) / len(mine) for a, b in sums))
    for code, split in enumerate(SPLITS):
        assert int(found[split][1].sum()) == int(label[splits == code].sum()), "labels differ"
    print(f"{who}: {len(ids)} distinct rows, fitted numbers within {worst_fit:.1e} deviations, outputs within {worst_sum:.1e}")
    limit = 1e-4 if who == "pandas" else 1e-9
    if max(worst_fit, worst_sum) > limit:
        sys.exit("the numbers differ")


if __name__ == "__main__":
    main(*sys.argv[1:])
