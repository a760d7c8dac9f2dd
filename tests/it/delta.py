"""Compares a Delta table with an export of the same rows, by every reader.

`python delta.py TABLE EXPORT [--each-since VERSION]` reads the newest version of the Delta table in the folder TABLE with
deltalake, polars and DuckDB, and compares the rows with those in the Parquet files of EXPORT (`-` for no rows), as far as the
commit log entry that the version follows. With `--each-since` it also counts the rows of each version after that one: only
commits that added rows may be among these. It prints the version, its entry, its rows, and the way DuckDB read it, as JSON.

DuckDB reads Delta tables by an extension. It comes from the package `duckdb-extension-delta` of the same version as DuckDB, or
was installed by DuckDB. Without it, DuckDB queries the files and columns that deltalake finds.
"""

import datetime
import decimal
import importlib.util
import json
import os
import sys
from pathlib import Path

import deltalake
import duckdb
import polars
import pyarrow.dataset

OWN = ("_feedline_seq", "_feedline_hash")


def shown(value):
    """A value as text that readers agree on."""
    if isinstance(value, bytes):
        return "bytes:" + value.hex()
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    if isinstance(value, decimal.Decimal):
        return "decimal:" + format(value.normalize(), "f")
    if isinstance(value, float):
        return "float:" + repr(value)
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value


def rows_of(dicts, columns):
    """Rows in an order that is the same for all readers."""
    return sorted(json.dumps({name: shown(row.get(name)) for name in columns}, sort_keys=True) for row in dicts)


def by_deltalake(folder):
    return deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist()


def by_polars(folder):
    return polars.read_delta(folder).to_dicts()


def extension():
    """The extension of the package, or the name of an installed one."""
    package = importlib.util.find_spec("duckdb_extension_delta")
    places = package.submodule_search_locations if package else []
    found = [Path(place) / f"extensions/v{duckdb.__version__}/delta.duckdb_extension" for place in places]
    return next((path for path in found if path.exists()), "delta")


def by_duckdb(folder):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    try:
        connection.execute(f"LOAD '{extension()}'")
        table, way = connection.sql(f"SELECT * FROM delta_scan('{folder}')"), "extension"
    except duckdb.Error:
        dataset = deltalake.DeltaTable(folder).to_pyarrow_dataset()
        table, way = connection.sql("SELECT * FROM dataset"), "files of deltalake"
    return table.to_arrow_table().to_pylist(), way


def expected_rows(export):
    if export == "-":
        return []
    return pyarrow.dataset.dataset(export, format="parquet").to_table().to_pylist()


def entry_of(folder, version):
    """The entry of the commit log that a version follows."""
    lines = (Path(folder) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    infos = [json.loads(line).get("commitInfo") for line in lines]
    return next(info for info in infos if info)["feedline"]["sequence"]


def check_each(folder, since, newest, expected):
    """Counts the rows of the versions after `since`; those that name removed files are passed over."""
    counted = 0
    for version in range(since + 1, newest):
        table = deltalake.DeltaTable(folder, version=version)
        paths = table.get_add_actions(flatten=True)["path"].to_pylist()
        if not all((Path(folder) / path).exists() for path in paths):
            continue
        entry = entry_of(folder, version)
        wanted = sum(row["_feedline_seq"] <= entry for row in expected)
        found = table.to_pyarrow_dataset().count_rows()
        assert found == wanted, f"version {version} (entry {entry}) has {found} rows instead of {wanted}"
        counted += 1
    return counted


def main():
    folder, export = sys.argv[1:3]
    table = deltalake.DeltaTable(folder)
    columns = [field.name for field in table.schema().fields if field.name not in OWN]
    version = table.version()
    entry = entry_of(folder, version)
    every = expected_rows(export)
    expected = [row for row in every if row["_feedline_seq"] <= entry]
    if len(expected) < len(every):
        # Later entries may have widened what the export has.
        columns = [name for name in columns if name == "id" or name.startswith("_feedline_")]
        expected = [{name: row[name] for name in [*columns, "_feedline_seq"]} for row in expected]
    for name in {name for row in expected for name, value in row.items() if value is not None}:
        assert name in columns or name in OWN, f"the table has no column `{name}`: {columns}"
    wanted = rows_of(expected, columns)
    through_duckdb, way = by_duckdb(folder)
    for reader, rows in [("deltalake", by_deltalake(folder)), ("polars", by_polars(folder)), ("duckdb", through_duckdb)]:
        found = rows_of(rows, columns)
        difference = sorted(set(found) ^ set(wanted))[:6]
        assert found == wanted, f"{reader}: {len(found)} rows instead of {len(wanted)}: {difference}"
    counted = 0
    if "--each-since" in sys.argv:
        counted = check_each(folder, int(sys.argv[4]), version, every)
    print(json.dumps({"version": version, "entry": entry, "rows": len(wanted), "counted": counted, "duckdb": way}))


main()
# Threads of the readers may outlive the interpreter, and abort it then.
sys.stdout.flush()
os._exit(0)
