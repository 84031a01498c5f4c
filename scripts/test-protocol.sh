#!/usr/bin/env bash
# Compares the protocol with that of main: a change that breaks existing clients fails. On main itself it is compared with the commit
# before. Without git history there is nothing to compare with.
set -euo pipefail
cd "$(dirname "$0")/.."

base=
for branch in origin/main main; do
  base=$(git rev-parse --quiet --verify "$branch^{commit}" 2>/dev/null) && break
done
if [ -n "$base" ] && [ "$base" = "$(git rev-parse HEAD)" ]; then
  base=$(git rev-parse --quiet --verify "HEAD^{commit}~1" 2>/dev/null) || base=
fi
if [ -z "$base" ]; then
  echo "test-protocol: no earlier commit of main here, nothing compared" >&2
  exit 0
fi
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$base" buf.yaml proto | tar -x -C "$before"
.tools/bin/buf breaking --against "$before"
echo "test-protocol: compatible with $(git rev-parse --short "$base")"
