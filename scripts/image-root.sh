#!/usr/bin/env bash
# Assembles the files of the container image from a finished build with the feature `portable`.
#
#   image-root.sh [--app-only] BUILD ROOT
#
# BUILD is the folder of the binary (target/release). ROOT is created. It contains rerankd with llama.cpp's libraries in
# usr/lib/rerankd and, without --app-only, what they need from the system (loader, libraries, certificates, users), so
# that ROOT alone is an image without a shell.
#
#   ONNXRUNTIME         libonnxruntime.so to include
#   ONNXRUNTIME_STORE   model store to copy it from; if the store lacks it, it is downloaded into the store
#
# If neither is set, the server looks for the library in its model store.
set -euo pipefail
# The image's user must be able to read these files, whatever umask the caller has set.
umask 022

app_only=
if [ "${1:-}" = "--app-only" ]; then
  app_only=1
  shift
fi
if [ $# -ne 2 ]; then
  echo "usage: image-root.sh [--app-only] BUILD ROOT" >&2
  exit 2
fi
build=$1 root=$2
fail() { echo "image-root: $1" >&2; exit 1; }
[ -x "$build/rerankd" ] || fail "$build/rerankd: no such program"
[ ! -e "$root" ] || fail "$root: exists"

app=$root/usr/lib/rerankd
mkdir -p "$app" "$root/usr/bin"
app=$(realpath "$app")
install -m 755 "$build/rerankd" "$app/rerankd"
ln -s ../lib/rerankd/rerankd "$root/usr/bin/rerankd"

# The build of llama.cpp that belongs to the binary: the newest one that has kernels.
backends=
for folder in "$build"/build/llama-cpp-sys-2-*/out; do
  compgen -G "$folder/backends/libggml-cpu-*.so" >/dev/null || continue
  if [ -z "$backends" ] || [ "$folder" -nt "$backends" ]; then backends=$folder; fi
done
[ -n "$backends" ] || fail "$build: no kernels of llama.cpp; was it built with the feature portable?"
install -m 644 "$backends"/backends/libggml-*.so "$app/"
# Each library is copied under the name that the binary asks for (libllama.so.0). Some systems install into lib64.
libraries=()
for library in "$backends"/lib{,64}/lib*.so; do
  if [ -e "$library" ]; then libraries+=("$library"); fi
done
[ ${#libraries[@]} -gt 0 ] || fail "$backends: no libraries in lib or lib64"
for library in "${libraries[@]}"; do
  name=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
  install -m 644 "$library" "$app/$name"
done
strip --strip-unneeded "$app"/rerankd "$app"/*.so*
if env -u LD_LIBRARY_PATH ldd "$app/rerankd" | grep "not found"; then fail "$app/rerankd does not find its libraries"; fi
if [ -n "${ONNXRUNTIME_STORE:-}" ]; then
  # Uses the assembled program, because the one in BUILD does not find its libraries.
  "$app/rerankd" models pull onnxruntime --set models.store="$ONNXRUNTIME_STORE"
  ONNXRUNTIME=$ONNXRUNTIME_STORE/onnxruntime/libonnxruntime.so
fi
if [ -n "${ONNXRUNTIME:-}" ]; then
  install -m 644 "$ONNXRUNTIME" "$app/libonnxruntime.so"
fi
[ -z "$app_only" ] || exit 0

# The libraries that these files and the loader need, at the paths at which the loader looks for them.
needed=$(LD_LIBRARY_PATH=$app ldd "$app"/rerankd "$app"/*.so* | awk '$2 == "=>" { print $3 } $1 ~ /^\// && NF == 2 { print $1 }' | sort -u)
for library in $needed; do
  case $library in
    "$app"/*) ;;
    *) install -D -m 755 "$library" "$root$library" ;;
  esac
done
if LD_LIBRARY_PATH=$app ldd "$app"/rerankd "$app"/*.so* | grep "not found"; then fail "a library is missing"; fi
# glibc loads these by name to resolve hosts and users.
for name in libnss_dns.so.2 libnss_files.so.2 libresolv.so.2; do
  for folder in /lib/*-linux-gnu; do
    if [ -e "$folder/$name" ]; then install -D -m 755 "$folder/$name" "$root$folder/$name"; fi
  done
done

mkdir -p "$root/etc/ssl/certs" "$root/etc/rerankd" "$root/tmp" "$root/var/lib/rerankd" "$root/proc" "$root/dev"
[ -r /etc/ssl/certs/ca-certificates.crt ] || fail "/etc/ssl/certs/ca-certificates.crt is missing: install ca-certificates"
install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'root:x:0:0:root:/:/sbin/nologin
rerankd:x:10001:10001:rerankd:/var/lib/rerankd:/sbin/nologin' > "$root/etc/passwd"
echo 'root:x:0:
rerankd:x:10001:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
# When a container engine builds the image, this folder belongs to the image's user.
if [ "$(id -u)" -eq 0 ]; then chown 10001:10001 "$root/var/lib/rerankd"; fi
