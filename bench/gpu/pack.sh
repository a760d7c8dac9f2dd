#!/usr/bin/env bash
# Builds what measure.py runs and packs it, stripped and compressed, for a machine with a GPU and without a toolchain.
#
#   bench/gpu/pack.sh FOLDER      writes FOLDER/feedline-gpu.tar.zst and says how large it is
#
# There: tar --zstd -xf feedline-gpu.tar.zst && python3 feedline-gpu/measure.py
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: bench/gpu/pack.sh FOLDER}
features=(--features cuda,wgpu)

# The programs of a build: "NAME EXECUTABLE" for each.
executables() {
  python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["target"]["name"] in sys.argv[1:]:
        print(message["executable"])' "$@" | tail -n 1
}

cargo build --locked --release -q "${features[@]}" -p feedline
steps=$(cargo bench --locked -q -p feedline-trainer "${features[@]}" --bench steps --no-run --message-format json | executables steps)
tests=$(cargo test --locked --release -q -p feedline-trainer "${features[@]}" --lib --no-run --message-format json |
  executables feedline_trainer)

pack=$folder/feedline-gpu
rm -rf "$pack"
mkdir -p "$pack"
cp "${CARGO_TARGET_DIR:-target}/release/feedline" "$pack/feedline"
cp "$steps" "$pack/steps"
cp "$tests" "$pack/trainer_tests"
strip "$pack/feedline" "$pack/steps" "$pack/trainer_tests"
cp bench/gpu/measure.py bench/gpu/probe_copies.py bench/trainer/peer_torch.py examples/quickstart.toml "$pack/"
tar --zstd -C "$folder" -cf "$folder/feedline-gpu.tar.zst" feedline-gpu
du -h "$folder/feedline-gpu.tar.zst"
