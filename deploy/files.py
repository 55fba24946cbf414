"""Plans on disk: their differences from compiled ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path


def on_disk(path: Path) -> str:
    """Return the text of a file, empty without one. Line ends stay as they are, bytes that are no text are escaped."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="backslashreplace", newline="") as file:
        return file.read()


def stale(out: Path, texts: Mapping[str, str]) -> list[str]:
    """Return the paths of `texts` whose file under `out` is missing or different, in their order."""
    return not_current({path: state(out, path, text) for path, text in texts.items()})


def not_current(states: Mapping[str, str]) -> list[str]:
    """Return the paths whose state is missing or stale, in their order."""
    return [path for path, stands in states.items() if stands != "current"]


def state(out: Path, path: str, text: str) -> str:
    """Return the state of the file on disk compared with `text`: `missing`, `stale` or `current`."""
    if not (out / path).is_file():
        return "missing"
    return "current" if (out / path).read_bytes() == text.encode() else "stale"


def unified(out: Path, path: str, text: str) -> str:
    """Return the unified diff from the file on disk to `text`."""
    old = on_disk(out / path).splitlines(keepends=True)
    name = str(out / path)
    before = f"{name} (on disk)" if (out / path).is_file() else "/dev/null"
    return "".join(difflib.unified_diff(old, text.splitlines(keepends=True), before, f"{name} (compiled)"))
