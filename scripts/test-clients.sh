#!/usr/bin/env bash
# Runs public Python clients against the release binary: makes an environment for each file of pinned clients once, all at the same
# time, then runs tests/clients.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${RERANKD:-target/release/rerankd}
python=${PYTHON:-python3}
environments=target/clients

make_environment() {
  local wanted=$1 environment=$environments/$2
  # The file is copied last: without it the environment is not complete.
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
