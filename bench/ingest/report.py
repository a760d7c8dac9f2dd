"""Prints runs as a table of medians. usage: report.py RESULTS..."""
import json
import statistics
import sys

KEYS = ["records_per_s", "cpu_s_per_million", "peak_mib"]


def main(names):
    runs = {}
    for name in names:
        with open(name) as file:
            for line in file:
                run = json.loads(line)
                runs.setdefault(run["who"], []).append(run)
    medians = {who: [statistics.median(run[key] for run in found) for key in KEYS] for who, found in runs.items()}
    print("| | runs | records/s (range) | CPU s per million records | peak MiB |")
    print("|---|---:|---:|---:|---:|")
    for who, (rate, cpu, peak) in medians.items():
        rates = [run["records_per_s"] for run in runs[who]]
        print(f"| {who} | {len(rates)} | {rate:,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) | {cpu:.2f} | {peak:.0f} |")
    ours = medians.get("feedline")
    for who, bar in (("dlt", 40), ("scrapy", 40), ("httpx", 8)):
        if ours and who in medians:
            rate, cpu = ours[0] / medians[who][0], medians[who][1] / ours[1]
            print(f"- {rate:.1f} times the records/s of {who} (bar {bar}), {cpu:.1f} times fewer processor seconds")


if __name__ == "__main__":
    main(sys.argv[1:])
