#!/usr/bin/env bash
# Shows on a machine with an NVIDIA GPU what the trainer does there: every layer, model and recomputed block beside the
# processor (losses, gradients), then our training beside PyTorch's with torch.compile, in f32 and bf16, in turn.
# Prints tables. Ends with 0 when all is well, 1 when something is not, 2 with "no GPU" where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."

nvidia-smi >/dev/null || { echo "no GPU: nvidia-smi says so"; exit 2; }
log=$(mktemp)
cargo test --locked --release -p feedline-trainer --features cuda --lib gpu -- --nocapture 2>&1 | tee "$log" || exit 1
# What could not be compared is no success.
if grep -q "not compared with a GPU" "$log"; then exit 1; fi
for precision in f32 bf16; do
  echo "== $precision"
  DEVICE=cuda PRECISION=$precision THREADS=${THREADS:-2} bench/trainer/run.sh
done
