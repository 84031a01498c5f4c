#!/usr/bin/env bash
# Trains a tiny random model with models/distil against the release binary: makes an environment with the pinned packages once.
set -euo pipefail
cd "$(dirname "$0")/.."
export RERANKD=${RERANKD:-$PWD/target/release/rerankd}
python=${PYTHON:-python3}
environment=${ENVIRONMENT:-target/distil}

stamp=$environment/requirements.txt
if ! cmp -s models/distil/requirements.txt "$stamp"; then
  "$python" -m venv --clear "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r models/distil/requirements.txt
  cp models/distil/requirements.txt "$stamp"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" -m unittest discover --start-directory models/distil/tests
