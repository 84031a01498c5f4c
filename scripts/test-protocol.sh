#!/usr/bin/env bash
# Compares the protocol with that of the last release, and fails if a change breaks existing clients. Before the first
# release there is nothing to compare with.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! base=$(git describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null); then
  echo "test-protocol: no earlier release here, nothing compared" >&2
  exit 0
fi
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$base" buf.yaml proto | tar -x -C "$before"
.tools/bin/buf breaking --against "$before"
echo "test-protocol: compatible with $base"
