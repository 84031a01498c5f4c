#!/usr/bin/env bash
# Runs every fuzz target in turn, for SECONDS in total (default 600), on one core. Inputs that reach new code are
# written to fuzz/target/found, inputs that fail to fuzz/artifacts. If a target fails, the others still run, and the
# last line names the failed ones. Needs cargo-fuzz; the stable toolchain is enough.
# With --keep instead of SECONDS: copies into fuzz/corpus the found inputs that reach the most code not reached there
# yet (fuzz-keep.py).
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "fuzz: $1" >&2; exit 1; }
argument=${1:-600}
[[ $argument == --keep || $argument =~ ^[1-9][0-9]*$ ]] || die "not a number of seconds: $argument"
command -v cargo-fuzz >/dev/null || die "cargo-fuzz is missing: cargo install cargo-fuzz --locked"
read -ra targets <<<"$(cargo fuzz list | tr '\n' ' ')"
[ "$argument" = --keep ] || [ "$argument" -ge ${#targets[@]} ] || die "at least ${#targets[@]} seconds are needed: one for each target"

./scripts/setup.sh
# Sanitizers need a nightly compiler. Panics, overflows and slow inputs are found without them.
run() { cargo fuzz run --sanitizer none "$@"; }
cargo fuzz build --sanitizer none

# libFuzzer writes and synchronises thousands of input files per second, so they are stored in memory if possible.
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d -p "$memory")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

if [ "$argument" = --keep ]; then
  for target in "${targets[@]}"; do
    found=fuzz/target/found/$target
    [ -d "$found" ] || die "nothing found yet: make fuzz"
    # A merge copies inputs into its first folder. Without counters it records which code is reached, not how often.
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
