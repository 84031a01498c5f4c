#!/usr/bin/env bash
# Builds the server with llama.cpp's kernels for every generation of CPUs. image-root.sh then assembles the result.
#
#   build-portable.sh [TARGET [FEATURES]]
#
# TARGET is cargo's target folder (default: target). The binary is written to TARGET/release. FEATURES are added to
# `portable`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-target}
# The build script of llama.cpp's crate creates links lib*.so in the binary's folder. When it runs again, for example
# after an upgrade, it panics if one of these links points to a file that no longer exists.
if [ -d "$target/release" ]; then find "$target/release" -maxdepth 2 -name 'lib*.so' -xtype l -delete; fi
# The server chooses its kernels when it starts; the rest of the code must run on every CPU.
read -ra cargo <<<"${CARGO:-cargo}"
RUSTFLAGS="" "${cargo[@]}" build --release --locked --no-default-features --features "portable${2:+,$2}" --target-dir "$target"
