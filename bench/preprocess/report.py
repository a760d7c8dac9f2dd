"""Prints runs as a table of medians. usage: report.py RESULTS..."""
import json
import statistics
import sys

PEERS = ("polars", "polars-streaming", "duckdb", "pandas")


def main(names):
    runs = {}
    for name in names:
        with open(name) as file:
            for line in file:
                run = json.loads(line)
                run["cpu_s"] = run["cpu_s_per_million"] * run["records_per_s"] * run["wall_s"] / 1e6
                runs.setdefault(run["who"], []).append(run)
    medians = {who: {key: statistics.median(run[key] for run in found) for key in ("wall_s", "cpu_s", "peak_mib")} for who, found in runs.items()}
    print("| | runs | wall s (range) | CPU s | peak MiB |")
    print("|---|---:|---:|---:|---:|")
    for who, median in medians.items():
        walls = [run["wall_s"] for run in runs[who]]
        print(f"| {who} | {len(walls)} | {median['wall_s']:.1f} ({min(walls):.1f} to {max(walls):.1f}) | {median['cpu_s']:.1f} | {median['peak_mib']:.0f} |")
    peers = [medians[who] for who in PEERS if who in medians]
    for who in ("feedline", "feedline-shards", "feedline-files"):
        if who in medians and peers:
            ours = medians[who]
            times = [min(peer[key] for peer in peers) / ours[key] for key in ("wall_s", "cpu_s", "peak_mib")]
            print(f"- {who}: {times[0]:.2f} times the fastest in wall time (bar 3), {times[1]:.2f} in CPU time (bar 3), 1/{times[2]:.2f} of the least memory (bar 1/2)")
            if "floor" in medians:
                print(f"- reading Parquet alone is {medians['floor']['cpu_s'] / ours['cpu_s']:.0%} of its CPU time")


if __name__ == "__main__":
    main(sys.argv[1:])
