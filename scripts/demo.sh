#!/usr/bin/env bash
# Starts a server on a free loopback port, reranks the example in models/demo over gRPC, prints the result, and stops the server.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${RERANKD:-target/release/rerankd}

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

"$binary" serve --listen 127.0.0.1:0 --http-listen off --address-file "$scratch/address" 2>"$scratch/log" &
server=$!
for _ in $(seq 600); do
  [ -s "$scratch/address" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
  sleep 0.1
done
address=$(cat "$scratch/address")
"$binary" health --server "$address" --wait 60 >/dev/null

"$binary" rerank --server "$address" --query "$(cat models/demo/question.txt)" models/demo/passages.jsonl "$@"
printf '\nWhy? scripts/demo.sh --explain    All: --format json    Next: make serve\n'
