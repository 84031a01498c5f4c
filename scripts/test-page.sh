#!/usr/bin/env bash
# Tests the page of a running server in headless Chromium: `scripts/test-page.sh http://127.0.0.1:8080/ [FOLDER]`. Screenshots are
# written to FOLDER. CHROMIUM names the browser. Creates a virtual environment with pinned packages once.
set -euo pipefail
cd "$(dirname "$0")/.."
url=${1:?"usage: scripts/test-page.sh URL [FOLDER]"}
environment=target/page
wanted=tests/page/requirements.txt
browser=${CHROMIUM:-$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome || true)}
[ -n "$browser" ] || { echo "test-page: no Chromium was found: install the package chromium, or set CHROMIUM" >&2; exit 1; }

# The requirements file is copied last, so an environment without it is incomplete.
if ! cmp -s "$wanted" "$environment/requirements.txt"; then
  "${PYTHON:-python3}" -m venv --clear "$environment"
  "$environment/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$environment/requirements.txt"
fi
[ -z "${2:-}" ] || mkdir -p "$2"
exec "$environment/bin/python" tests/page/run.py "$url" "$browser" "${@:2}"
