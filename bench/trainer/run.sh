#!/usr/bin/env bash
# Our training beside PyTorch's in one run: the same models, batches, data and threads, in turn: A B A B ...
#
#   bench/trainer/run.sh [mlp] [cnn] [transformer] [lstm]      all by default
#
# ROUNDS        rounds, default 3
# STEPS         steps of a run; 20 of them are not timed, default 200
# THREADS       threads to measure with, default "1 2"; each run is pinned to as many processors
# BENCH_DATA    folder of data and results (about 300 MB, made by the first run), default /tmp/feedline-bench-trainer
# BENCH_PYTHON  a Python with bench/trainer/requirements.txt; made in $BENCH_DATA/venv if not given
# DEVICE        cpu (default) or cuda, for both; with cuda our program is built with the feature of that name, PyTorch compiles its
#               models, and the use of the GPU is sampled
# PRECISION     f32 (default) or bf16, for both
#
# Prints a table, and keeps every run as a line of JSON in $BENCH_DATA/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
export BENCH_DATA=${BENCH_DATA:-/tmp/feedline-bench-trainer} PYTHONDONTWRITEBYTECODE=1
cases=${*:-mlp cnn transformer lstm}
rounds=${ROUNDS:-3} steps=${STEPS:-200} device=${DEVICE:-cpu} precision=${PRECISION:-f32}
torch=(--device "$device" --precision "$precision")
features=()
if [ "$device" = cuda ]; then
  nvidia-smi >/dev/null || { echo "no GPU: nvidia-smi says so" >&2; exit 2; }
  torch+=(--compile)
  features=(--features cuda)
fi
mkdir -p "$BENCH_DATA/results"

python=${BENCH_PYTHON:-$BENCH_DATA/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$BENCH_DATA/venv"
  "$BENCH_DATA/venv/bin/pip" install -q -r bench/trainer/requirements.txt
fi
cargo bench --locked -q -p feedline-trainer "${features[@]}" --bench steps --no-run
program=$(cargo bench --locked -q -p feedline-trainer "${features[@]}" --bench steps --no-run --message-format json |
  "$python" -c 'import json,sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])')
processors=$(taskset -pc $$ | sed 's/.*: //' |
  "$python" -c 'import sys; print(*(i for a in input().split(",") for b in [a.split("-")] for i in range(int(b[0]), int(b[-1]) + 1)))')

out=$BENCH_DATA/results/$(date -u +%Y%m%dT%H%M%SZ)-$device-$precision.jsonl
# CASE WHO THREADS COMMAND...: runs it and keeps its last line.
measure() {
  local case=$1 who=$2 threads=$3 pinned load figures sampler
  shift 3
  pinned=$(echo "$processors" | cut -d' ' -f"1-$threads" | tr ' ' ,)
  load=$(cut -d' ' -f1 /proc/loadavg)
  if [ "$device" = cuda ]; then
    nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits -i 0 -lms 100 >"$BENCH_DATA/gpu" &
    sampler=$!
  fi
  figures=$(OMP_NUM_THREADS=$threads taskset -c "$pinned" "$@" | tail -n 1)
  if [ "$device" = cuda ]; then
    kill "$sampler"
    wait "$sampler" || true
    # The mean over the second half of the samples, when steps are taken; the most memory of all.
    figures=$("$python" bench/trainer/gpu_samples.py "$BENCH_DATA/gpu" "$figures")
  fi
  echo "{\"case\":\"$case\",\"who\":\"$who\",\"threads\":$threads,\"load\":$load,\"figures\":$figures}" >>"$out"
}

for case in $cases; do
  data=$BENCH_DATA/$case
  if [ ! -e "$data/y.bin" ]; then
    mkdir -p "$data"
    "$program" data "$case" "$data"
  fi
  batch=$("$python" -c "import sys; sys.path.insert(0, 'bench/trainer'); import peer_torch; print(peer_torch.BATCH['$case'])")
  for round in $(seq "$rounds"); do
    for threads in ${THREADS:-1 2}; do
      measure "$case" feedline "$threads" "$program" run "$case" feedline "$steps" "$batch" "$data" "$device" "$precision"
      measure "$case" torch "$threads" "$python" bench/trainer/peer_torch.py "$case" "$data" "$steps" --threads "$threads" "${torch[@]}"
      case $device-$precision-$case in cpu-f32-mlp | cpu-f32-cnn) measure "$case" bare "$threads" "$program" run "$case" bare "$steps" "$batch" "$data" ;; esac
    done
    echo "$case: round $round of $rounds" >&2
  done
done
"$python" bench/trainer/report.py "$out"
