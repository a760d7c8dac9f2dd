#!/usr/bin/env bash
# The loader and its peers in one run, on the same data, in turn: A B C A B C ...
#
#   bench/loader/run.sh [rows] [images]      both by default
#
# ROUNDS       rounds, default 3
# BENCH_DATA   folder of the data (about 2.5 GB, made by the first run), default /tmp/feedline-bench
# BENCH_PYTHON a Python with bench/loader/requirements.txt and our package; made in $BENCH_DATA/venv if not given
# BENCH_ONLY   a regular expression of the names to run
# BENCH_CAP    seconds after which a peer's epoch of rows is stopped, default 8
#
# Pinned to two cores. Prints the tables, and keeps every run as a line of JSON in $BENCH_DATA/results.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export BENCH_DATA=${BENCH_DATA:-/tmp/feedline-bench} BENCH_CAP=${BENCH_CAP:-8}
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
kinds=${*:-rows images}
mkdir -p "$BENCH_DATA/results"

python=${BENCH_PYTHON:-$BENCH_DATA/venv/bin/python}
if [ ! -x "$python" ]; then
  python3 -m venv "$BENCH_DATA/venv"
  "$BENCH_DATA/venv/bin/pip" install -q -r bench/loader/requirements.txt
  # Built from source, and needs OpenCV's headers: without it the comparison continues.
  "$BENCH_DATA/venv/bin/pip" install -q --no-deps ffcv==1.0.2 || echo "ffcv does not install here" >&2
fi
examples=$(cargo metadata --no-deps --format-version 1 | "$python" -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/release/examples
build() { cargo build --locked --release -q -p feedline-loader --example bench_epoch "$@"; }
turbo=
if build --features feedline-loader/turbojpeg; then
  turbo=$examples/bench_epoch_turbo
  cp "$examples/bench_epoch" "$turbo"
else
  echo "libjpeg-turbo does not build here, which needs cmake and nasm: the comparison continues without it" >&2
fi
build
program=$examples/bench_epoch
if ! "$python" -c 'import feedline' 2>/dev/null || [ -n "${BENCH_REBUILD:-}" ]; then
  "$python" -m pip wheel -q --no-deps -w "$BENCH_DATA/wheel" "$root/python"
  "$python" -m pip install -q --no-deps --force-reinstall "$BENCH_DATA"/wheel/feedline-*.whl
fi
"$python" bench/loader/gen.py

rows() {
  echo "floor gather-1 $program gather 1"
  echo "floor gather-2 $program gather 2"
  echo "rows feedline-rust $program rows $BENCH_DATA/rows-feedline 4096 1"
  for name in feedline-numpy feedline-torch feedline-parquet feedline-mds numpy-memmap torch-batches torch-items mosaicml-blocks mosaicml litdata hf-map hf-iterable webdataset; do
    echo "rows $name $python peer_rows.py $name"
  done
}
images() {
  echo "one-thread one-thread $python peer_images.py one-thread"
  echo "images-u8 feedline-rust-u8 $program images $BENCH_DATA/images-feedline 64 2"
  [ -z "$turbo" ] || echo "images-u8 feedline-rust-turbo-u8 $turbo images $BENCH_DATA/images-feedline 64 2"
  for name in feedline-shards-u8 feedline-tar-u8 ffcv-u8 dali-u8 spdl-u8 torchvision-u8; do
    echo "images-u8 $name $python peer_images.py $name"
  done
  for name in feedline-torch ffcv dali spdl torchvision mosaicml webdataset litdata; do
    echo "images-f32 $name $python peer_images.py $name"
  done
}

out=$BENCH_DATA/results/$(date -u +%Y%m%dT%H%M%SZ).jsonl
cores=$(taskset -pc $$ | sed 's/.*: //; s/^\([0-9]*\)-\([0-9]*\)$/\1,\2/' | cut -d, -f1,2)
cd bench/loader
for kind in $kinds; do "$kind"; done | grep -E "${BENCH_ONLY:-.}" | taskset -c "$cores" "$python" measure.py "$out" "${ROUNDS:-3}"
echo
"$python" report.py "$out" | tee "${out%.jsonl}.md"
echo "runs: $out"
