#!/usr/bin/env python3
"""Prints the runs of run.sh as a table: medians, and the range of processor time. usage: report.py RESULTS..."""

import json
import statistics
import sys

KEYS = ["steps_per_s", "cpu_ms_per_step", "kernel_ms_per_step", "peak_mib", "data_wait_share", "loss_first", "loss_last", "gpu_use", "gpu_mib"]


def main():
    runs = {}
    for name in sys.argv[1:]:
        for line in open(name):
            run = json.loads(line)
            runs.setdefault((run["case"], run["threads"]), {}).setdefault(run["who"], []).append(run)
    print("| model | threads | | steps/s | CPU-ms/step (range) | of it in the kernel | peak MiB | data wait | loss: first, last 20 | GPU use, MiB |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for (case, threads), programs in runs.items():
        for who, found in programs.items():
            rate, cpu, kernel, peak, waited, first, last, use, memory = (median(found, key) for key in KEYS)
            times = [run["figures"]["cpu_ms_per_step"] for run in found]
            cells = [case, threads, who, f"{rate:.1f}", f"{cpu:.1f} ({min(times):.1f} to {max(times):.1f})"]
            cells += [f"{kernel:.1f}", f"{peak:.0f}", "" if waited is None else f"{waited:.2%}", f"{first:.3g}, {last:.3g}"]
            cells.append("" if use is None else f"{use:.0%}, {memory:.0f}")
            print("|", " | ".join(map(str, cells)), "|")
    print()
    for (case, threads), programs in runs.items():
        if "torch" in programs and "feedline" in programs:
            ours, torch = programs["feedline"], programs["torch"]
            time, memory, rate = (median(ours, k) / median(torch, k) for k in ("cpu_ms_per_step", "peak_mib", "steps_per_s"))
            print(
                f"- {case}, {threads} threads: {time:.2f} times PyTorch's processor time (bar 1.5), {memory:.0%} of its "
                f"memory (bar 10 %), {rate:.2f} times its steps/s"
            )
        if "bare" in programs and "feedline" in programs:
            rate = median(programs["feedline"], "steps_per_s") / median(programs["bare"], "steps_per_s")
            print(f"- {case}, {threads} threads: {rate:.0%} of the bare loop's steps/s (bar 95 %)")


def median(runs, key):
    found = [run["figures"][key] for run in runs if run["figures"].get(key) is not None]
    return statistics.median(found) if found else None


if __name__ == "__main__":
    main()
