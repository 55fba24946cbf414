"""Names of new models: from the file to write, or from the name of the checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.text.diagnostics import fault
from kvplan.dsl.text.source import inline

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

NEW, OTHER = "new", "choose another name"


def last(path: object) -> str:
    """The last part of a path, which is the name of a checkpoint; empty if `path` is no text."""
    return path.strip().rstrip("/").rsplit("/", 1)[-1] if isinstance(path, str) else ""


def free_name(library: Library, wanted: str) -> str:
    """A name like `wanted` that no model and no family has."""
    name = re.sub(r"[^a-z0-9.]+", "-", wanted.lower()).strip("-.")
    return name if name and not _is_taken(library, name) else f"{name}-{NEW}".lstrip("-")


def name_of(library: Library, out: Path) -> str:
    """The name of a model that is to be written to `out`. Raises DslError (F006) if it cannot be written there."""
    faults = (
        (out.suffix != ".yaml", "its name does not end in .yaml", "choose a name that ends in .yaml"),
        (not LABEL.fullmatch(out.stem), "a model's name has letters, digits, -, _ and .", OTHER),
        (_is_taken(library, out.stem), f"there is a model or family '{out.stem}' already", OTHER),
        (out.exists(), "it is there, and somebody may have worked on it", OTHER),
        (not out.parent.is_dir(), f"there is no folder '{out.parent}'", "make the folder, or choose another"),
    )
    for message, help in ((message, help) for holds, message, help in faults if holds):
        raise fault("F006", f"{out}: {message}", inline(str(out), "<argument>"), help=help)
    return out.stem


def _is_taken(library: Library, name: str) -> bool:
    return name in library.models or bool(library.family(name))


def numbered(names: Iterable[str]) -> Iterator[str]:
    """The names; a repeated one gets a number: a, b, a-2."""
    taken: Counter[str] = Counter()
    for name in names:
        taken[name] += 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}"
