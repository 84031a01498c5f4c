#!/usr/bin/env bash
# Prepares a Debian or Ubuntu machine: installs the packages that building llama.cpp needs and, with --ci, the tools
# that only CI uses. It changes no package that is already installed. Without root it prints the command to run and
# stops.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { echo "setup: $1" >&2; exit 1; }
rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
command -v cargo >/dev/null || need "cargo is missing: install Rust $rust or newer from https://rustup.rs"
have=$(rustc --version | awk '{ print $2 }')
[ "$(printf '%s\n' "$rust" "$have" | sort -V | head -n 1)" = "$rust" ] || need "Rust $have is too old: install $rust or newer from https://rustup.rs"
command -v c++ >/dev/null || need "a C++ compiler is missing: apt-get install build-essential"
command -v python3 >/dev/null || need "python3 is missing: apt-get install python3 python3-pip"
python3 -m pip --version >/dev/null 2>&1 || need "pip is missing: apt-get install python3-pip"

missing=()
command -v cmake >/dev/null || missing+=(cmake)
# bindgen loads libclang at build time; LIBCLANG_PATH names a folder outside the usual ones. bindgen also needs clang's
# headers, which are missing if another package installed the library alone.
if [ -z "${LIBCLANG_PATH:-}" ] && ! { compgen -G "/usr/lib/llvm-*/lib/libclang*.so*" && compgen -G "/usr/lib/llvm-*/lib/clang/*/include/stddef.h"; } >/dev/null; then
  missing+=(libclang-dev)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing ${missing[*]}; run this command, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}" >&2
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "${1:-}" = "--ci" ] && ! .tools/bin/buf --version >/dev/null 2>&1; then
  echo "setup: installing buf into .tools" >&2
  python3 -m venv .tools || need "python3-venv is missing: apt-get install python3-venv"
  .tools/bin/pip install --quiet --disable-pip-version-check 'buf-bin==1.*'
fi
