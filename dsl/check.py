"""Every error in layout files, whatever they describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, ordered


def check(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> list[Diagnostic]:
    """All errors of all files, sorted; empty where there are none. The files may refer to each other."""
    found: list[Diagnostic] = []
    library = load((), layouts)
    good: list[Path] = []
    for path in paths:
        try:
            library = load([*good, path], layouts)
            good.append(path)
        except DslError as error:
            found += error.diagnostics
    return ordered([*found, *(error for path in paths for error in library.errors(path))])
