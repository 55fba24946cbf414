"""`python -m tests.mutants [--every N] [WORD …]`: mutate the listed modules, or those with a word in their path.

Exits 1 if a mutant survives that survivors.yaml does not explain, or if one is explained that does not survive.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import tool
from tests.mutants.session import Module, Mutant, copied, modules, mutated, survivors

WORKERS = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only modules with one of these in their path")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try only every Nth mutant")
    given = parser.parse_args()
    chosen = [module for module in modules() if not given.words or any(word in module.path for word in given.words)]
    commands, copies = tool.ready(), SimpleQueue[Path]()
    with tempfile.TemporaryDirectory(prefix="kvplan-mutants-") as folder, ThreadPoolExecutor(WORKERS) as pool:
        for worker in range(WORKERS):
            copies.put(copied(Path(folder) / str(worker)))

        def tried(module: Module) -> tuple[list[Mutant], list[str]]:
            begun, copy = time.monotonic(), copies.get()
            try:
                found = mutated(module, given.every, copy, commands)
            finally:
                copies.put(copy)
            problems = unexplained(module, found)
            line = f"{time.monotonic() - begun:6.0f} s  {module.path}: {counts(found)}"
            print("\n".join([line, *problems]), flush=True)
            return found, problems

        done = list(pool.map(tried, chosen))
    print(counts(mutant for found, _ in done for mutant in found))
    return int(any(problems for _, problems in done))


def counts(mutants: Iterable[Mutant]) -> str:
    found = Counter(mutant.outcome for mutant in mutants if mutant.outcome != "skipped")
    words = [f"{found[outcome]} {outcome}" for outcome in ("killed", "timeout", "survived")]
    return f"{found.total()} mutants: {', '.join(words)}"


def unexplained(module: Module, mutants: Iterable[Mutant]) -> list[str]:
    """Mutants that survive and are not in survivors.yaml, and mutants in survivors.yaml that do not survive."""
    listed = survivors().get(module.path, {})
    outcomes = {mutant.name: mutant for mutant in mutants}
    new = [
        f"  survives, not in survivors.yaml: {name}\n{mutant.diff}"
        for name, mutant in outcomes.items()
        if mutant.outcome == "survived" and name not in listed
    ]
    kept = {name for name, mutant in outcomes.items() if mutant.outcome in ("survived", "skipped")}
    return new + [f"  in survivors.yaml, does not survive: {name}" for name in listed if name not in kept]


if __name__ == "__main__":
    sys.exit(main())
