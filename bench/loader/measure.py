#!/usr/bin/env python3
"""Runs the commands of a plan in turn, round after round, and keeps one JSON line per run.

usage: measure.py OUT ROUNDS < PLAN     with one `KIND NAME COMMAND...` a line

A line of OUT has wall and CPU seconds of the whole process tree, the peak of its private memory, the load average just
before, and `figures`, what the command printed last as a JSON object. CPU seconds count the time of reaped children and
of those that were killed, sampled. Nothing is averaged here.
"""

import json
import os
import resource
import shlex
import subprocess
import sys
import threading
import time

LIMIT_S = float(os.environ.get("BENCH_LIMIT", 150))
PERIOD_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


def tree(pid):
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    todo += map(int, children.read().split())
        except OSError:
            pass
    return found


def cpu_seconds(pid):
    """Seconds of a live process, and a name for it that no later process shares; `None` when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (pid, fields[19]), (int(fields[11]) + int(fields[12])) / TICKS
    except (OSError, IndexError):
        return None


def private_kib(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line.split() for line in status]
        return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "RssShmem:"))
    except (OSError, IndexError):
        return 0


class Watch(threading.Thread):
    """Samples a process tree until it is asked to stop."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.done, self.seconds, self.peak_kib = pid, threading.Event(), {}, 0

    def run(self):
        while not self.done.wait(PERIOD_S):
            pids = tree(self.pid)
            self.seconds.update(filter(None, map(cpu_seconds, pids)))
            self.peak_kib = max(self.peak_kib, sum(map(private_kib, pids)))


def reaped():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(kind, name, command):
    load, before, start = os.getloadavg()[0], reaped(), time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    watch = Watch(process.pid)
    watch.start()
    try:
        out, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, errors = process.communicate()
    wall = time.perf_counter() - start
    watch.done.set()
    watch.join()
    found = [line for line in out.splitlines() if line.startswith("{") and "samples_per_s" in line]
    ok = bool(found)
    return {
        "kind": kind,
        "name": name,
        "wall_s": round(wall, 3),
        "cpu_s": round(max(reaped() - before, sum(watch.seconds.values())), 3),
        "private_mib": watch.peak_kib >> 10,
        "load": round(load, 2),
        "figures": json.loads(found[-1]) if ok else None,
        "error": None if ok else (errors or out).strip()[-400:],
    }


def main():
    out, rounds = sys.argv[1], int(sys.argv[2])
    plan = [line.split(maxsplit=2) for line in sys.stdin if line.strip()]
    broken = set()
    for number in range(rounds):
        for kind, name, command in plan:
            if (kind, name) in broken:
                continue
            result = {"round": number, **run(kind, name, shlex.split(command))}
            with open(out, "a") as lines:
                lines.write(json.dumps(result) + "\n")
            figures = result["figures"]
            if figures is None:
                broken.add((kind, name))
                print(f"{kind} {name}: failed: {result['error'].splitlines()[-1:]}", flush=True)
            else:
                print(f"{kind} {name}: {figures['samples_per_s']:,.0f}/s, {result['cpu_s']} CPU s, load {result['load']}", flush=True)


if __name__ == "__main__":
    main()
