"""Whether a revision has no plans yet, so that all plans of a review are new: a wrong or an old path is no reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from subprocess import CalledProcessError

from kvplan.deploy import plans
from kvplan.deploy.revisions import content, plan_files
from kvplan.dsl.files.folders import SUFFIXES, is_hidden
from kvplan.plan.errors import KvplanError
from kvplan.plan.files.index import NAME
from kvplan.plan.files.loader import loaded


def is_first(old: str, new: str, compiled: bool) -> bool:
    """Whether `old`, as `plans.read` takes it, is a directory of plans that a revision lacks, and `new` has it.

    Directories that have plans at the revision must still have some in `new`, and none of their plans may now be under
    the path, by name or digest: otherwise plans may have moved. If `new` is `compiled`, and nobody wrote its plans yet,
    the revision has no plans at all: the path may be wrong.
    """
    revision, path = plans.place(old, new)
    if not revision or revision.startswith("-"):
        return False
    try:
        return _is_first(revision, Path(path).resolve(), "" if compiled else plans.revision(new), compiled)
    except (CalledProcessError, FileNotFoundError):
        return False


def _is_first(old: str, path: Path, new: str, compiled: bool) -> bool:
    before = plan_files(old, path)
    if any(file.is_relative_to(path) for file in before) or content(old, path / NAME) is not None:
        return False
    plans_in = _finder(new, path)
    added = plans_in(path)
    if not added:
        return compiled and not before and _may_be_written(path)
    kept = {folder: plans_in(folder) - added for folder in {*before.values()}}
    lost = {file: folder for file, folder in before.items() if file not in kept[folder]}
    return all(kept.values()) and not _are_among(lost, added) and not _digests(old, lost) & _digests(new, added)


def _finder(revision: str, near: Path) -> Callable[[Path], set[Path]]:
    """Return what finds the plans under a folder: at a revision of the repository of `near`, or now.

    Raises CalledProcessError, OSError.
    """
    if not revision:
        return lambda folder: {folder / name for name in (plans.plan_paths(folder) if folder.is_dir() else ())}
    every = plan_files(revision, near)
    return lambda folder: {file for file in every if file.is_relative_to(folder)}


def _are_among(lost: Mapping[Path, Path], added: Iterable[Path]) -> bool:
    """Whether an added plan has the name, MODEL/PAIR.py, of one that its directory lacks now."""
    names = tuple(f"/{'/'.join(file.relative_to(folder).parts[-2:])}" for file, folder in lost.items())
    return any(file.as_posix().endswith(names) for file in added)


def _digests(revision: str, files: Iterable[Path]) -> set[str]:
    """Return the digests of plans at a revision or now, without those that cannot be read."""
    texts = ((file, content(revision, file) if revision else file.read_bytes()) for file in files)
    found = (_digest(text, file.name) for file, text in texts if text is not None)
    return {digest for digest in found if digest}


def _digest(text: bytes, name: str) -> str:
    try:
        return loaded(text, name).digest
    except KvplanError:
        return ""


def _may_be_written(folder: Path) -> bool:
    """Whether plans may be written to a path: it is the name of a directory without files that people see."""
    if folder.is_dir():
        return all(is_hidden(file.name) for file in folder.iterdir())
    return not folder.exists() and folder.suffix not in (plans.SUFFIX, *SUFFIXES)
