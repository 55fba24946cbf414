"""`python -m tests.mutants [WORD]`: every mutant, or those whose path and name have the word, in a copy and tested.

Exits 1 where one survives.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.mutants.mutants import Mutant, copied, read, survives, tested


def main(word: str) -> int:
    mutants = [mutant for mutant in read() if word in f"{mutant.path} {mutant.name}"]
    with tempfile.TemporaryDirectory(prefix="kvplan-mutants-") as folder:
        copy = copied(Path(folder))
        if failed := tested(sorted({mutant.test for mutant in mutants}), copy):
            print(f"the tests do not pass without a mutant: pytest returns {failed}")
            return 1
        alive = sum(_told(mutant, survives(mutant, copy)) for mutant in mutants)
    print(f"mutants: {len(mutants)}, killed: {len(mutants) - alive}")
    return int(alive > 0)


def _told(mutant: Mutant, why: str) -> bool:
    """Print what became of a mutant; whether it survived."""
    print(f"{'SURVIVES' if why else 'killed':8}  {mutant.path}: {mutant.name}{why and f' ({why})'}", flush=True)
    return bool(why)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
