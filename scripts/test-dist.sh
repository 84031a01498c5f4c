#!/usr/bin/env bash
# Tests what dist.sh has packed: the checksums, the archive in a root that has nothing else but the C and C++ libraries,
# and the wheels in a fresh virtual environment. Needs root to mount folders; it leaves no mount behind.
#
#   test-dist.sh OUT STORE
#
# OUT is the folder of dist.sh. STORE is a model store; models of the default configuration that it lacks are downloaded
# into it. The packed program gets a copy.
set -euo pipefail
umask 022
if [ $# -ne 2 ]; then
  echo "usage: test-dist.sh OUT STORE" >&2
  exit 2
fi
if [ -z "${TEST_DIST_INSIDE:-}" ]; then
  # In a separate mount namespace. The mounts disappear when the script ends.
  TEST_DIST_INSIDE=1 exec unshare --mount --propagation private "$(realpath "$0")" "$(realpath "$1")" "$(realpath -m "$2")"
fi
out=$1 store=$2
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
finish() {
  umount -R "$scratch/root" 2>/dev/null || true
  rm -rf --one-file-system "$scratch"
}
trap finish EXIT
fail() { echo "test-dist: $1" >&2; exit 1; }
seconds() { awk -v from="$1" -v to="$(date +%s.%N)" 'BEGIN { printf "%.1f s", to - from }'; }
size() { du --apparent-size -sm "$1" | cut -f 1; }

(cd "$out" && sha256sum --check --strict --quiet SHA256SUMS)
archive=$(echo "$out"/rerankd-*-linux.tar.gz)
name=$(basename "$archive" .tar.gz)
root=$scratch/root
mkdir -p "$root" "$scratch/cache/rerankd"
# A mount, so that all mounts below it can be removed with it.
mount --bind "$root" "$root"
mkdir "$root"/{opt,tmp,proc}
begin=$(date +%s.%N)
tar -xzf "$archive" -C "$root/opt"
unpacked=$(seconds "$begin")
app=$root/opt/$name

# The rest of the system that the program may use, as for wheels of manylinux.
ldd "$app"/lib/rerankd/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && NF == 2 { print $1 }' | sort -u |
  while read -r library; do
    case $library in
      "$root"/*) continue ;;
      */libc.so.6 | */libm.so.6 | */libdl.so.2 | */libpthread.so.0 | */librt.so.1 | */libgcc_s.so.1 | */libstdc++.so.6 | */ld-linux*) ;;
      *) fail "the archive needs $library" ;;
    esac
    install -D -m 755 "$library" "$root$library"
  done
"$app/bin/rerankd" models pull --set models.store="$store" >/dev/null
cp -a "$store" "$scratch/cache/rerankd/models"
chown -R 10001:10001 "$scratch/cache" "$root/tmp"
mkdir "$root/cache"
mount --bind "$scratch/cache" "$root/cache"
mount -t proc proc "$root/proc"

enter=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp XDG_CACHE_HOME=/cache setpriv --no-new-privs chroot --userspec=10001:10001 "$root" "/opt/$name/bin/rerankd")
begin=$(date +%s.%N)
"${enter[@]}" --version | tee "$scratch/version"
echo "version: $(seconds "$begin")"
grep -q "/opt/$name/lib/rerankd/libonnxruntime.so" "$scratch/version" || fail "the packed ONNX Runtime is not used"
if grep -qw amx_int8 /proc/cpuinfo; then
  grep -Eq '^AMX +yes' "$scratch/version" || fail "the CPU has AMX, but it is not used"
fi
begin=$(date +%s.%N)
"${enter[@]}" rerank --query "$(cat models/demo/question.txt)" "/opt/$name/example/passages.jsonl" || fail "no ranking"
echo "archive: $(size "$archive") MB, unpacked $(size "$app") MB in $unpacked, first answer after $(seconds "$begin")"

python=${PYTHON:-python3}
environment=$scratch/environment
"$python" -m venv "$environment"
# Everything is fetched first, because the installation below may use no index.
"$environment/bin/pip" download --quiet --disable-pip-version-check --dest "$scratch/wheels" "$out"/*.whl
begin=$(date +%s.%N)
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$scratch/wheels" 'rerankd[server]'
installed=$(seconds "$begin")
"$environment/bin/rerankd" -V
begin=$(date +%s.%N)
# No other program of this name is found.
env -i PATH=/nowhere HOME="$scratch" XDG_CACHE_HOME="$scratch/cache" "$environment/bin/python" - <<'PYTHON'
from rerankd import Rerankd

with Rerankd.launch() as client:
    print(client.rerank("who wrote Middlemarch?", ["It appeared in eight parts.", "George Eliot wrote Middlemarch."])[0].text)
PYTHON
wheel=$(echo "$out"/rerankd_server-*.whl)
echo "wheel: $(size "$wheel") MB, environment $(size "$environment") MB in $installed, first answer after $(seconds "$begin")"
