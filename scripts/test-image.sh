#!/usr/bin/env bash
# Runs the files of the image (scripts/image-root.sh) under the same conditions as the image: user 10001, a read-only
# root, a writable store and /tmp, and nothing else of this machine. Needs root to mount folders; it leaves no mount
# behind.
#
#   test-image.sh ROOT STORE
#
# STORE is a model store with the default models. It is copied, so that the server may write to it.
set -euo pipefail
umask 022
if [ $# -ne 2 ]; then
  echo "usage: test-image.sh ROOT STORE" >&2
  exit 2
fi
if [ -z "${TEST_IMAGE_INSIDE:-}" ]; then
  # In a mount namespace of its own: whatever happens, the mounts disappear when the script ends.
  TEST_IMAGE_INSIDE=1 exec unshare --mount --propagation private "$(realpath "$0")" "$(realpath "$1")" "$(realpath "$2")"
fi
source=$1 store=$2
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  umount -R "$scratch/root" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

root=$scratch/root
mkdir -p "$root" "$scratch/store" "$scratch/tmp"
cp -a "$store" "$scratch/store/models"
cp models/demo/passages.jsonl "$scratch/tmp/"
chown -R 10001:10001 "$scratch/store" "$scratch/tmp"
mount --bind "$source" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$scratch/store" "$root/var/lib/rerankd"
mount --bind "$scratch/tmp" "$root/tmp"
mount -t proc proc "$root/proc"

# Replaces itself with rerankd without an intermediate process, so that `$!` is the server.
enter=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin XDG_CACHE_HOME=/var/lib
  setpriv --no-new-privs chroot --userspec=10001:10001 "$root" /usr/bin/rerankd)
fail() { echo "test-image: $1" >&2; cat "$scratch/log" >&2; exit 1; }

"${enter[@]}" --version
"${enter[@]}" serve --listen 127.0.0.1:0 --http-listen off --address-file /tmp/address 2>"$scratch/log" &
server=$!
for _ in $(seq 600); do
  [ -s "$scratch/tmp/address" ] && break
  kill -0 "$server" 2>/dev/null || fail "the server ended"
  sleep 0.1
done
[ -s "$scratch/tmp/address" ] || fail "the server does not listen"
address=$(cat "$scratch/tmp/address")
"${enter[@]}" health --server "$address" --wait 120 || fail "the server does not get ready"

grep -Eq '^Uid:\s+10001\s+10001\s+10001' "/proc/$server/status" || fail "the server runs as another user"
grep -Eq '^CapEff:\s+0+$' "/proc/$server/status" || fail "the server has capabilities"
grep -Eq '^NoNewPrivs:\s+1$' "/proc/$server/status" || fail "the server may gain privileges"
awk '$5 == "/" { print $6 }' "/proc/$server/mountinfo" | grep -q '^ro' || fail "the root can be written"
grep -o '/usr/lib/rerankd/libggml-cpu-[a-z0-9]*' "/proc/$server/maps" | sort -u | sed 's/^/kernels: /' | grep . || fail "no kernels"

question=$(cat models/demo/question.txt)
"${enter[@]}" rerank --server "$address" --query "$question" --format table /tmp/passages.jsonl || fail "no ranking"
# Loads the entailment model.
head -n 1 models/demo/questions.jsonl > "$scratch/tmp/question.jsonl"
"${enter[@]}" utility --server "$address" /tmp/question.jsonl | cut -c 1-200 || fail "no utility"

# deploy/rerankd.service forbids such memory.
if grep ' rwx' "/proc/$server/maps"; then fail "memory can be written and executed"; fi

kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" -eq 0 ] || fail "exit code $code after SIGTERM"
if grep -E 'ERROR' "$scratch/log"; then fail "the log has errors"; fi
echo "test-image: served as user 10001 from a read-only root"
