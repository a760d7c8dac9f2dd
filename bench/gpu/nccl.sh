#!/usr/bin/env bash
# Trains on one GPU and on two, with sums over TCP and by NCCL; see README.md beside this file.
# Prints JSON lines. Ends with 0 when all is well, 1 when something is not, 2 with "no GPU" where there are not two.
set -uo pipefail
cd "$(dirname "$0")/../.."

gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)
if [ "$gpus" -lt 2 ]; then
    echo "no GPU: two are needed, this machine has $gpus"
    exit 2
fi
cargo build --quiet --release --features cuda || exit 1
feedline="$PWD/${CARGO_TARGET_DIR:-target}/release/feedline"
[ -z "${CARGO_TARGET_DIR:-}" ] || feedline="$CARGO_TARGET_DIR/release/feedline"
result=0
if cargo test --quiet -p feedline-trainer --features cuda --lib nccl >/tmp/feedline-nccl-tests.log 2>&1; then
    echo '{"check":"nccl_tests","pass":true}'
else
    echo '{"check":"nccl_tests","pass":false,"log":"/tmp/feedline-nccl-tests.log"}'
    result=1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `run` trains too: the runs that are measured start from a copy without that one.
"$feedline" run examples/quickstart.toml --set pipeline.root="$work/data" --set train.epochs=1 >/dev/null
[ $? -eq 0 ] || [ $? -eq 3 ] || exit 1
rm -rf "$work/data/train"

# train NAME OPTION...: a training of its own on the same dataset; its report and seconds.
train() {
    local name=$1 start=$SECONDS
    shift
    cp -r "$work/data" "$work/$name"
    "$feedline" train examples/quickstart.toml --json --set pipeline.root="$work/$name" --set train.device=cuda \
        --set train.parallel.parts=2 --set train.parallel.check_every=1 "$@" |
        tail -n 1 >"$work/$name.json" || return 1
    echo "{\"check\":\"train_$name\",\"seconds\":$((SECONDS - start))}"
}
train one || exit 1
train tcp --ranks 2 --set train.parallel.collective=tcp || exit 1
train nccl --ranks 2 --set train.parallel.collective=nccl || exit 1
train nccl_bf16 --ranks 2 --set train.parallel.collective=nccl --set train.parallel.compress=bf16 || exit 1
train nccl_shares --ranks 2 --set train.parallel.collective=nccl --set train.parallel.shard_optimizer=true || exit 1
# Comparisons of weights read them, so this run makes none.
train nccl_bus --ranks 2 --set train.parallel.collective=nccl --set train.parallel.check_every=1000000 \
    --set train.log_every=1 || exit 1
# A gradient of 34 MB in sections beside the backward pass, and all of it after that.
wide=(--ranks 2 --set train.parallel.collective=nccl --set train.parallel.check_every=1000000 --set train.log_every=1
    --set 'train.model.hidden=[2048,2048,2048]')
train nccl_sections "${wide[@]}" --set 'train.parallel.bucket_bytes="8 MiB"' || exit 1
train nccl_whole "${wide[@]}" --set train.parallel.bucket_bytes=0 || exit 1

# The same data and weights to begin with: what the test split says differs by rounding only.
python3 - "$work" <<'PYTHON' || result=1
import glob, json, statistics, sys

reports = {name: json.load(open(f"{sys.argv[1]}/{name}.json"))["test"] for name in ("one", "tcp", "nccl", "nccl_shares")}
worst = max(
    abs(reports[name][metric] - value) / max(abs(value), 1e-12)
    for metric, value in reports["one"].items()
    for name in ("tcp", "nccl", "nccl_shares")
)
passed = worst <= 1e-3
print(json.dumps({"check": "two_gpus_beside_one", "worst_relative_difference": worst, "pass": passed}))

# Steps after a checkpoint or a validation read more: the usual step counts.
[metrics] = glob.glob(f"{sys.argv[1]}/nccl_bus/train/**/metrics.jsonl", recursive=True)
lines = [json.loads(line) for line in open(metrics)]
steps = [line["bytes_from_device"] for line in lines if line["kind"] == "step"]
usual = statistics.median(steps)
few = usual <= 4096
print(json.dumps({"check": "nccl_bus", "steps": len(steps), "median_bytes_from_device": usual, "pass": few}))

# Time of a step's exchanges after the backward pass, and beside it.
medians = {}
for name in ("nccl_sections", "nccl_whole"):
    [metrics] = glob.glob(f"{sys.argv[1]}/{name}/train/**/metrics.jsonl", recursive=True)
    lines = [line for line in map(json.loads, open(metrics)) if line["kind"] == "step"]
    keys = ("communication_s", "hidden_communication_s")
    medians[name] = {key: statistics.median(line[key] for line in lines) for key in keys}
less = medians["nccl_sections"]["communication_s"] < medians["nccl_whole"]["communication_s"]
print(json.dumps({"check": "nccl_overlap", "medians": medians, "pass": less}))
sys.exit(0 if passed and few and less else 1)
PYTHON
exit "$result"
