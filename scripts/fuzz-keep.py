"""Chooses which of the inputs that a fuzz target found are added to its corpus: fuzz-keep.py CONTROL FOLDER.

CONTROL is the control file that libFuzzer writes in a merge (`-merge_control_file`) without counters; its first files
are those of FOLDER. The script repeatedly copies into FOLDER the input that reaches the most code not yet reached,
until FOLDER has 30 such inputs or no input reaches anything new.
"""

import shutil
import sys
from pathlib import Path

MOST = 30
# libFuzzer's control files begin with two counts: the number of all files, and the number of files in the first folder.
COUNTS = 2


def main() -> None:
    control, folder = Path(sys.argv[1]), Path(sys.argv[2])
    lines = control.read_text().splitlines()
    total, first = (int(line) for line in lines[:COUNTS])
    files = [Path(name) for name in lines[COUNTS : COUNTS + total]]
    reached: dict[int, set[str]] = {}
    for line in lines[COUNTS + total :]:
        kind, number, *edges = line.split()
        # COV lines list only what no earlier file reached; FT lines list everything that a file reaches.
        if kind == "FT":
            reached.setdefault(int(number), set()).update(edges)
    covered: set[str] = set()
    for number in range(first):
        covered |= reached.pop(number, set())
    before = len(covered)
    room = MOST - len(list(folder.glob("found-*")))
    while room > 0 and reached:
        # If two inputs reach equally much, the smaller one is chosen.
        best = max(reached, key=lambda number: (len(reached[number] - covered), -files[number].stat().st_size))
        new = reached.pop(best) - covered
        if not new:
            break
        covered |= new
        # libFuzzer names inputs by their SHA-1.
        shutil.copyfile(files[best], folder / f"found-{files[best].name[:12]}")
        room -= 1
    everything = covered.union(*reached.values())
    print(f"fuzz: {folder.name}: the corpus reaches {len(covered)} of {len(everything)} edges found; before, it reached {before}")


if __name__ == "__main__":
    main()
