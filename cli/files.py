"""Plans on disk: what differs from what was compiled, and writing it. Nothing else of the compiler writes files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def on_disk(path: Path) -> str:
    """The text of a file, empty where there is none. Line ends are kept as they are."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def stale(out: Path, texts: Mapping[str, str]) -> list[str]:
    """The paths of `texts` whose file under `out` is missing or reads differently, sorted."""
    return [path for path in sorted(texts) if on_disk(out / path) != texts[path]]


def state(out: Path, path: str, text: str) -> str:
    """`missing`, `stale` or `current`: how the file on disk stands to `text`."""
    if not (out / path).is_file():
        return "missing"
    return "current" if on_disk(out / path) == text else "stale"


def orphans(out: Path, texts: Mapping[str, str]) -> list[str]:
    """Plans beside those of `texts`, in the same folders, that nothing asks for any more."""
    folders = {Path(path).parent for path in texts}
    found = (str(path.relative_to(out)) for folder in folders for path in (out / folder).glob("p_*__d_*.py"))
    return sorted(set(found) - set(texts))


def unified(out: Path, path: str, text: str) -> str:
    """The unified diff from the file on disk to `text`."""
    old = on_disk(out / path).splitlines(keepends=True)
    name = str(out / path)
    before = f"{name} (on disk)" if (out / path).is_file() else "/dev/null"
    return "".join(difflib.unified_diff(old, text.splitlines(keepends=True), before, f"{name} (compiled)"))


def write(out: Path, texts: Mapping[str, str], paths: Iterable[str]) -> None:
    """Write `paths`, each whole or not at all."""
    for path in paths:
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{target.name}.{os.getpid()}")
        half.write_text(texts[path], encoding="utf-8", newline="\n")
        half.replace(target)
