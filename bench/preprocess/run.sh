#!/usr/bin/env bash
# A table from Parquet files to shards beside polars, DuckDB, and pandas with scikit-learn, in turn: A B A B ...
#
#   bench/preprocess/run.sh [feedline] [feedline-shards] [feedline-files] [polars] [polars-streaming] [duckdb] [pandas] [floor]   all by default
#
# ROWS          rows, default 4000000
# ROUNDS        rounds, default 3
# BENCH_DATA    folder of inputs, outputs and results, default /tmp/feedline-bench-preprocess
# BENCH_PYTHON  a Python with bench/preprocess/requirements.txt; made in $BENCH_DATA/venv if not given
# BENCH_PROGRAM a feedline to measure; built from this checkout if not given
#
# Equal rows are one row, the split is an expression of the id, caps at 1 and 99 %, median, mean and deviation are fitted on the
# training rows and applied to all: see peers.py. `feedline` is the whole way from files through the landing zone to shards, `feedline-shards` what
# comes behind the landing zone, `floor` decodes all columns once. Each run is checked against numpy (check.py). Prints a table, and
# keeps every run as a line of JSON in $BENCH_DATA/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=bench/preprocess data=${BENCH_DATA:-/tmp/feedline-bench-preprocess} rows=${ROWS:-4000000}
who=${*:-feedline feedline-shards feedline-files polars polars-streaming duckdb pandas floor}
mkdir -p "$data/results"
export PYTHONDONTWRITEBYTECODE=1
python=${BENCH_PYTHON:-$data/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$data/venv"
  "$data/venv/bin/pip" install -q -r "$here/requirements.txt"
fi
program=${BENCH_PROGRAM:-}
if [ -z "$program" ] && [[ $who == *feedline* ]]; then
  cargo build --locked -q --release
  program=$(cargo build --locked -q --release --message-format json |
    "$python" -c 'import json,sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])')
fi
input=$data/in-$rows
if [ ! -e "$input.done" ]; then
  "$python" "$here/gen.py" "$input" "$rows"
  touch "$input.done"
fi

# Eight tenths of the ids, a tenth, a tenth; products of these ids fit into 64 bits.
bucket="(id * 2654435761) % 4294967296 / 65536 % 10"
expression="case when $bucket < 8 then 'train' when $bucket = 8 then 'validation' else 'test' end"

# FOLDER FILES: the pipeline that writes its outputs to FOLDER; it reads a source, or with `files`
# the files in place.
pipeline() {
  local files="" source="[[source]]
name = \"rows\"
type = \"files\"
url = \"$input/*.parquet\""
  [ -z "$2" ] || source="" files="files = \"$2\""
  cat >"$1/bench.toml" <<TOML
[pipeline]
name = "bench"
root = "$1"
$source
[dataset]
$files
target = "label"
task = "classification"
drop = ["id", "ts"]
passthrough = ["id", "label"]
split = { by = "expression", expression = "$expression" }
[[dataset.step]]
type = "winsorize"
[[dataset.step]]
type = "impute"
[[dataset.step]]
type = "standardize"
TOML
}

out=$data/results/$(date -u +%Y%m%dT%H%M%SZ).jsonl
for round in $(seq "${ROUNDS:-3}"); do
  for name in $who; do
    folder=$data/$name
    rm -rf "$folder"
    mkdir -p "$folder"
    case $name in
    feedline)
      pipeline "$folder" ""
      command=("$program" run "$folder/bench.toml")
      ;;
    feedline-shards)
      pipeline "$folder" ""
      "$program" ingest "$folder/bench.toml" >/dev/null 2>&1
      command=("$program" shards build "$folder/bench.toml")
      ;;
    feedline-files)
      pipeline "$folder" "$input/*.parquet"
      command=("$program" shards build "$folder/bench.toml")
      ;;
    *) command=("$python" "$here/peers.py" "$name" "$input" "$folder") ;;
    esac
    "$python" bench/ingest/measure.py "$name" "$rows" -- "${command[@]}" | tee -a "$out"
    [ "$name" = floor ] || "$python" "$here/check.py" "$name" "$input" "$folder"
  done
  echo "round $round done" >&2
done
"$python" "$here/report.py" "$out"
