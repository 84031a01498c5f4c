#!/usr/bin/env bash
# Packs what a machine with a GPU needs to run rerankd and its benchmarks without cargo, Rust or a network. Writes a
# folder, and a compressed archive of that folder next to it.
#
#   pack-gpu.sh BUILD CUDA OUT
#
# BUILD is the folder of a portable build with its benchmarks:
#   RUSTFLAGS= cargo build --release --locked --features portable --target-dir target/portable --bin rerankd --bench gpu --bench scoring
# (then BUILD is target/portable/release). CUDA is libggml-cuda.so (build-cuda-backend.sh). OUT is created; run-gpu.sh
# in it runs the benchmarks. It needs the CUDA runtime and, for models with random weights, the Python packages gguf and
# numpy.
#
#   ONNXRUNTIME   libonnxruntime.so to include, for the models other than the generator
#   BENCHES       benchmarks to include; gpu and scoring, which run-gpu.sh runs, by default
set -euo pipefail

if [ $# -ne 3 ]; then
  echo "usage: pack-gpu.sh BUILD CUDA OUT" >&2
  exit 2
fi
build=$(realpath -m "$1") cuda=$(realpath -m "$2") out=$(realpath -m "$3")
cd "$(dirname "$0")/.."
fail() { echo "pack-gpu: $1" >&2; exit 1; }
[ -f "$cuda" ] || fail "$cuda: no such file"
[ ! -e "$out" ] || fail "$out: exists"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
scripts/image-root.sh --app-only "$build" "$scratch/root"
# Assembled in a temporary folder, so that a failure leaves no incomplete OUT behind.
packed=$scratch/root/usr/lib/rerankd
for bench in ${BENCHES:-gpu scoring}; do
  # Takes the newest of several builds. A benchmark's file name contains a hash; cargo's dependency files end in .d.
  found=$(find "$build/deps" -maxdepth 1 -type f -perm -u+x -name "$bench-*" ! -name '*.d' -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d' ' -f2-)
  [ -n "$found" ] || fail "$build/deps: no benchmark $bench"
  install -m 755 "$found" "$packed/bench-$bench"
  # Unlike the binary, a benchmark has no path to the libraries in its folder: run-gpu.sh sets it.
  strip --strip-unneeded "$packed/bench-$bench"
done
install -m 755 "$cuda" "$packed/libggml-cuda.so"
install -m 755 scripts/run-gpu.sh scripts/random-gguf.py "$packed/"
mv "$packed" "$out"
tar --sort=name --owner=0 --group=0 -C "$(dirname "$out")" -cf - "$(basename "$out")" | xz -T1 -9 > "$out.tar.xz"
echo "$out.tar.xz: $(($(stat -c %s "$out.tar.xz") / 1000000)) MB" >&2
