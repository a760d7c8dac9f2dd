#!/usr/bin/env bash
# Ingest of a JSON API beside dlt, Scrapy, a script on httpx and a bare loop that throws bodies away, in turn: A B A B ...
#
#   bench/ingest/run.sh [feedline] [httpx] [dlt] [scrapy] [floor]      all by default
#
# ROUNDS        rounds, default 3
# PAGES         pages of each of the five streams, default 1000: a million records
# PEER_PAGES    the same for dlt and Scrapy, which are slower, default 200
# FAULTS        of 1,000 pages so many are refused when first asked for, by 503 or by 429 with `Retry-After: 1`; default 0, with
#               KILL 10. Waiting as a server wishes is the same for all, so with faults the streams' waits are most of what is measured
# BENCH_DATA    folder of outputs and results, default /tmp/feedline-bench-ingest
# BENCH_PYTHON  a Python with bench/ingest/requirements.txt; made in $BENCH_DATA/venv if not given
# BENCH_PROGRAM a feedline to measure; built from this checkout if not given; BENCH_FLOOR the same for the bare loop
#
# Each run is checked: every record once. Prints a table, and keeps every run as a line of JSON in $BENCH_DATA/results. With
# KILL=1 each program but the floor is killed by SIGKILL at half of the pages and started again, and what it lost, doubled
# and fetched twice is printed instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=bench/ingest data=${BENCH_DATA:-/tmp/feedline-bench-ingest} pages=${PAGES:-1000} port=${PORT:-8733}
who=${*:-feedline httpx dlt scrapy floor}
mkdir -p "$data/results"
export PYTHONDONTWRITEBYTECODE=1
python=${BENCH_PYTHON:-$data/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$data/venv"
  "$data/venv/bin/pip" install -q -r "$here/requirements.txt"
fi
program=${BENCH_PROGRAM:-}
if [ -z "$program" ]; then
  cargo build --locked -q --release
  program=$(cargo build --locked -q --release --message-format json |
    "$python" -c 'import json,sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])')
fi
floor=${BENCH_FLOOR:-}
if [ -z "$floor" ] && [[ $who == *floor* ]]; then
  floor=$(cargo bench --locked -q -p feedline-ingest --bench floor --no-run --message-format json |
    "$python" -c 'import json,sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])')
fi

server=
trap '[ -z "$server" ] || kill "$server"' EXIT
# PAGES: the server with so many pages a stream.
serve() {
  [ -z "$server" ] || { kill "$server"; wait "$server" || true; }
  mkfifo "$data/ready.$$"
  "$python" "$here/server.py" "$port" "$1" "$faults" >"$data/ready.$$" &
  server=$!
  grep -q -m 1 ready <"$data/ready.$$"
  rm "$data/ready.$$"
}
url=http://127.0.0.1:$port
if [ -n "${KILL:-}" ]; then faults=${FAULTS:-10}; else faults=${FAULTS:-0}; fi

# WHO FOLDER: its command, as words in the array `command`.
command_of() {
  case $1 in
  feedline)
    {
      printf '[pipeline]\nname = "bench"\nroot = "%s"\n' "$2"
      for stream in 0 1 2 3 4; do
        printf '[[source]]\nname = "stream%s"\ntype = "rest"\nurl = "%s/stream/%s"\nrecords = "items"\n' $stream "$url" $stream
        printf 'pagination = { type = "cursor", cursor_param = "after", cursor_path = "next" }\n'
      done
    } >"$2/bench.toml"
    command=("$program" ingest "$2/bench.toml")
    ;;
  floor) command=("$floor" --bench "$url" 5) ;;
  *) command=("$python" "$here/peers.py" "$1" "$url" "$2") ;;
  esac
}

out=$data/results/$(date -u +%Y%m%dT%H%M%SZ).jsonl
for round in $(seq "${ROUNDS:-3}"); do
  for name in $who; do
    count=$pages
    case $name in dlt | scrapy) count=${PEER_PAGES:-200} ;; esac
    records=$((count * 5 * 200)) folder=$data/$name
    rm -rf "$folder"
    mkdir -p "$folder"
    serve "$count"
    command_of "$name" "$folder"
    if [ -n "${KILL:-}" ]; then
      [ "$name" = floor ] || "$python" "$here/kill.py" "$name" "$url" "$((count * 5 / 2))" "$folder" "$records" -- "${command[@]}"
      continue
    fi
    "$python" "$here/measure.py" "$name" "$records" -- "${command[@]}" | tee -a "$out"
    [ "$name" = floor ] || "$python" "$here/landed.py" "$name" "$folder" "$records"
  done
  echo "round $round done" >&2
done
[ -n "${KILL:-}" ] || "$python" "$here/report.py" "$out"
