#!/usr/bin/env bash
# Tests the release binary with public Python clients. Creates a virtual environment for each file of pinned clients,
# once and all in parallel, then runs tests/clients.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${RERANKD:-target/release/rerankd}
python=${PYTHON:-python3}
environments=target/clients

make_environment() {
  local wanted=$1 environment=$environments/$2
  # The requirements file is copied last, so an environment without it is incomplete.
  cmp -s "$wanted" "$environment/requirements.txt" && "$environment/bin/python" -c '' 2>/dev/null && return
  "$python" -m venv --clear "$environment"
  "$environment/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$environment/requirements.txt"
}

mkdir -p "$environments"
making=()
for wanted in tests/clients/*.txt; do
  make_environment "$wanted" "$(basename "$wanted" .txt)" &
  making+=($!)
done
for pid in "${making[@]}"; do wait "$pid"; done
exec "$python" tests/clients/run.py "$binary" "$environments"
