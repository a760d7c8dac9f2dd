#!/usr/bin/env bash
# Shows on a machine with an NVIDIA GPU what the device side of the loader promises; see README.md beside this file.
# Prints JSON lines. Ends with 0 when all is well, 1 when something is not, 2 with "no GPU" where there is none.
set -uo pipefail
cd "$(dirname "$0")/../.."

say() { printf '%s\n' "$1"; }

cargo build --quiet --release -p feedline-loader --features cuda --example gpu_check || exit 1
check="${CARGO_TARGET_DIR:-target}/release/examples/gpu_check"

"$check"
result=$?
[ "$result" -ne 2 ] || exit 2

# A small limit on locked memory: whatever the system makes of it, every batch arrives.
if (ulimit -l 64 2>/dev/null && "$check" --quick >/dev/null); then
    say '{"check":"small_memlock","pass":true}'
else
    say '{"check":"small_memlock","pass":false}'
    result=1
fi

if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
    for tool in memcheck racecheck initcheck synccheck; do
        if "$sanitizer" --tool "$tool" --error-exitcode 9 "$check" --quick >"/tmp/feedline-$tool.log" 2>&1; then
            say "{\"check\":\"compute_sanitizer\",\"tool\":\"$tool\",\"pass\":true}"
        else
            say "{\"check\":\"compute_sanitizer\",\"tool\":\"$tool\",\"pass\":false,\"log\":\"/tmp/feedline-$tool.log\"}"
            result=1
        fi
    done
else
    say '{"check":"compute_sanitizer","skipped":"it is not installed"}'
fi
exit "$result"
