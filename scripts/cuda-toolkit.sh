#!/usr/bin/env bash
# Assembles the parts of the CUDA toolkit that build-cuda-backend.sh needs, from NVIDIA's packages in the Python package
# index, for a machine without an installed toolkit. Needs pip, a C compiler and 2 GB, but no GPU and no root.
#
#   cuda-toolkit.sh [--dry-run] SOURCE FOLDER
#
# SOURCE is llama.cpp, as for build-cuda-backend.sh; the toolkit is written to FOLDER. Then run:
#
#   CUDACXX=FOLDER/bin/nvcc CUDAToolkit_ROOT=FOLDER build-cuda-backend.sh SOURCE OUT
#
#   CUDA   version of the toolkit, MAJOR.MINOR; 13.0 by default. The machine with the GPU needs a driver for that version,
#          and the libraries libcudart and libcublas of the same major version.
set -euo pipefail

run() { "$@"; }
if [ "${1:-}" = "--dry-run" ]; then
  run() { printf '%q ' "$@"; echo; }
  shift
fi
if [ $# -ne 2 ]; then
  echo "usage: cuda-toolkit.sh [--dry-run] SOURCE FOLDER" >&2
  exit 2
fi
source=$1 folder=$2 version=${CUDA:-13.0}
[ -d "$source/ggml/src/ggml-cuda" ] || { echo "cuda-toolkit: $source/ggml/src/ggml-cuda: no such folder" >&2; exit 2; }
[ ! -e "$folder" ] || { echo "cuda-toolkit: $folder: exists" >&2; exit 2; }
case $version in
  1[3-9].*) ;;
  *) echo "cuda-toolkit: CUDA=$version: packages of toolkits before 13 contain no nvcc" >&2; exit 2 ;;
esac

# Nothing is installed: the wheels are unpacked into a temporary folder, which becomes FOLDER only when it is complete.
scratch=$(mktemp -d "$(dirname "$folder")/.cuda-toolkit-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
for package in nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl nvidia-cuda-runtime nvidia-cublas; do
  run python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$scratch/wheels" "$package==$version.*"
done
run python3 - "$scratch" <<'UNPACK'
import pathlib, sys, zipfile
scratch = pathlib.Path(sys.argv[1])
for wheel in (scratch / "wheels").glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(scratch)
    wheel.unlink()
UNPACK
toolkit=$scratch/nvidia/cu${version%%.*}
# Wheels contain no links, and zipfile does not restore the execute permission.
run chmod -R u+x "$toolkit/bin" "$toolkit/nvvm/bin"
run ln -s lib "$toolkit/lib64"
for name in cudart cublas cublasLt; do
  run ln -s "lib$name.so.${version%%.*}" "$toolkit/lib/lib$name.so"
done
# The driver's library comes with the driver. The build needs only the names of its functions, so a stub is enough.
run mkdir -p "$toolkit/lib/stubs"
grep -rhoE '\bcu(Mem|Device|Get)[A-Za-z0-9]*\(' "$source/ggml/src/ggml-cuda" | sort -u | sed 's/.*/int &void) { return 1; }/' > "$scratch/stub.c"
run cc -shared -fPIC -Wl,-soname,libcuda.so.1 "$scratch/stub.c" -o "$toolkit/lib/stubs/libcuda.so"
run mv "$toolkit" "$folder"
