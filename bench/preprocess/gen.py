"""Makes the table of the comparison: seeded, 32 columns of heavy-tailed 32-bit floats in 8 Parquet files.

usage: gen.py FOLDER [ROWS]

`id` int64, `ts` timestamp, `label` int32, `f00` to `f31`: Student's t with 3 degrees of freedom, 5 % null, 1 in 100,000 at
a million. 2 % of the rows are full copies of another, spread over all files; 0.5 % repeat id, time and label of another and
differ in one column, so they are none.
"""
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = [f"f{i:02d}" for i in range(32)]
FILES = 8


def main(folder, rows):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(20240601)
    copies, alike = int(rows * 0.02), int(rows * 0.005)
    base = rows - copies - alike
    ids = rng.permutation(base * 7)[:base].astype(np.int64)
    times = (1_700_000_000_000_000 + rng.integers(0, 86400 * 365, base) * 1_000_000).astype(np.int64)
    label = rng.integers(0, 2, base).astype(np.int32)
    source = np.concatenate([np.arange(base), rng.choice(base, alike, replace=False)])
    gather = np.concatenate([np.arange(base + alike), rng.choice(base + alike, copies, replace=False)])
    gather = gather[rng.permutation(rows)]
    changed = rng.integers(0, len(COLUMNS), alike)
    table = {
        "id": pa.array(ids[source][gather]),
        "ts": pa.array(times[source][gather]).cast(pa.timestamp("us")),
        "label": pa.array(label[source][gather]),
    }
    for c, name in enumerate(COLUMNS):
        where, scale = rng.normal(0, 10), np.exp(rng.normal(0, 1.5))
        values = (where + scale * rng.standard_t(3, base)).astype(np.float32)
        extreme = rng.random(base) < 1e-5
        values[extreme] = np.where(rng.random(int(extreme.sum())) < 0.5, np.float32(1e6), np.float32(-1e6))
        null = rng.random(base) < 0.05
        values, null = values[source], null[source]
        other = np.nonzero(changed == c)[0] + base
        values[other] += np.float32(max(scale, 1e-3))
        null[other] = False
        table[name] = pa.array(values[gather], mask=null[gather])
    table = pa.table(table)
    share = rows // FILES
    for i in range(FILES):
        part = table.slice(i * share, share if i < FILES - 1 else rows - i * share)
        pq.write_table(part, f"{folder}/part-{i:03d}.parquet", compression="zstd", row_group_size=131072, use_dictionary=["label"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4_000_000)
