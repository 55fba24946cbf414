"""The index of a plans directory, as `kvplan compile` keeps it beside the plans that it writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from kvplan.cli import files
from kvplan.compiler.api import OPTIONS, Compiled
from kvplan.plan.index import NAME, IndexEntry, contents, entry, parse, render


def write(out: Path, plans: Mapping[str, Compiled], orphans: Collection[str] = ()) -> list[str]:
    """Write the plans that are stale, and the index: all or nothing. Returns what was written, the index last.

    `orphans` leave the index. Raises PlanIndexError where the directory cannot be written, or its index cannot be read.
    """
    if not plans and not out.is_dir():
        return []
    with files.locked(out):
        texts = {path: one.text for path, one in plans.items()}
        changed = files.stale(out, texts)
        whole = {**texts, **expected(out, plans, orphans)}
        paths = [*changed, *files.stale(out, {path: whole[path] for path in whole if path == NAME})]
        files.put(out, whole, paths)
    return paths


def expected(out: Path, plans: Mapping[str, Compiled], orphans: Collection[str] = ()) -> dict[str, str]:
    """The index by its path: these plans, and of those that it has now, the ones that are there and no orphans.

    Empty where there is nothing to say. Raises PlanIndexError where the index on disk cannot be read.
    """
    found = contents(out, NAME)
    old = () if found is None else parse(found[1], str(out / NAME))
    kept = {one.path: one for one in old if one.path not in orphans and (out / one.path).is_file()}
    entries = kept | {path: _entry(path, one) for path, one in plans.items()}
    return {NAME: render(entries.values())} if entries or found else {}


def _entry(path: str, one: Compiled) -> IndexEntry:
    unusual = [name for name, value in one.plan.options if value != OPTIONS[name][0]]
    return entry(path, one.text.encode(), one.plan, unusual)
