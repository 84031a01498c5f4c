#!/usr/bin/env bash
# Builds llama.cpp's CUDA backend as a library that a `portable` build of rerankd loads at start.
#
#   build-cuda-backend.sh [--dry-run] SOURCE OUT
#
# SOURCE is llama.cpp as it is packaged in the crate llama-cpp-sys-2: the folders cmake, ggml, include, src and vendor,
# and CMakeLists.txt. It must be the version that rerankd is built with. The script writes libggml-cuda.so to OUT; put
# it into the folder of the binary. The build happens in OUT/build; after an interruption the next call continues it.
# Needs cmake, a C++ compiler and the CUDA toolkit, but no GPU.
#
#   CUDA_ARCHITECTURES   GPU generations, as CMake names them; 90 (H100, H200) by default
#   JOBS                 parallel compilers; one for each core by default
set -euo pipefail

run() { "$@"; }
if [ "${1:-}" = "--dry-run" ]; then
  run() { printf '%q ' "$@"; echo; }
  shift
fi
if [ $# -ne 2 ]; then
  echo "usage: build-cuda-backend.sh [--dry-run] SOURCE OUT" >&2
  exit 2
fi
source=$1 out=$2
for needed in CMakeLists.txt cmake ggml/src/ggml-cuda include src vendor/CMakeLists.txt; do
  [ -e "$source/$needed" ] || { echo "build-cuda-backend: $source/$needed: no such file" >&2; exit 2; }
done

# Configured from llama.cpp's top folder, because configuring ggml alone needs files that the crate omits. The library
# must not bring a second libggml-base: it uses the one in its own folder.
settings=(
  -DCMAKE_BUILD_TYPE=Release
  -DBUILD_SHARED_LIBS=ON
  -DGGML_BACKEND_DL=ON
  -DGGML_NATIVE=OFF
  -DGGML_CPU=OFF
  -DGGML_CUDA=ON
  -DGGML_CUDA_NCCL=OFF
  "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-90}"
  -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
  "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
  -DLLAMA_BUILD_APP=OFF
  -DLLAMA_BUILD_COMMON=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF
  -DLLAMA_BUILD_SERVER=OFF
  -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_TOOLS=OFF
)
# All files of a crate have the same old date, whatever its version, so make would reuse the objects of another version.
built=$out/build/source-of-this-build
if [ -e "$built" ] && [ "$(cat "$built")" != "$(realpath "$source")" ]; then run rm -rf "$out/build"; fi
run mkdir -p "$out/build"
run sh -c 'realpath "$1" > "$2"' sh "$source" "$built"
run cmake -S "$source" -B "$out/build" "${settings[@]}"
run cmake --build "$out/build" --target ggml-cuda --parallel "${JOBS:-$(nproc)}"
run cp "$out/build/bin/libggml-cuda.so" "$out/libggml-cuda.so"
run strip --strip-unneeded "$out/libggml-cuda.so"
