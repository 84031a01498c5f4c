#!/usr/bin/env bash
# Packs a finished build with the features `portable` and `lab`: an archive, a Python wheel of the same files, the wheel
# of the Python client, and their checksums.
#
#   dist.sh BUILD OUT STORE
#
# BUILD is the folder of the binary (target/release). OUT is created. STORE is the model store for ONNX Runtime; if it
# lacks the library, it is downloaded into the store. Packing the same files again gives equal bytes.
set -euo pipefail
umask 022
if [ $# -ne 3 ]; then
  echo "usage: dist.sh BUILD OUT STORE" >&2
  exit 2
fi
build=$(realpath "$1") out=$(realpath -m "$2") store=$(realpath -m "$3")
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=rerankd-$version-$(uname -m)-linux
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH

folder=$out/$name
mkdir -p "$out"
ONNXRUNTIME_STORE=$store scripts/image-root.sh --app-only "$build" "$folder"
mv "$folder"/usr/* "$folder"
rmdir "$folder/usr"
cp -r README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs "$folder"
# The README links to the client's page, which links to the notebook; pages of the documentation name the examples.
mkdir -p "$folder/clients/python/examples"
cp clients/python/README.md "$folder/clients/python"
cp clients/python/examples/*.{ipynb,py} "$folder/clients/python/examples"
"$python" scripts/reference.py --binary "$folder/bin/rerankd" --out "$folder/docs/reference"
cp -r models/demo "$folder/example"
"$python" scripts/licences.py > "$folder/LICENSES-third-party.txt"

tar --create --directory "$out" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$name" |
  gzip -9 --no-name > "$out/$name.tar.gz"
"$python" scripts/wheel.py "$folder" "$version" "$out"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$out" clients/python
rm -rf "$folder"
cd "$out"
sha256sum -- *.tar.gz *.whl > SHA256SUMS
ls -l
