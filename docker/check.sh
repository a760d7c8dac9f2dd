#!/usr/bin/env bash
# Runs the steps of an image where there is no container engine: in folders made by debootstrap, as root.
#
#     docker/check.sh [FOLDER] [IMAGE]          default /var/tmp/feedline-image and docker/Dockerfile
#
# Debian's images are stood in for by debootstrap, the download of rustup by this machine's toolchain (mounted); every
# other RUN and COPY line is executed as it is written. At the end the image's program runs the quickstart as uid 65532
# with a read-only root and one writable folder.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-/var/tmp/feedline-image}
dockerfile=${2:-docker/Dockerfile}
stages=$(grep -c '^FROM' "$dockerfile")
build=$folder/build
image=$folder/image
cache=${FEEDLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/feedline}
target=${CARGO_TARGET_DIR:-$cache/target}
rustup=${RUSTUP_HOME:-$HOME/.rustup}
cargo=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$folder" "$target"

mounted=()
cleanup() {
  for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount "${mounted[i]}"; done
}
trap cleanup EXIT
bind() { # from, to, options
  mkdir -p "$2"
  mount --bind "$1" "$2"
  mounted+=("$2")
  if [ -n "${3:-}" ]; then mount -o "remount,bind,$3" "$2"; fi
}

# RUN lines of stage number $1 (from 1), continuation lines joined.
runs() {
  awk -v stage="$1" '
    /^FROM/ { n++ }
    n == stage && /^RUN/ { sub(/^RUN /, ""); line = ""; on = 1 }
    on { text = $0; more = sub(/\\$/, "", text); line = line text; if (!more) { print line; on = 0 } }
  ' "$dockerfile"
}

make_root() {
  [ -e "$1/etc/debian_version" ] || debootstrap --variant=minbase bookworm "$1"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  # Whom this machine trusts, such as a proxy of its own.
  cp /etc/ssl/certs/ca-certificates.crt "$1/etc/trusted.crt"
}

# Runs the steps of stage number $1 in root $2.
run_stage() {
  runs "$1" | while IFS= read -r line; do
    echo "RUN $line"
    chroot "$2" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
      PIP_CERT=/etc/trusted.crt sh -ec "$line" </dev/null
  done
}

make_root "$build"
make_root "$image"

echo "== build stage"
mount -t proc proc "$build/proc" && mounted+=("$build/proc")
bind "$rustup" "$build/root/.rustup"
bind "$cargo" "$build/root/.cargo"
bind "$target" "$build/src/target"
git archive HEAD | tar -x -C "$build/src"
runs 1 | while IFS= read -r line; do
  case $line in
    *rustup.rs*) echo "stood in for by the mounted toolchain: $line" ;;
    *) echo "RUN $line"; chroot "$build" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -ec "cd /src && $line" </dev/null ;;
  esac
done

outs=("$build/out/.")
for ((stage = 2; stage < stages; stage++)); do
  echo "== stage $stage"
  root=$folder/stage-$stage
  make_root "$root"
  rm -rf "$root/out"
  run_stage "$stage" "$root"
  outs+=("$root/out/.")
done

echo "== image"
run_stage "$stages" "$image"
for out in "${outs[@]}"; do cp -a "$out" "$image/"; done

echo "== the program, as uid 65532 on a read-only root"
data=$folder/data
rm -rf "$data" && mkdir -p "$data" && chown 65532:65532 "$data"
bind "$image" "$folder/root" ro
mount -t tmpfs tmpfs "$folder/root/tmp" && mounted+=("$folder/root/tmp")
chmod 1777 "$folder/root/tmp"
bind "$data" "$folder/root/data/feedline-data"
code=0
chroot --userspec=65532:65532 "$folder/root" env -i sh -c \
  'cd /data && ! touch /forbidden 2>/dev/null && exec /usr/local/bin/feedline run /usr/share/feedline/examples/quickstart.toml' </dev/null || code=$?
du -h "$image/usr/local/bin/feedline"
echo "exit code $code"
[ "$code" = 0 ]
