#!/usr/bin/env bash
# Tests the Python client in clients/python. Creates a virtual environment for each file of requirements, once and all in
# parallel. The newest one checks the sources: format, lints, types, examples in docstrings, and the binary in RERANKD,
# if it is set. The others test the wheel with older versions of grpcio and protobuf.
#
# With --integrations: tests the adapters to frameworks and the examples instead, with the versions in
# tests/integrations/*.txt, which are about 8 GB; Spark needs Java. Without it, tests of frameworks that are not installed are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
client=clients/python
environments=$PWD/target/python-client

make_environment() {
  local wanted=$1 environment=$environments/$2
  # The requirements file is copied last, so an environment without it is incomplete.
  cmp -s "$wanted" "$environment/requirements.txt" && "$environment/bin/python" -c '' 2>/dev/null && return
  "$python" -m venv --clear "$environment"
  if [[ $2 = integrations-* ]]; then
    # pip takes minutes to find versions of so many packages that agree.
    "$environment/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
    "$environment/bin/uv" pip install --quiet --no-cache --python "$environment/bin/python" -r "$wanted"
  else
    "$environment/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$wanted"
  fi
  cp "$wanted" "$environment/requirements.txt"
}

mkdir -p "$environments"
if [ "${1:-}" = --integrations ]; then
  for wanted in "$client"/tests/integrations/*.txt; do
    make_environment "$wanted" "integrations-$(basename "$wanted" .txt)"
  done
  cd "$client"
  export DEEPEVAL_TELEMETRY_OPT_OUT=YES HAYSTACK_TELEMETRY_ENABLED=False RAGAS_DO_NOT_TRACK=true RAY_USAGE_STATS_ENABLED=0 DO_NOT_TRACK=1
  for wanted in tests/integrations/*.txt; do
    PYTHONPATH=$PWD/src "$environments/integrations-$(basename "$wanted" .txt)/bin/python" -m pytest -p no:asyncio -rs tests/integrations tests/test_batch.py
  done
  exit
fi
making=()
for wanted in "$client"/tests/*.txt; do
  make_environment "$wanted" "$(basename "$wanted" .txt)" &
  making+=($!)
done
for pid in "${making[@]}"; do wait "$pid"; done
newest=$environments/protobuf7/bin

PYTHON=$environments/protobuf5/bin/python ./scripts/python-stubs.sh --check
cd "$client"
"$newest/ruff" format --check
"$newest/ruff" check --quiet
"$newest/mypy" --strict --python-version 3.10
PYTHONPATH=src "$newest/python" -m pytest src tests

rm -rf "$environments/dist"
"$newest/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$environments/dist" .
for older in protobuf5 protobuf6; do
  "$environments/$older/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$environments"/dist/rerankd-*.whl
  RERANKD='' "$environments/$older/bin/python" -m pytest tests
done
