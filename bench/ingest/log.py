#!/usr/bin/env python3
"""A source of many small batches: its log, opened and compacted.

    bench/ingest/log.py PROGRAM [FILES]      PROGRAM such as target/release/feedline, FILES default 100000

BENCH_DATA    folder for inputs and outputs, default /tmp/feedline-bench-ingest; it needs about 16 KiB a file

Each of FILES files of two rows is landed in a batch of its own, so that the log has as many entries and the table as
many files. Then each command runs in a process of its own, with its time and the most memory that it had resident:
`status`, a run with one more file (the files read before are moved away first, so that listing them is not measured),
`compact`, and both once more. The table is read with pyarrow at the end: each row must be there once.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PIPELINE = """
[pipeline]
name = "log"
root = "out"

[[source]]
name = "numbers"
type = "files"
url = "in/*.csv"
batch = { pages = 1 }
"""


def measured(name, program, *words):
    """Runs a command; prints its time and most resident memory."""
    began = time.monotonic()
    with open("output.txt", "w") as output:
        child = subprocess.Popen([program, *words], stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    if status != 0:
        output = Path("output.txt").read_text()
        sys.exit(f"{name}: ended with {os.waitstatus_to_exitcode(status)}\n{output[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{name:<28} {seconds:10.2f} s {cpu:10.2f} CPU s {usage.ru_maxrss / 1024:8.0f} MiB", flush=True)


def write(folder, file):
    (folder / f"{file:08}.csv").write_text(f"id,file\n{2 * file},{file}\n{2 * file + 1},{file}\n")


def main():
    program = str(Path(sys.argv[1]).resolve())
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    base = Path(os.environ.get("BENCH_DATA", "/tmp/feedline-bench-ingest")) / "log"
    shutil.rmtree(base, ignore_errors=True)
    (base / "in").mkdir(parents=True)
    os.chdir(base)
    for file in range(files):
        write(base / "in", file)
    Path("pipeline.toml").write_text(PIPELINE)
    pipeline = ["pipeline.toml"]
    measured(f"run, {files} entries", program, "ingest", *pipeline, "--json")

    def reopened():
        measured("status", program, "ingest", "status", *pipeline)
        (base / "in").rename(base / f"read-{time.monotonic_ns()}")
        (base / "in").mkdir()
        nonlocal files
        write(base / "in", files)
        files += 1
        measured("run with one more file", program, "ingest", *pipeline)

    reopened()
    data = base / "out/landing/numbers/data"
    before = len(list(data.iterdir()))
    measured(f"compact {before} files", program, "ingest", "compact", *pipeline, "numbers", "--json")
    print(f"{len(list(data.iterdir()))} files remain", flush=True)
    reopened()
    measured("verify", program, "ingest", "verify", *pipeline)
    import pyarrow.parquet as parquet

    table = parquet.ParquetDataset(data).read(columns=["id"])
    ids = table["id"].to_pylist()
    if sorted(ids) != list(range(2 * files)):
        sys.exit(f"{len(ids)} rows, {len(set(ids))} different, instead of {2 * files}")
    print(f"each of {len(ids)} rows is in the table once")


main()
