#!/usr/bin/env bash
# Writes the generated references and builds the book in docs into target/book, and the reference of the Python client
# into target/book/python. With --serve it serves the book on 127.0.0.1:3000 instead, without that reference, and builds
# it again after each edit. RERANKD names the binary whose --help becomes the command-line page.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4
sum=5222beabd3e37dc5be0d18ff99b79058469354db5c220153a1b92db5ba12be89

# The reference of the Python client, from its docstrings. The adapters are left out, because they import frameworks.
python_reference() {
  local environment=target/python-docs packages=(pdoc==16.0.0 grpcio==1.85.3 protobuf==7.36.2 pandas==3.1.1)
  if ! grep -qsxF "${packages[*]}" $environment/installed; then
    python3 -m venv --clear $environment && $environment/bin/pip install --quiet --disable-pip-version-check "${packages[@]}" &&
      echo "${packages[*]}" >$environment/installed || {
      echo "docs: pdoc could not be installed: the reference of the Python client is not written" >&2
      return
    }
  fi
  PYTHONPATH=clients/python/src $environment/bin/pdoc --output-directory target/book/python \
    rerankd rerankd.batch rerankd.testing
  echo "docs: target/book/python/index.html" >&2
}

page=docs/reference/command-line.md
if [ -x "${RERANKD:-}" ]; then
  python3 scripts/reference.py --binary "$RERANKD"
else
  python3 scripts/reference.py
  echo "docs: there is no binary: run make build for the page of the command line" >&2
  [ -e $page ] || printf '# Command line\n\nThis page was not generated. `rerankd --help` prints the same text.\n' >$page
fi

mdbook=.tools/bin/mdbook
is_pinned() { [ "$("$1" --version 2>/dev/null)" = "mdbook v$version" ]; }
if ! is_pinned $mdbook; then
  archive=mdbook-v$version-x86_64-unknown-linux-musl.tar.gz
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  if is_pinned mdbook; then
    mdbook=mdbook
  elif [ "$(uname -sm)" = "Linux x86_64" ] &&
    curl -sSfL --retry 2 -o "$folder/$archive" "https://github.com/rust-lang/mdBook/releases/download/v$version/$archive"; then
    echo "$sum  $folder/$archive" | sha256sum --check --quiet
    mkdir -p .tools/bin
    tar -xzf "$folder/$archive" -C .tools/bin mdbook
  else
    echo "docs: mdbook $version could not be fetched: the book is not built" >&2
    python_reference
    exit 0
  fi
fi

if [ "${1:-}" = "--serve" ]; then
  exec $mdbook serve docs
fi
$mdbook build docs
python_reference # after the book, which deletes other files of its folder
echo "docs: target/book/index.html" >&2
