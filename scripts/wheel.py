"""Makes the wheel `rerankd-server` of a folder that dist.sh packs: `wheel.py FOLDER VERSION OUT`.

The wheel's tag has the newest glibc that a file asks for, and a glibc at least as new as the distributions that have the
libstdc++ that a file asks for.
"""

import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

# The first glibc of distributions with a libstdc++, as in the policies of auditwheel.
GLIBC_OF_LIBSTDCXX = {22: 24, 24: 27, 25: 28, 28: 31, 29: 34, 30: 35, 31: 38, 32: 38, 33: 39}
INIT = '''"""The program rerankd with its libraries."""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).with_name("_bin") / "rerankd"


def main() -> None:
    """Become the program."""
    os.execv(PROGRAM, ["rerankd", *sys.argv[1:]])
'''


def minor_versions(files: list[pathlib.Path], name: str) -> set[int]:
    """The minor versions of symbols of a library, such as 28 for GLIBC_2.28."""
    needed = subprocess.check_output(["objdump", "--dynamic-syms", *files], text=True)
    return {int(minor) for minor in re.findall(rf"\b{name}\.(\d+)", needed)}


def tag(files: list[pathlib.Path]) -> str:
    glibc = max(minor_versions(files, "GLIBC_2"))
    newest = max(minor_versions(files, "GLIBCXX_3.4"), default=0)
    by_libstdcxx = min(glibc for libstdcxx, glibc in GLIBC_OF_LIBSTDCXX.items() if libstdcxx >= newest)
    return f"py3-none-manylinux_2_{max(glibc, by_libstdcxx)}_{platform.machine()}"


def main() -> None:
    folder, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    files = sorted((folder / "lib/rerankd").iterdir())
    wheel_tag = tag(files)
    info = f"rerankd_server-{version}.dist-info"
    licences = [folder / "LICENSE", folder / "LICENSES-third-party.txt"]
    metadata = f"""Metadata-Version: 2.4
Name: rerankd-server
Version: {version}
Summary: The program rerankd: a reranker that asks the generator that will read the passages
License-Expression: Apache-2.0
{"".join(f"License-File: {licence.name}" + chr(10) for licence in licences)}Requires-Python: >=3.10
"""
    content: dict[str, tuple[bytes, int]] = {
        "rerankd_server/__init__.py": (INIT.encode(), 0o644),
        **{f"rerankd_server/_bin/{file.name}": (file.read_bytes(), file.stat().st_mode & 0o777) for file in files},
        **{f"{info}/licenses/{file.name}": (file.read_bytes(), 0o644) for file in licences},
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: rerankd\nRoot-Is-Purelib: false\nTag: {wheel_tag}\n".encode(),
            0o644,
        ),
        f"{info}/entry_points.txt": (b"[console_scripts]\nrerankd = rerankd_server:main\n", 0o644),
    }
    record = [f"{name},sha256={digest(data)},{len(data)}" for name, (data, _) in content.items()]
    content[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)
    with zipfile.ZipFile(out / f"rerankd_server-{version}-{wheel_tag}.whl", "w") as wheel:
        for name, (data, mode) in content.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
        for entry in sorted(wheel.infolist(), key=lambda entry: -entry.compress_size)[:8]:
            print(f"{entry.file_size / 1e6:6.1f} MB, compressed {entry.compress_size / 1e6:5.1f}  {entry.filename}")


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


main()
