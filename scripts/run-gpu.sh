#!/usr/bin/env bash
# Runs the GPU benchmarks on a machine without cargo. pack-gpu.sh copies it into the folder that it packs.
#
#   run-gpu.sh [--model FILE] [--parts P,P] [OPTION…]     options of the benchmark; see bench-gpu --help
#   run-gpu.sh prefill [--model FILE] [--concurrent 1,4,16,64] [--rounds N]
#   run-gpu.sh random SHAPE FILE [OPTION…]                writes a model with random weights (random-gguf.py)
#   run-gpu.sh rerankd COMMAND…                           the server and its commands, with the libraries of CUDA
#
# Prints a JSON line for each figure. It also runs without a GPU; then it shows only that the benchmarks work.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# rerankd finds the CUDA backend in its own folder. The CUDA libraries may be in the toolkit or in Python packages
# (those of PyTorch).
libraries=$here
while IFS= read -r folder; do
  [ ! -d "$folder" ] || libraries=$libraries:$folder
done < <(echo /usr/local/cuda/lib64; python3 -c '
import glob, site
for base in site.getsitepackages():
    print(*glob.glob(base + "/nvidia/*/lib"), sep="\n")' 2>/dev/null)
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export RERANKD=$here/rerankd

case ${1:-} in
  prefill) shift; exec "$here/bench-scoring" engine --only prefill "$@" ;;
  random) shift; exec python3 "$here/random-gguf.py" "$@" ;;
  rerankd) shift; exec "$here/rerankd" "$@" ;;
  *) exec "$here/bench-gpu" "$@" ;;
esac
