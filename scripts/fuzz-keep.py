"""Chooses the inputs that are kept of those that a fuzz target found: fuzz-keep.py CONTROL FOLDER.

CONTROL is libFuzzer's control file of a merge (`-merge_control_file`) without counters, whose first files are those of FOLDER. Each time the input
is copied into FOLDER that reaches most code that none before it does, until FOLDER has 30 such inputs or nothing is new.
"""

import shutil
import sys
from pathlib import Path

MOST = 30
# libFuzzer's control files begin with two counts: of all files, and of those of the first folder.
COUNTS = 2


def main() -> None:
    control, folder = Path(sys.argv[1]), Path(sys.argv[2])
    lines = control.read_text().splitlines()
    total, first = (int(line) for line in lines[:COUNTS])
    files = [Path(name) for name in lines[COUNTS : COUNTS + total]]
    reached: dict[int, set[str]] = {}
    for line in lines[COUNTS + total :]:
        kind, number, *edges = line.split()
        # Lines of COV have only what no earlier file reached.
        if kind == "FT":
            reached.setdefault(int(number), set()).update(edges)
    covered: set[str] = set()
    for number in range(first):
        covered |= reached.pop(number, set())
    before = len(covered)
    room = MOST - len(list(folder.glob("found-*")))
    while room > 0 and reached:
        # The smaller of two that reach as much.
        best = max(reached, key=lambda number: (len(reached[number] - covered), -files[number].stat().st_size))
        new = reached.pop(best) - covered
        if not new:
            break
        covered |= new
        # libFuzzer names inputs by their SHA-1.
        shutil.copyfile(files[best], folder / f"found-{files[best].name[:12]}")
        room -= 1
    everything = covered.union(*reached.values())
    print(f"fuzz: {folder.name}: the inputs kept reach {len(covered)} of {len(everything)} edges found, {before} before")


if __name__ == "__main__":
    main()
