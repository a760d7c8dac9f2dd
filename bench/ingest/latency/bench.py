"""Runs the cases by feedline and by other tools in turn, and prints a table of medians. See run.sh for its settings."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

from cases import CASES, pipeline

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))
import landed  # noqa: E402

PEERS = {"crawl": ["scrapy"], "numbered": ["httpx"], "offset": ["httpx"], "nothing": ["httpx", "dlt", "scrapy"]}


def tools(case):
    # dlt reads the pages of an endpoint without a total one after another.
    return ["feedline", *PEERS.get(case, ["httpx", "dlt"])]


def command(who, case, settings, folder, connections):
    if who == "feedline":
        file = folder / "latency.toml"
        file.write_text(pipeline(case, settings["port"], folder, connections if settings["limits"] else 0))
        return [settings["program"], "ingest", file]
    return [sys.executable, HERE / "peers.py", who, case, str(settings["port"]), folder, str(connections)]


def run(who, case, connections, settings):
    folder = settings["data"] / who
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = command(who, case, settings, folder, connections)
    reset = urllib.request.Request(f"http://127.0.0.1:{settings['port']}/reset", method="POST")
    urllib.request.urlopen(reset).close()
    began = time.perf_counter()
    ended = subprocess.run(words, capture_output=True, cwd=folder)
    seconds = time.perf_counter() - began
    if ended.returncode:
        tail = ended.stderr.decode(errors="replace")[-1500:]
        print(f"{who}, {case}: ended with {ended.returncode}: {tail}", file=sys.stderr)
    with urllib.request.urlopen(f"http://127.0.0.1:{settings['port']}/stats") as response:
        stats = json.load(response)
    found = list(landed.ids(who, folder)) if case != "nothing" and not ended.returncode else []
    rows = {"rows": len(found), "is_complete": len(found) == len(set(found)) == CASES[case].records}
    return {"who": who, "case": case, "connections": connections, "seconds": seconds, "code": ended.returncode, **stats, **rows}


HEADER = ["case", "connections", "floor s", "feedline s", "share of the floor, without start", "httpx s",
          "dlt s; crawl: Scrapy", "requests", "most in flight", "connections accepted", "rows"]


def table(runs, latency_s):
    groups = {}
    for found in runs:
        groups.setdefault((found["who"], found["case"], found["connections"]), []).append(found)
    medians = {key: statistics.median(found["seconds"] for found in group) for key, group in groups.items()}
    start = {who: seconds for (who, case, _), seconds in medians.items() if case == "nothing"}
    print(f"| {' | '.join(HEADER)} |\n|---|{'---:|' * (len(HEADER) - 1)}")
    for (who, case, connections), group in groups.items():
        if who != "feedline" or case == "nothing":
            continue

        def time_of(who):
            key = who, case, connections
            is_complete = all(found["is_complete"] for found in groups.get(key, []))
            return f"{medians[key]:.2f}" + " (incomplete)" * (not is_complete) if key in medians else ""

        floor, seconds = CASES[case].floor_s(connections, latency_s), medians[who, case, connections]
        # Of runs that differ, the one that lost rows or asked most is shown.
        worst = min(group, key=lambda found: (found["is_complete"], -found["requests"]))
        rows = f"{worst['rows']:,}" + f" of {CASES[case].records:,}" * (not worst["is_complete"])
        asked = f"{worst['requests']:,}" + f", {worst['twice']} twice" * (worst["twice"] > 0)
        shares = [f"{100 * floor / took:.0f} %" for took in (seconds, seconds - start[who])] if worst["is_complete"] else []
        times = [time_of("feedline"), ", ".join(shares), time_of("httpx"), time_of("scrapy" if case == "crawl" else "dlt")]
        cells = [case, connections, f"{floor:.1f}", *times, asked, worst["most_in_flight"], worst["accepted"], rows]
        print(f"| {' | '.join(map(str, cells))} |")
    print("\nAn empty run, s: " + ", ".join(f"{who} {seconds:.2f}" for who, seconds in start.items()))


def main(program, port, data):
    environment = os.environ.get
    settings = {"program": program, "port": int(port), "data": pathlib.Path(data)}
    settings["limits"] = environment("LIMITS") != "no"
    cases = (environment("CASES") or " ".join(CASES)).split()
    runs = []
    with open(settings["data"] / f"latency-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl", "w") as out:
        for number in range(int(environment("ROUNDS", "3"))):
            for case in dict.fromkeys(["nothing", *cases]):
                for connections in [1] if case == "nothing" else map(int, environment("CONNECTIONS", "1 8").split()):
                    for who in tools(case):
                        runs.append(run(who, case, connections, settings))
                        print(json.dumps(runs[-1]), file=out, flush=True)
                print(f"round {number + 1}, {case} done", file=sys.stderr)
    table(runs, float(environment("LATENCY_MS", "100")) / 1000)
    return int(not all(found["is_complete"] and found["code"] == 0 for found in runs))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
