"""Texts of files at a git revision, and all plans of a revision."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Set
from pathlib import Path

from kvplan.compiler.api import identifier
from kvplan.plan.errors import PlanIndexError
from kvplan.plan.files import index

# A line of every plan's header begins with this, and the name of the model follows.
MARKER = b"Emitted by kvplan from "
# The variables of a git hook: they name one repository and treat the current folder as the top of it.
OF_A_HOOK = {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_PREFIX"}
# These options win over the user's configuration.
GREP = (
    "grep",
    "-z",
    "--text",
    "--basic-regexp",
    "--no-line-number",
    "--no-column",
    "--no-color",
    "--no-recurse-submodules",
)
# The exit code of `git grep` if it finds nothing.
NOTHING = 1


def plan_files(revision: str, near: Path) -> dict[Path, Path]:
    """Return all plans at a revision of the repository of `near`, by file: the directory of plans that has it.

    The directory has an index that lists plans, or else it has the folder of the plan's model.

    Raises CalledProcessError, FileNotFoundError.
    """
    top = Path(git(_nearest_folder(near), "rev-parse", "--show-toplevel").rstrip("\n"))
    models = _models(top, revision)
    indexed = _indexed(top, revision) if models else set()
    return {file: _folder_of(file, model, indexed) for file, model in models.items()}


def _models(top: Path, revision: str) -> dict[Path, str]:
    """Return the models of all plans at a revision, by file. Raises CalledProcessError."""
    try:
        found = git(top, *GREP, "-e", f"^{MARKER.decode()}", revision, "--", "*.py")
    except subprocess.CalledProcessError as error:
        if error.returncode != NOTHING:
            raise
        return {}
    lines = [line.removeprefix(f"{revision}:").partition("\0") for line in found.rstrip("\n").split("\n")]
    return {top / name: said.removeprefix(MARKER.decode()).partition(",")[0] for name, _, said in lines}


def _indexed(top: Path, revision: str) -> set[Path]:
    """Return the directories with an index of plans. Other tools have files of that name, too."""
    every = git(top, "ls-tree", "-r", "-z", "--name-only", revision).split("\0")
    files = [top / name for name in every if Path(name).name == index.NAME]
    return {file.parent for file in files if _lists_plans(content(revision, file) or b"")}


def _lists_plans(data: bytes) -> bool:
    try:
        return bool(index.parse(data, index.NAME))
    except PlanIndexError:
        return False


def _folder_of(plan: Path, model: str, indexed: Set[Path]) -> Path:
    near = next((folder for folder in plan.parents if folder in indexed), None)
    return near or (plan.parent.parent if plan.parent.name == identifier(model) else plan.parent)


def content(revision: str, file: Path) -> bytes | None:
    """Return a file at a revision; None if it is missing."""
    try:
        found = listed(revision, str(file), (file.suffix,))
    except (subprocess.CalledProcessError, OSError):
        return None
    return found[""].encode() if "" in found else None


def listed(revision: str, path: str, suffixes: tuple[str, ...]) -> Mapping[str, str]:
    """Return texts of files under `path`, a file or a directory that need not exist now, at a revision.

    Raises CalledProcessError if there is no such revision, FileNotFoundError if there is no git.
    """
    named, top = Path(path).resolve(), _nearest_folder(Path(path))
    name = named.relative_to(top).as_posix()
    every = git(top, "ls-tree", "-r", "-z", "--name-only", revision, "--", name).split("\0")
    texts = {file: _run(top, "show", f"{revision}:./{file}") for file in sorted(every) if file.endswith(suffixes)}
    return {file.removeprefix(name).removeprefix("/"): as_text(data) for file, data in texts.items()}


def git(folder: Path, *words: str) -> str:
    """Return git's output about the repository of `folder`, even in a hook of another one."""
    return os.fsdecode(_run(folder, *words))


def same_repository(one: Path, other: Path) -> bool:
    """Return whether two paths are in one repository, maybe in different work trees of it."""
    try:
        found = {_common_folder(path) for path in (one, other)}
    except (subprocess.CalledProcessError, OSError):
        return False
    return len(found) == 1


def _common_folder(path: Path) -> Path:
    near = _nearest_folder(path)
    return (near / git(near, "rev-parse", "--git-common-dir").rstrip("\n")).resolve()


def _nearest_folder(path: Path) -> Path:
    """Return the closest directory that exists, at a path or above it."""
    named = path.resolve()
    return next(folder for folder in (named, *named.parents) if folder.is_dir())


def as_text(data: bytes) -> str:
    """Return the text of a file, with line ends of Unix; what is no UTF-8 is replaced."""
    return data.decode(errors="replace").replace("\r\n", "\n")


def _run(folder: Path, *words: str) -> bytes:
    env = {name: value for name, value in os.environ.items() if name not in OF_A_HOOK}
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env=env).stdout
