#!/usr/bin/env bash
# Runs the tests of the cache's memory maps under AddressSanitizer and under valgrind.
#
# The module is built alone, in a small crate in a temporary folder, so that not every dependency has to be instrumented.
# A check whose tool is absent is skipped with a message; with --strict that is a failure. Where miri is at hand, run it
# too: cargo +nightly miri test.
set -euo pipefail

strict=${1:-}
here=$(cd "$(dirname "$0")/../.." && pwd)
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT

# The versions are those of the workspace, as far as they are locked there.
version() { awk -v n="$1" '$0 == "name = \"" n "\"" { getline; gsub(/[^0-9.]/, ""); print; exit }' "$here/Cargo.lock"; }
cat > "$crate/Cargo.toml" <<TOML
[package]
name = "map-tests"
version = "0.0.0"
edition = "2024"

[dependencies]
bytes = "=$(version bytes)"
memmap2 = "=$(version memmap2)"
feedline_storage = { path = "storage" }

[dev-dependencies]
tempfile = "=$(version tempfile)"

[workspace]
TOML
# Of the storage crate only the one module that the maps use: it depends on nothing else.
mkdir -p "$crate/src" "$crate/storage/src"
cat > "$crate/storage/Cargo.toml" <<TOML
[package]
name = "feedline_storage"
version = "0.0.0"
edition = "2024"

[dependencies]
thiserror = "=$(version thiserror)"
TOML
cat > "$crate/storage/src/lib.rs" <<RUST
#[path = "$here/storage/src/private.rs"]
pub mod private;
RUST
cat > "$crate/src/lib.rs" <<RUST
#![allow(dead_code)]
#[path = "$here/loader/src/cache/disk/map.rs"]
mod map;
RUST

host=$(rustc -vV | sed -n 's/^host: //p')
cd "$crate"
export CARGO_TARGET_DIR=$crate/target

skipped() {
  echo "skipped: $1"
  [ "$strict" != --strict ] || exit 1
}

echo "== AddressSanitizer"
if compgen -G "$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc*_rt.asan*" > /dev/null; then
  RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=1 \
    cargo test --quiet --target "$host"
else
  skipped "this toolchain comes without the runtime of AddressSanitizer"
fi

echo "== valgrind"
if command -v valgrind > /dev/null; then
  binary=$(cargo test --quiet --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
  valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite "$binary" --test-threads=1
else
  skipped "valgrind is not installed"
fi
