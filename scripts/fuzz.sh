#!/usr/bin/env bash
# Runs every fuzz target in turn, for SECONDS altogether (default 600), on one core. What it finds is in fuzz/target/found, inputs
# that fail in fuzz/artifacts; the other targets run all the same, and the last line says which failed. Needs cargo-fuzz; the
# stable toolchain will do.
# With --keep instead of SECONDS: adds to fuzz/corpus what reached most code that the inputs there do not (fuzz-keep.py).
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "fuzz: $1" >&2; exit 1; }
argument=${1:-600}
[[ $argument == --keep || $argument =~ ^[1-9][0-9]*$ ]] || die "no number of seconds: $argument"
command -v cargo-fuzz >/dev/null || die "cargo-fuzz is missing: cargo install cargo-fuzz --locked"
read -ra targets <<<"$(cargo fuzz list | tr '\n' ' ')"
[ "$argument" = --keep ] || [ "$argument" -ge ${#targets[@]} ] || die "a second for each of ${#targets[@]} targets is the least"

./scripts/setup.sh
# Sanitizers need a nightly compiler. Panics, overflows and slow inputs are found without them.
run() { cargo fuzz run --sanitizer none "$@"; }
cargo fuzz build --sanitizer none

# Files of inputs are written, and synchronised, thousands of times a second: in memory where there is a folder for that.
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d -p "$memory")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

if [ "$argument" = --keep ]; then
  for target in "${targets[@]}"; do
    found=fuzz/target/found/$target
    [ -d "$found" ] || die "nothing found yet: make fuzz"
    # A merge copies into its first folder. Without counters it tells which code is reached, not how often.
    cp -r "fuzz/corpus/$target" "$TMPDIR/$target"
    run "$target" "$TMPDIR/$target" "$found" -- -merge=1 -merge_control_file="$TMPDIR/control" -use_counters=0 \
      -max_len=8192 -timeout=30
    python3 scripts/fuzz-keep.py "$TMPDIR/control" "fuzz/corpus/$target"
    rm "$TMPDIR/control"
  done
  exit
fi

failed=()
for target in "${targets[@]}"; do
  found=fuzz/target/found/$target
  mkdir -p "$found"
  run "$target" "$found" "fuzz/corpus/$target" -- -max_total_time=$((argument / ${#targets[@]})) -timeout=30 \
    -rss_limit_mb=4096 -max_len=8192 -len_control=10 -print_final_stats=1 || failed+=("$target")
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}; see fuzz/artifacts"
