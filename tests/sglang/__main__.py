"""`make sglang`: cases of real SGLang engines, and the table of docs/sglang.md with what came of them.

python -m tests.sglang [WORD…]      cases whose names have one of these words; all of them without
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.engine_environment import UnavailableError
from tests.paths import DOCS
from tests.sglang import environment
from tests.sglang.cases import CASES, Case
from tests.vllm.table import markdown

PAGE = DOCS / "sglang.md"
TABLE = re.compile(r"(<!-- table: sglang -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
NOT_RUN = "not run"
RIGHT = ("right", "refused")
SECONDS_EACH = 240


def main(words: Sequence[str]) -> int:
    try:
        python = environment.ready()
    except UnavailableError as reason:
        print(f"not run: {reason}")
        return 0
    chosen = [case for case in CASES if not words or any(word in case.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="kvplan-sglang-") as folder:
        found = played(python, Path(folder), chosen)
    for name, word in found.items():
        print(f"{name}: {word}")
    write({name: word if word in RIGHT else "**wrong**" for name, word in found.items()})
    return int(any(found.get(case.name) not in RIGHT for case in chosen))


def played(python: Path, folder: Path, cases: Iterable[Case]) -> dict[str, str]:
    """What came of cases, by name; a case that its process did not come to is missing."""
    names = [case.name for case in cases]
    told = {"PYTHONPATH": environment.paths(folder), "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [str(python), "-W", "ignore", "-m", "tests.sglang.play", str(folder), *names],
        env={**os.environ, **told}, capture_output=True, text=True, timeout=SECONDS_EACH * len(names),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["case"]: line["word"] for line in lines}
    if len(found) < len(names):
        print(done.stderr[-2000:], file=sys.stderr)
    return found


def write(cells: Mapping[str, str]) -> None:
    """Write what was found into the page; other rows stay as they are."""
    PAGE.write_text(TABLE.sub(lambda hit: f"{hit[1]}\n{drawn({**read(hit[2]), **cells})}\n{hit[3]}", PAGE.read_text()))


def read(table: str) -> dict[str, str]:
    """The cells that a table has, by case."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith("| ")]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def drawn(cells: Mapping[str, str]) -> str:
    return markdown([["case", "kvplan"], *([case.name, cells.get(case.name, NOT_RUN)] for case in CASES)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
