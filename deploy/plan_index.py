"""The plans directory of `kvplan compile`: plans, and the index that says which one is for which pair."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvplan.compiler.api import Compiled, unusual
from kvplan.deploy import files
from kvplan.deploy.plans import is_marked
from kvplan.plan.files import folder
from kvplan.plan.files.index import NAME, IndexEntry, contents, entry, parse, pinned, render
from kvplan.plan.types import Plan


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Python files of a plans directory that a deployment does not ask for: plans that kvplan wrote, and others."""

    plans: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.plans or self.strays)


def leftovers(out: Path, asked: Collection[str]) -> Leftovers:
    """Return the files below `out` beside the plans `asked` for. Raises PlanIndexError if the index is unreadable."""
    pins = {one.path: one.sha256 for one in entries(out)}
    every = sorted(str(path.relative_to(out)) for path in out.rglob("*.py") if path.name != "__init__.py")
    others = [path for path in every if path not in asked]
    ours = tuple(path for path in others if _is_ours(out / path, pins.get(path)))
    return Leftovers(ours, tuple(path for path in others if path not in ours))


def write(out: Path, plans: Mapping[str, Compiled], whole: bool = False) -> list[str]:
    """Write the plans that are stale, and the index: all or nothing. Return what was written, the index last.

    If they are the `whole` deployment, no others stay in the index. Raises PlanIndexError if the directory is not
    writable, or its index is unreadable.
    """
    if not plans and not out.is_dir():
        return []
    with folder.locked(out):
        texts = {path: one.text for path, one in plans.items()}
        changed = files.stale(out, texts)
        every = {**texts, **expected(out, plans, whole)}
        paths = [*changed, *files.stale(out, {path: every[path] for path in every if path == NAME})]
        folder.put(out, every, paths)
    return paths


def prune(out: Path, plans: Collection[str]) -> None:
    """Remove plans that kvplan wrote, and folders that are then empty. Raises PlanIndexError."""
    with folder.locked(out):
        for path in plans:
            try:
                (out / path).unlink(missing_ok=True)
            except OSError as error:
                raise folder.unwritable(out, error) from error
            with suppress(OSError):
                (out / path).parent.rmdir()


def expected(out: Path, plans: Mapping[str, Compiled], whole: bool = False) -> dict[str, str]:
    """Return the index by its path: these plans, and unless they are the `whole` deployment those already there.

    Empty if there is no index to write. Raises PlanIndexError if the index on disk is unreadable.
    """
    old = entries(out)
    kept = {one.path: one for one in old if not whole and (out / one.path).is_file()}
    every = kept | {path: entry_of(path, one.text, one.plan) for path, one in plans.items()}
    return {NAME: render(every.values())} if every or (out / NAME).exists() else {}


def entries(out: Path) -> tuple[IndexEntry, ...]:
    """Return the entries of the index on disk, empty without one. Raises PlanIndexError if it is unreadable."""
    found = contents(out, NAME)
    return () if found is None else parse(found[1], str(out / NAME))


def entry_of(path: str, text: str, plan: Plan) -> IndexEntry:
    """Return a plan's entry in an index."""
    return entry(path, text.encode(), plan, [name for name, _ in unusual(plan)])


def _is_ours(path: Path, pin: str | None) -> bool:
    """Whether kvplan wrote a file: it has a plan's header, or the bytes that the index pins."""
    if path.is_symlink() or not path.is_file():
        return False
    data = path.read_bytes()
    return pinned(data) == pin or is_marked(data)
