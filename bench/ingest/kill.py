"""Kills a command when so many pages were served, starts it again, and counts.

usage: kill.py WHO URL PAGES FOLDER RECORDS -- COMMAND...
"""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import landed


def count(url):
    with urllib.request.urlopen(f"{url}/count") as answer:
        return json.load(answer)


def main(who, url, pages, folder, records, command):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, start_new_session=True, **quiet)
    while count(url)["served"] < pages and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    served = count(url)["served"]
    code = subprocess.run(command, **quiet).returncode
    print(json.dumps({"killed_at_page": served, "fetched_twice": count(url)["twice"], "code": code}), end=" ", flush=True)
    landed.main(who, folder, records)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[7:])
