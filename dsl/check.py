"""Every error in layout files, whatever they describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvplan.dsl.library import load_good
from kvplan.dsl.text.diagnostics import Diagnostic, ordered


def check(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> list[Diagnostic]:
    """All errors of all files, sorted; empty where there are none. The files may refer to each other."""
    library, errors = load_good(paths, layouts)
    return ordered([*errors, *(error for path in paths for error in library.errors(path))])
