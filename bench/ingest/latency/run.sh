#!/usr/bin/env bash
# Ingest of an API and a site whose responses take 100 ms, beside a script on httpx, dlt and Scrapy, in turn: A B C A B C ...
#
#   bench/ingest/latency/run.sh PROGRAM       a feedline, such as target/release/feedline
#
# ROUNDS        rounds, default 3; all of it takes about 13 minutes a round
# CASES         cases of cases.py, default all
# CONNECTIONS   most requests at a time (`limits.concurrency`), default "1 8"
# LATENCY_MS    time of a response, default 100
# LIMITS        no: pipelines do not set `limits.concurrency`, for a program that refuses the key
# BENCH_DATA    folder of outputs and results, default /tmp/feedline-bench-ingest
# BENCH_PYTHON  a Python with bench/ingest/requirements.txt; made in $BENCH_DATA/venv if not given
#
# The floor of a case is the number of requests that it needs, over the connections, times the time of a response; or the
# longest chain of requests that each need the response before, if that takes longer. The share is floor over measured.
# Requests, connections and rows are feedline's; those of the other tools are in $BENCH_DATA/latency-*.jsonl. Ends with 1
# if a tool failed or did not land every record once.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/../../.."
here=bench/ingest/latency data=${BENCH_DATA:-/tmp/feedline-bench-ingest} port=${PORT:-8740}
mkdir -p "$data"
export PYTHONDONTWRITEBYTECODE=1
python=${BENCH_PYTHON:-$data/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$data/venv"
  "$data/venv/bin/pip" install -q -r bench/ingest/requirements.txt
fi
server=
trap '[ -z "$server" ] || kill "$server"; rm -f "$data/ready.$$"' EXIT
mkfifo "$data/ready.$$"
"$python" "$here/server.py" "$port" --latency-ms "${LATENCY_MS:-100}" >"$data/ready.$$" &
server=$!
grep -q -m 1 ready <"$data/ready.$$"
"$python" "$here/bench.py" "$program" "$port" "$data"
