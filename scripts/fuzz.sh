#!/usr/bin/env bash
# Runs every fuzz target in turn, for SECONDS altogether (default 600). What it finds is in fuzz/target/found, inputs that fail
# in fuzz/artifacts. Needs cargo-fuzz (`cargo install cargo-fuzz`); the stable toolchain will do.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz" >&2; exit 1; }

targets=$(cargo fuzz list)
each=$((seconds / $(wc -w <<<"$targets")))
for target in $targets; do
  found=fuzz/target/found/$target
  mkdir -p "$found"
  # Sanitizers need a nightly compiler. Panics, overflows and slow inputs are found without them.
  cargo fuzz run --sanitizer none "$target" "$found" "fuzz/corpus/$target" -- \
    -max_total_time="$each" -timeout=30 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1
done
