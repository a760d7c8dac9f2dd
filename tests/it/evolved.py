"""Reads a source's landing folder, whose files have several versions of a schema, with DuckDB and polars.

`python evolved.py landing/SOURCE` prints what each way of reading gives, as JSON.
"""

import json
import sys
from pathlib import Path

import duckdb
import polars as pl

# Types of the log and those of DuckDB and polars; types missing here are text.
TYPES = {
    "bool": ("BOOLEAN", pl.Boolean),
    "int64": ("BIGINT", pl.Int64),
    "float64": ("DOUBLE", pl.Float64),
    "decimal": ("DECIMAL(38,18)", pl.Decimal(38, 18)),
    "timestamp": ("TIMESTAMPTZ", pl.Datetime("us", "UTC")),
    "list_bool": ("BOOLEAN[]", pl.List(pl.Boolean)),
    "list_int64": ("BIGINT[]", pl.List(pl.Int64)),
    "list_float64": ("DOUBLE[]", pl.List(pl.Float64)),
    "list_utf8": ("VARCHAR[]", pl.List(pl.String)),
}


def columns_of(landing):
    """Names and types of the columns, as the newest entry of the log has them."""
    newest = max((landing / "log").glob("*.json"))
    return {c["name"]: c["type"] for c in json.loads(newest.read_text())["schema"]["columns"]}


def duckdb_by_log(landing):
    """A DuckDB query over all files with the types of the log: exact where plain `union_by_name` takes the nearest double, and
    lists beside texts as JSON."""
    columns, parts = columns_of(landing), []
    for file in sorted((landing / "data").glob("*.parquet")):
        described = duckdb.sql(f"DESCRIBE SELECT * FROM read_parquet('{file}')").fetchall()
        cells = []
        for name, found, *_ in described:
            if name not in columns:
                continue
            target, quoted = TYPES.get(columns[name], ("VARCHAR", None))[0], '"' + name.replace('"', '""') + '"'
            is_list_as_text = target == "VARCHAR" and found.endswith("[]")
            cell = f"CAST(to_json({quoted}) AS VARCHAR)" if is_list_as_text else f"CAST({quoted} AS {target})"
            cells.append(f"{cell} AS {quoted}")
        parts.append(f"SELECT {', '.join(cells)} FROM read_parquet('{file}')")
    return " UNION ALL BY NAME ".join(parts)


def polars_by_log(landing):
    """A lazy frame over all files with the types of the log."""
    columns, frames = columns_of(landing), []
    for file in sorted((landing / "data").glob("*.parquet")):
        cells = []
        for name, found in pl.scan_parquet(file).collect_schema().items():
            if name not in columns:
                continue
            target = TYPES.get(columns[name], (None, pl.String))[1]
            cell = pl.col(name)
            if target == pl.String and isinstance(found, pl.List):
                dump = lambda items: json.dumps(items.to_list(), separators=(",", ":"))
                cell = cell.map_elements(dump, return_dtype=pl.String)
            cells.append(cell.cast(target))
        frames.append(pl.scan_parquet(file).select(cells))
    return pl.concat(frames, how="diagonal")


def main():
    landing = Path(sys.argv[1])
    pattern = str(landing / "data" / "*.parquet")
    by_name = f"SELECT id, amount, extra FROM read_parquet('{pattern}', union_by_name=true) ORDER BY id"
    frames = [pl.scan_parquet(file).select(pl.exclude("sizes")) for file in sorted(landing.glob("data/*.parquet"))]
    relaxed = pl.concat(frames, how="diagonal_relaxed").sort("id").select("id", "amount", "extra").collect()
    order = ["id", "amount", "seen", "sizes", "note", "extra"]
    listed = ", ".join(order)
    print(json.dumps({
        "duckdb_by_name": [[str(row[0]), *row[1:]] for row in duckdb.sql(by_name).fetchall()],
        "polars_relaxed": [[str(row[0]), *row[1:]] for row in relaxed.rows()],
        "duckdb_by_log": [
            [str(row[0]), *row[1:]]
            for row in duckdb.sql(f"SELECT {listed} FROM ({duckdb_by_log(landing)}) ORDER BY id").fetchall()
        ],
        "polars_by_log": [
            [str(row[0]), *row[1:]] for row in polars_by_log(landing).sort("id").select(order).collect().rows()
        ],
    }))


main()
