"""Fills missing cells from their nearest rows, by the bench `knn` and by scikit-learn, and compares every cell.

usage: knn.py FOLDER [ROWS [COLUMNS]] -- BENCH     e.g. knn.py /tmp/knn 50000 50 -- target/release/deps/knn-0123

A tenth of the cells is missing; the table is a sum of five hidden numbers of each row, and noise. Prints a line of JSON with
the seconds of both on all cores and the largest relative difference, and fails above 1e-9.
"""
import json
import os
import subprocess
import sys
import time

import numpy as np
from sklearn.impute import KNNImputer


def main(folder, rows, columns, bench):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(7)
    table = rng.standard_normal((rows, 5)) @ rng.standard_normal((5, columns)) + 0.5 * rng.standard_normal((rows, columns))
    table[rng.random(table.shape) < 0.1] = np.nan
    table.tofile(f"{folder}/in.f64")
    threads = os.cpu_count()
    command = [bench, "--bench", str(rows), str(columns), str(threads), f"{folder}/in.f64", f"{folder}/out.f64"]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    began, used = time.perf_counter(), time.process_time()
    expected = KNNImputer(n_neighbors=5).fit_transform(table)
    theirs, theirs_cpu = time.perf_counter() - began, time.process_time() - used
    found = np.fromfile(f"{folder}/out.f64").reshape(rows, columns)
    worst = float(np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-300)))
    figures = {
        "rows": rows,
        "columns": columns,
        "missing": ours["missing"],
        "feedline_s": ours["seconds"],
        "sklearn_s": round(theirs, 2),
        "sklearn_cpu_s": round(theirs_cpu, 2),
        "times": round(theirs / ours["seconds"], 1),
        "worst_relative_difference": worst,
    }
    print(json.dumps(figures))
    if worst > 1e-9:
        sys.exit("the cells differ")


if __name__ == "__main__":
    given, bench = sys.argv[1 : sys.argv.index("--")], sys.argv[-1]
    numbers = [int(n) for n in given[1:]] + [50_000, 50][len(given) - 1 :]
    main(given[0], *numbers, bench)
