"""Paths that a user may have meant."""

from __future__ import annotations

from pathlib import Path

from kvplan.compiler.side.text import close

# The suffixes of plans and of deployments.
SUFFIXES = (".py", ".yaml", ".yml")


def meant(name: str) -> str:
    return f"did you mean {name!r}?"


def nearest_path(text: str) -> str:
    """Return `did you mean 'plans/chat.py'?` for a missing path; empty if nothing beside it has a similar name."""
    path = Path(text)
    missing = next((one for one in (*reversed(path.parents), path) if not one.exists()), path)
    if not missing.parent.is_dir():
        return ""
    beside = sorted(one for one in missing.parent.iterdir() if one.is_dir() or one.suffix in SUFFIXES)
    # Compare without suffixes, because a common suffix makes short names look close.
    by_stem = {one.stem: one for one in beside}
    near = by_stem.get(missing.stem) or by_stem.get(close(missing.stem, [*by_stem]))
    if near is None:
        return ""
    whole = near / path.relative_to(missing)
    return meant(str(whole if whole.exists() else near))
