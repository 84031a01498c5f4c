#!/usr/bin/env bash
# Builds the server with the kernels of llama.cpp for every generation of CPUs, which image-root.sh assembles.
#
#   build-portable.sh [TARGET]
#
# TARGET is cargo's target folder (target). The binary lies in TARGET/release.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-target}
# The build script of llama.cpp's crate links lib*.so into the folder of the binary, but not the files that these links name, and
# panics over such a link when it runs again, after an upgrade for instance.
if [ -d "$target/release" ]; then find "$target/release" -maxdepth 2 -name 'lib*.so' -xtype l -delete; fi
# The kernels are chosen at the start; the rest must not use more than every CPU has.
read -ra cargo <<<"${CARGO:-cargo}"
RUSTFLAGS="" "${cargo[@]}" build --release --locked --no-default-features --features openmp,portable --target-dir "$target"
