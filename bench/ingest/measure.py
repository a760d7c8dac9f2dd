"""Runs a command and prints a line of JSON: wall and processor seconds, most memory of the whole process tree.

usage: measure.py WHO RECORDS -- COMMAND...

Memory is the sum of resident pages of the command and its children, looked at every 20 ms. Processor time counts children
that were waited for.
"""
import json
import os
import resource
import subprocess
import sys
import threading
import time

PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(root):
    """Process ids of a process and all below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {root}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def resident(root):
    total = 0
    for process in tree(root):
        try:
            with open(f"/proc/{process}/statm") as file:
                total += int(file.read().split()[1]) * PAGE
        except OSError:
            continue
    return total


def main(who, records, command):
    peak = 0
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    told = []
    reader = threading.Thread(target=lambda: told.append(process.stderr.read()))
    reader.start()
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.02)
    wall = time.perf_counter() - began
    reader.join()
    if process.returncode != 0:
        sys.exit(f"{who} ended with {process.returncode}: {told[0].decode(errors='replace')[-2000:]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    figures = {
        "who": who,
        "records_per_s": records / wall,
        "cpu_s_per_million": cpu / records * 1e6,
        "peak_mib": peak / 2**20,
        "wall_s": wall,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
