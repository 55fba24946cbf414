"""Mutants of compiler and runtime: one text of the source in place of another, and the test that then fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.paths import CODE, ROOT

LISTS = sorted(Path(__file__).parent.glob("*.yaml"))
SECONDS = 300
# libyaml's where it is there: every collection reads the lists.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What these tests need of the repository: the links in src/ lead to the others.
COPIED = ("src", "tests", "examples", *CODE, "layouts", "docs", "pyproject.toml")
FAILED = 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` says what is wrong then; `path` and `test`, a node of pytest, count from the root of the repository; `of`
    is the list that it stands in."""

    name: str
    path: str
    before: str
    after: str
    test: str
    of: str = ""

    def applied(self, text: str) -> str:
        """The text of its file with the mutant in it. Raises ValueError where `before` is not there exactly once."""
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.path} has the text of {self.name!r} {text.count(self.before)} times: mend the list"
            )
        return text.replace(self.before, self.after)


def read() -> list[Mutant]:
    return [Mutant(**entry, of=path.stem) for path in LISTS for entry in yaml.load(path.read_text(), LOADER)]


def copied(folder: Path) -> Path:
    """A copy of the repository, as far as tests need it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        source = ROOT / name
        if source.is_file():
            shutil.copy2(source, folder / name)
        else:
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
    return folder


def survives(mutant: Mutant, copy: Path) -> str:
    """Why a mutant in a copy of the repository is not killed by its test; empty where it is."""
    path = copy / mutant.path
    text = path.read_text()
    path.write_text(mutant.applied(text))
    try:
        return "" if tested([mutant.test], copy) == FAILED else f"{mutant.test} does not fail"
    except subprocess.TimeoutExpired:
        return f"{mutant.test} does not end"
    finally:
        path.write_text(text)


def tested(tests: Iterable[str], copy: Path) -> int:
    """What pytest returns for these tests, run on the code of a copy. Raises TimeoutExpired."""
    paths = f"{copy / 'src'}:{copy}"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests]
    environment = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=copy, env={**os.environ, **environment}, capture_output=True, timeout=SECONDS, check=False
    )
    return done.returncode
