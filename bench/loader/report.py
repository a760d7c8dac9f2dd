#!/usr/bin/env python3
"""Medians of a measurement as Markdown tables. usage: report.py RESULTS.jsonl"""

import json
import statistics
import sys

TITLES = {
    "rows": "Rows: 1,000,000 of 32 float32 and a target, 16 shards, batches of 4096, one shuffled epoch",
    "floor": "Floors of rows: copying in random order from memory, and reading nothing else",
    "images-u8": "Images: 1,500 JPEGs, random resized crop 224, u8, batches of 64, second epoch",
    "images-f32": "Images: the same, normalised float32 [3, 224, 224]",
    "one-thread": "One thread that decodes the same JPEGs whole, nothing else",
}
GLOBAL = ("torch-items", "torch-batches", "hf-map")


def main():
    runs = {}
    with open(sys.argv[1]) as lines:
        for line in lines:
            run = json.loads(line)
            runs.setdefault(run["kind"], {}).setdefault(run["name"], []).append(run)
    loads = [run["load"] for kind in runs.values() for name in kind.values() for run in name]
    print(f"Load average before runs: median {statistics.median(loads):.1f}, most {max(loads):.1f}.\n")
    for kind, title in TITLES.items():
        if kind in runs:
            print(f"### {title}\n")
            table(runs[kind])
    ratios(runs)


def table(names):
    head = "loader", "samples/s", "spread", "after first batch", "first batch ms", "CPU s", "private MiB", "runs"
    more = ("once each", "blocks per batch", "shuffle") if any(figure(r, "blocks_per_batch") for r in names.values()) else ()
    print("|", " | ".join(head + more), "|")
    print("|---|" + "---:|" * (len(head) - 1) + ("---:|---:|---|" if more else ""))
    for name, runs in sorted(names.items(), key=lambda item: -(median(item[1], "samples_per_s") or 0)):
        good = [run for run in runs if run["figures"]]
        if not good:
            print(f"| {name} | failed: {one_line(runs[-1]['error'])} |" + " |" * (len(head) + len(more) - 2))
            continue
        rates = [run["figures"]["samples_per_s"] for run in good]
        capped = ", capped" if figure(good, "capped") else ""
        cells = [
            name,
            number(statistics.median(rates)),
            f"{number(min(rates))} to {number(max(rates))}",
            number(median(good, "steady_per_s")),
            number(median(good, "first_batch_ms")),
            number(statistics.median(run["cpu_s"] for run in good)),
            number(statistics.median(run["private_mib"] for run in good)),
            f"{len(good)}{capped}",
        ]
        if more:
            once = figure(good, "exactly_once")
            cells += ["" if once is None else "yes" if once else "no"]
            cells += [str(figure(good, "blocks_per_batch") or ""), figure(good, "shuffle") or ""]
        print("|", " | ".join(cells), "|")
    print()


def ratios(runs):
    """The bars of the comparison. Rates after the first batch; in brackets with the start of the loader."""
    rows = runs.get("rows", {})
    print("### Ratios\n")
    gathers = {n: median(r, "samples_per_s") for n, r in runs.get("floor", {}).items()}
    peers = [n for n in GLOBAL if median(rows.get(n, []), "steady_per_s")]
    best = max(peers, key=lambda n: median(rows[n], "steady_per_s"), default=None)

    def against(name, other):
        steady, whole = (median(rows[name], key) / median(rows[other], key) for key in ("steady_per_s", "samples_per_s"))
        return f"{steady:.1f} x [{whole:.1f} x] {other}"

    for name in (n for n in rows if n.startswith("feedline")):
        ours = median(rows[name], "steady_per_s")
        if not ours:
            continue
        said = [f"{against(name, best)}, the fastest loader that shuffles globally (bar 10)"] if best else []
        if median(rows.get("numpy-memmap", []), "steady_per_s"):
            said.append(f"{against(name, 'numpy-memmap')} (bar 2)")
        said += [f"{ours / rate:.0%} of {n} (bar 70 % of two threads)" for n, rate in gathers.items() if rate]
        print(f"- rows, {name}: " + "; ".join(said))
    one = median(runs.get("one-thread", {}).get("one-thread", []), "samples_per_s")
    for kind in ("images-u8", "images-f32"):
        names = {n: median(r, "samples_per_s") for n, r in runs.get(kind, {}).items()}
        peers = [(v, n) for n, v in names.items() if v and not n.startswith("feedline")]
        for name, ours in names.items():
            if not ours or not name.startswith("feedline"):
                continue
            said = [f"{ours / max(peers)[0]:.2f} x {max(peers)[1]}, the fastest peer (bar 1.3)"] if peers else []
            if one:
                said.append(f"{ours / (2 * one):.0%} of two cores that decode whole images (bar 90 %)")
            print(f"- {kind}, {name}: " + "; ".join(said))


def figure(runs, key):
    found = [run["figures"].get(key) for run in runs if run["figures"]]
    return found[-1] if found else None


def median(runs, key):
    found = [run["figures"][key] for run in runs if run["figures"] and run["figures"].get(key) is not None]
    return statistics.median(found) if found else None


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def one_line(text):
    return text.replace("\n", " ").replace("|", "/")[-100:]


if __name__ == "__main__":
    main()
