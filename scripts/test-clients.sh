#!/usr/bin/env bash
# Runs public Python clients against the release binary: makes an environment with the pinned clients once, then tests/clients.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${RERANKD:-target/release/rerankd}
python=${PYTHON:-python3}
environment=target/clients

stamp=$environment/requirements.txt
if ! cmp -s tests/clients/requirements.txt "$stamp" || ! "$environment/bin/python" -c 'import grpc_tools' 2>/dev/null; then
  "$python" -m venv --clear "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
  cp tests/clients/requirements.txt "$stamp"
fi
exec "$environment/bin/python" tests/clients/run.py "$binary"
