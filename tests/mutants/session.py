"""A module's mutants: cosmic-ray makes each in a copy of the repository and runs the module's tests there."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.paths import CODE, ROOT
from tests.vllm.environment import do

HERE = Path(__file__).parent
# The parts of the repository that tests need: the links in src/ lead to the others.
COPIED = ("src", "tests", "examples", *CODE, "bench", "layouts", "docs", "pyproject.toml")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-m", "not full")


class TestsFailError(Exception):
    """A module's tests fail without a mutant."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file to mutate, and its tests in the order in which they run."""

    path: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module. `name` says where by definition and operator, never by line or text."""

    name: str
    outcome: str  # "killed", "timeout", "survived" or "skipped"
    diff: str


def modules() -> list[Module]:
    """The modules that modules.yaml lists."""
    groups = yaml.safe_load((HERE / "modules.yaml").read_text())
    return [Module(path, tuple(group["tests"])) for group in groups for path in group["modules"]]


def survivors() -> Mapping[str, Mapping[str, str]]:
    """By module and mutant the reason why survivors.yaml accepts it."""
    listed = yaml.safe_load((HERE / "survivors.yaml").read_text())
    return {
        path: {name: group["why"] for group in groups for name in group["mutants"]} for path, groups in listed.items()
    }


def copied(folder: Path) -> Path:
    """A copy of the repository in a new folder, as far as tests need it."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        if (source := ROOT / name).is_file():
            shutil.copy2(source, folder / name)
        else:
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
    return folder


def mutated(module: Module, every: int, copy: Path, tool: Path) -> list[Mutant]:
    """A module's mutants, of which every `every`th is tried, with what became of each.

    Raises TestsFailError, UnavailableError.
    """
    config, session = copy / "mutants.toml", copy / "mutants.sqlite"
    variables = f"PYTHONPATH={copy / 'src'}:{copy}"
    command = ("env", variables, *PYTEST, *module.tests)
    limit = 3 * _clean(command, copy) + 10
    settings = {"module-path": str(copy / module.path), "timeout": limit, "test-command": shlex.join(command)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config.write_text("\n".join(["[cosmic-ray]", *lines, "", (HERE / "config.toml").read_text()]))
    session.unlink(missing_ok=True)
    do(str(tool / "cosmic-ray"), "init", str(config), str(session))
    do(str(tool / "cr-filter-operators"), str(session), str(config))
    do(str(tool / "python"), str(HERE / "filter.py"), str(session), str(every))
    subprocess.run([tool / "cosmic-ray", "exec", config, session], cwd=copy, check=True)
    dump = do(str(tool / "cosmic-ray"), "dump", str(session)).splitlines()
    return read((copy / module.path).read_text(), [json.loads(line) for line in dump])


def _clean(command: Iterable[str], copy: Path) -> float:
    """How many seconds tests take without a mutant; compiles what they import. Raises TestsFailError."""
    begun = time.monotonic()
    done = subprocess.run([*command], cwd=copy, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestsFailError(f"without a mutant: {done.stdout[-2000:]}")
    return time.monotonic() - begun


def read(text: str, dump: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Mutant]:
    """The mutants of a session's dump in the order of the module, whose text is `text`."""
    found, counts = [], defaultdict[tuple[str, str], int](int)
    definitions = _definitions(text)
    specs = [(item["mutations"][0], result) for item, result in dump]
    for mutation, result in sorted(specs, key=lambda spec: (*spec[0]["start_pos"], spec[0]["occurrence"])):
        where = definitions.get(mutation["start_pos"][0], "module"), mutation["operator_name"].removeprefix("core/")
        counts[where] += 1
        name = " ".join((*where, str(counts[where])))
        found.append(Mutant(name, _outcome(result), _changes(result["diff"] or "")))
    return found


def _outcome(result: Mapping[str, Any]) -> str:
    if result["worker_outcome"] == "skipped":
        return "skipped"
    return "timeout" if result["output"] == "timeout" else str(result["test_outcome"])


def _changes(diff: str) -> str:
    """The lines that a diff removes and adds."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(f"    {line}" for line in lines)


def _definitions(text: str) -> dict[int, str]:
    """By line the innermost function or class around it, with the names of those around that."""
    found: dict[int, str] = {}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = (*names, node.name)
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), ".".join(names)))
        for child in ast.iter_child_nodes(node):
            visit(child, names)

    visit(ast.parse(text), ())
    return found
