"""`python -m tests.mutants [WORD]`: every mutant, or those with the word in list, path or name, in a copy and tested.

Exits 1 where one survives.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.mutants import Mutant, copied, read, survives, tested


def main(word: str) -> int:
    mutants = [mutant for mutant in read() if word in f"{mutant.of} {mutant.path} {mutant.name}"]
    with tempfile.TemporaryDirectory(prefix="kvplan-mutants-") as folder:
        copy = copied(Path(folder))
        if failed := tested(sorted({mutant.test for mutant in mutants}), copy):
            print(f"the tests do not pass without a mutant: pytest returns {failed}")
            return 1
        alive = sum(_tried(mutant, copy) for mutant in mutants)
    print(f"mutants: {len(mutants)}, killed: {len(mutants) - alive}")
    return int(alive > 0)


def _tried(mutant: Mutant, copy: Path) -> bool:
    """Try a mutant and print what became of it; whether it survived."""
    begun = time.monotonic()
    why = survives(mutant, copy)
    what = f"{mutant.path}: {mutant.name}{why and f' ({why})'}"
    print(f"{'SURVIVES' if why else 'killed':8} {time.monotonic() - begun:5.1f} s  {what}", flush=True)
    return bool(why)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
