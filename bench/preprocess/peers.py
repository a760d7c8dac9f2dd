"""The same work by polars, DuckDB, and pandas with scikit-learn, as their users write it.

usage: peers.py floor|polars|polars-streaming|duckdb|pandas INPUT OUTPUT

Equal rows are one row; they are split by id; on the training rows caps at 1 and 99 % and the median of what is there are
fitted, then mean and deviation of what filling and capping leave; `(x - mean) / deviation` of all rows is written as
32-bit floats with id and label. `floor` decodes all columns once and throws them away. `fitted.json` has the numbers.
"""
import glob
import json
import os
import sys

COLUMNS = [f"f{i:02d}" for i in range(32)]
SPLITS = ("train", "validation", "test")
FACTOR, RANGE, STEP = 2654435761, 4294967296, 65536


def floor(files, _):
    import pyarrow.parquet as pq

    for file in files:
        for group in range(pq.ParquetFile(file).num_row_groups):
            pq.ParquetFile(file).read_row_group(group)


def polars(files, out, streaming=False):
    import polars as pl

    engine = "streaming" if streaming else "in-memory"
    bucket = ((pl.col("id") * FACTOR) % RANGE // STEP) % 10
    split = pl.when(bucket < 8).then(0).when(bucket == 8).then(1).otherwise(2).cast(pl.Int8)
    rows = pl.scan_parquet(files).unique().with_columns(split.alias("split"))
    if streaming:
        rows.sink_ipc(f"{out}/rows.tmp", compression="uncompressed")
        rows = pl.scan_ipc(f"{out}/rows.tmp")
    else:
        rows = rows.collect(engine=engine).lazy()
    train = rows.filter(pl.col("split") == 0)
    wanted = [("median", 0.5), ("low", 0.01), ("high", 0.99)]
    quantiles = [
        pl.col(c).cast(pl.Float64).quantile(p, interpolation="linear").alias(f"{c}_{n}") for c in COLUMNS for n, p in wanted
    ]
    found = train.select(quantiles).collect(engine=engine).row(0, named=True)

    def capped(c):
        filled = pl.col(c).cast(pl.Float64).fill_null(found[f"{c}_median"])
        return filled.clip(found[f"{c}_low"], found[f"{c}_high"])

    moments = [capped(c).mean().alias(c + "_mean") for c in COLUMNS] + [capped(c).std(ddof=0).alias(c + "_std") for c in COLUMNS]
    found |= train.select(moments).collect(engine=engine).row(0, named=True)
    scaled = [((capped(c) - found[c + "_mean"]) / found[c + "_std"]).cast(pl.Float32).alias(c) for c in COLUMNS]
    result = rows.select(["id", "label", "split", *scaled])
    for code, name in enumerate(SPLITS):
        part = result.filter(pl.col("split") == code).drop("split")
        if streaming:
            part.sink_ipc(f"{out}/{name}.arrow", compression="uncompressed")
        else:
            part.collect(engine=engine).write_ipc(f"{out}/{name}.arrow", compression="uncompressed")
    if streaming:
        os.remove(f"{out}/rows.tmp")
    keep(out, {c: {n: found[f"{c}_{n}"] for n in ("median", "low", "high", "mean", "std")} for c in COLUMNS})


def duckdb(files, out):
    import duckdb

    con = duckdb.connect()
    con.execute(f"SET temp_directory='{out}/tmp'")
    con.execute("SET preserve_insertion_order=false")
    con.execute(
        f"""CREATE TABLE d AS SELECT *, CASE WHEN b < 8 THEN 0 WHEN b = 8 THEN 1 ELSE 2 END AS split FROM
        (SELECT *, ((((id * {FACTOR}) % {RANGE}) // {STEP}) % 10)::INT AS b FROM (SELECT DISTINCT * FROM read_parquet({files!r})))"""
    )
    quantiles = ",".join(f"quantile_cont({c}::DOUBLE,[0.5,0.01,0.99])" for c in COLUMNS)
    quantiles = con.execute(f"SELECT {quantiles} FROM d WHERE split = 0").fetchone()
    capped = [f"least(greatest(coalesce({c}::DOUBLE,({q[0]!r})),({q[1]!r})),({q[2]!r}))" for c, q in zip(COLUMNS, quantiles)]
    moments = con.execute("SELECT " + ",".join(f"avg({e}),stddev_pop({e})" for e in capped) + " FROM d WHERE split = 0").fetchone()
    means, deviations = moments[::2], moments[1::2]
    scaled = ",".join(f"(({e}-({m!r}))/{s!r})::FLOAT AS {c}" for c, e, m, s in zip(COLUMNS, capped, means, deviations))
    for code, name in enumerate(SPLITS):
        os.makedirs(f"{out}/{name}")
        form = "(FORMAT parquet, COMPRESSION uncompressed, PER_THREAD_OUTPUT true)"
        con.execute(f"COPY (SELECT id,label,{scaled} FROM d WHERE split = {code}) TO '{out}/{name}' {form}")
    rows = zip(COLUMNS, quantiles, means, deviations)
    keep(out, {c: dict(median=q[0], low=q[1], high=q[2], mean=m, std=s) for c, q, m, s in rows})


def pandas(files, out):
    import numpy as np
    import pandas as pd
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    rows = pd.read_parquet(os.path.dirname(files[0]))
    # 128 bits of hash a row: twice as fast as drop_duplicates.
    hashes = [pd.util.hash_pandas_object(rows, index=False, hash_key=key) for key in ("0123456789123456", "6543210987654321")]
    rows = rows[~pd.DataFrame(dict(enumerate(hashes))).duplicated().to_numpy()]
    bucket = ((rows["id"].to_numpy() * FACTOR) % RANGE // STEP) % 10
    split = np.where(bucket < 8, 0, np.where(bucket == 8, 1, 2))
    train = rows.loc[split == 0, COLUMNS].to_numpy(np.float32)
    low, high = np.nanpercentile(train, [1, 99], axis=0)
    imputer = SimpleImputer(strategy="median").fit(train)
    scaler = StandardScaler().fit(np.clip(imputer.transform(train), low, high).astype(np.float64))
    del train
    for code, name in enumerate(SPLITS):
        part = rows[split == code]
        x = np.clip(imputer.transform(part[COLUMNS].to_numpy(np.float32)), low, high)
        x = scaler.transform(x.astype(np.float64)).astype(np.float32)
        np.savez(f"{out}/{name}.npz", x=x, label=part["label"].to_numpy(), id=part["id"].to_numpy())
    fitted = zip(COLUMNS, imputer.statistics_, low, high, scaler.mean_, scaler.scale_)
    keep(out, {c: dict(zip(("median", "low", "high", "mean", "std"), map(float, row))) for c, *row in fitted})


def keep(out, columns):
    with open(f"{out}/fitted.json", "w") as file:
        json.dump(columns, file)


if __name__ == "__main__":
    who, folder, out = sys.argv[1:]
    files = sorted(glob.glob(f"{folder}/*.parquet"))
    work = {
        "floor": floor,
        "polars": polars,
        "polars-streaming": lambda files, out: polars(files, out, streaming=True),
        "duckdb": duckdb,
        "pandas": pandas,
    }
    work[who](files, out)
