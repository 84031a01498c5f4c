#!/usr/bin/env bash
# Starts a server on free loopback ports and tests its page in headless Chromium: `scripts/test-page.sh [FOLDER]`. Screenshots
# are written to FOLDER. CHROMIUM names the browser. Creates a virtual environment with pinned packages once.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${RERANKD:-target/release/rerankd}
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
[ -z "${1:-}" ] || mkdir -p "$1"

scratch=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap finish EXIT

"$binary" serve --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --address-file "$scratch/address" 2>"$scratch/log" &
server=$!
for _ in $(seq 600); do
  [ -s "$scratch/address" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
  sleep 0.1
done
"$binary" health --server "$(cat "$scratch/address")" --wait 60 >/dev/null
# The file has the address of gRPC only.
http=$(sed -n 's/.*listening for HTTP.*address=\([0-9.:]*\).*/\1/p' "$scratch/log")
"$environment/bin/python" tests/page/run.py "http://$http/" "$browser" "$@"
