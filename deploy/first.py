"""Whether a revision has no plans yet, so that all plans of a review are new: a wrong or an old path is no reason."""

from __future__ import annotations

from pathlib import Path
from subprocess import CalledProcessError

from kvplan.deploy import plans
from kvplan.deploy.revisions import content, plan_files
from kvplan.dsl.files.folders import SUFFIXES, is_hidden
from kvplan.plan.files.index import NAME


def is_first(old: str, new: str, compiled: bool) -> bool:
    """Whether `old`, as `plans.read` takes it, is a directory of plans that a revision lacks, and `new` has it.

    Plans that the revision has elsewhere must be in `new`, too: otherwise they may have moved. If `new` is `compiled`,
    and nobody wrote its plans yet, the revision has no plans at all: the path may be wrong.
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
    if not _has_plans(new, path):
        return compiled and not before and _may_be_written(path)
    return all(_has_plans(new, folder, path) for folder in {*before.values()})


def _has_plans(revision: str, folder: Path, without: Path | None = None) -> bool:
    """Whether there are plans in a folder, or an index, at a revision or now; those in the folder `without` are left
    out. Raises CalledProcessError, OSError."""
    if revision:
        found = [file for file in plan_files(revision, folder) if file.is_relative_to(folder)]
    else:
        found = [folder / name for name in (plans.plan_paths(folder) if folder.is_dir() else ())]
    return any(not without or not file.is_relative_to(without) for file in found)


def _may_be_written(folder: Path) -> bool:
    """Whether plans may be written to a path: it is the name of a directory without files that people see."""
    if folder.is_dir():
        return all(is_hidden(file.name) for file in folder.iterdir())
    return not folder.exists() and folder.suffix not in (plans.SUFFIX, *SUFFIXES)
