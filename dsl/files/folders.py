"""Find the layout files of a folder: the YAML files with the key `kvplan`, whatever their names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvplan.dsl.files.documents import FILE_TYPES, identify, open_document
from kvplan.dsl.text.diagnostics import DslError, Sink
from kvplan.dsl.text.yaml_reader import FileState

SUFFIXES = (".yaml", ".yml")
MARK = "kvplan"
# Keys of the outermost mapping. Deeper keys and lines of long texts are indented, and comments do not match.
OUTERMOST = re.compile(r"""^(?:\{\s*)?["']?([A-Za-z]+)["']?\s*:""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The layout files in a folder and below it, sorted, and the number of skipped ones: `other` YAML files without the
    key `kvplan`, and `hidden` files and folders.
    """

    layouts: tuple[Path, ...]
    other: int
    hidden: int

    @property
    def skipped(self) -> str:
        """The skipped files in words; empty if there are none."""
        other = f"{_many(self.other, 'YAML file')} without the key kvplan" if self.other else ""
        hidden = _many(self.hidden, "hidden file or folder") if self.hidden else ""
        return " and ".join(filter(None, (other, hidden)))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {' or '.join(f'{word}s' for word in what.split(' or '))}"


def folder_files(folder: Path) -> FolderFiles:
    """The layout files in a folder. The folder itself may be hidden; hidden files and folders in it are skipped."""
    found: list[Path] = []
    hidden = 0
    for at, folders, names in os.walk(folder):
        files = [name for name in names if name.endswith(SUFFIXES)]
        hidden += sum(is_hidden(name) for name in (*folders, *files))
        folders[:] = [name for name in folders if not is_hidden(name)]
        found += [Path(at, name) for name in files if not is_hidden(name)]
    layouts = tuple(sorted(path for path in found if is_layout(path)))
    return FolderFiles(layouts, len(found) - len(layouts), hidden)


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def is_layout(path: Path) -> bool:
    return path.is_file() and MARK in _keys(FileState.of(path))


def is_layout_text(text: str) -> bool:
    """Whether a YAML text belongs to a layout file, good or bad."""
    return MARK in _outermost(text)


def layout_type(path: Path) -> str:
    """The type of a file, from its keys. Raises DslError if it has none."""
    keys = _keys(FileState.of(path))
    for word in FILE_TYPES:
        if word in keys:
            return word
    # The keys are written in a way that only the YAML reader understands, or the file is wrong.
    document, sink = open_document(path), Sink()
    said, _ = identify(sink, document)
    if said is None:
        raise DslError(*document.errors, *sink.errors)
    return said


@cache
def _keys(state: FileState) -> frozenset[str]:
    try:
        return _outermost(state.path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return frozenset()


def _outermost(text: str) -> frozenset[str]:
    return frozenset(OUTERMOST.findall(text.removeprefix("\ufeff")))
