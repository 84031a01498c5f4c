#!/usr/bin/env bash
# Trains a tiny random model with models/distil against the release binary. Creates a virtual environment with the
# pinned packages, once, in DISTIL_ENVIRONMENT (target/distil). A folder that contains anything else is not touched.
set -euo pipefail
cd "$(dirname "$0")/.."
export RERANKD=${RERANKD:-$PWD/target/release/rerankd}
python=${PYTHON:-python3}
environment=${DISTIL_ENVIRONMENT:-target/distil}

stamp=$environment/requirements.txt
mark=$environment/made-by-test-distil
made_here() { [ -e "$mark" ] || { [ -e "$stamp" ] && [ -e "$environment/pyvenv.cfg" ]; }; }
if [ -n "$(ls -A "$environment" 2>/dev/null)" ] && ! made_here; then
  echo "test-distil: $environment: was not created by this script; set DISTIL_ENVIRONMENT to another folder" >&2
  exit 2
fi
if ! cmp -s models/distil/requirements.txt "$stamp" || ! "$environment/bin/python" -c 'import torch' 2>/dev/null; then
  # The mark is written first, so that an environment that was left incomplete is created again the next time.
  rm -rf "$environment"
  mkdir -p "$environment"
  touch "$mark"
  "$python" -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r models/distil/requirements.txt
  cp models/distil/requirements.txt "$stamp"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" -m unittest discover --start-directory models/distil/tests
