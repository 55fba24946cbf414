"""Files of one type, parsed when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from kvplan.dsl.text.diagnostics import Diagnostic, DslError, nearest
from kvplan.dsl.text.source import inline

T = TypeVar("T")


class LazyFiles(Mapping[str, T], Generic[T]):
    """Files of one type by name, each parsed when it is first asked for. Asking raises DslError for a bad file."""

    def __init__(self, file_type: str, paths: Mapping[str, Path], parse: Callable[[str], T]) -> None:
        self.file_type, self.paths, self._parse = file_type, paths, parse
        self._parsed: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._parsed:
            if name not in self.paths:
                raise KeyError(name)
            self._parsed[name] = self._parse(name)
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.paths))

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, name: str) -> T:
        """The value of `name`. Raises DslError (K008) with the nearest name."""
        if name in self.paths:
            return self[name]
        help = nearest(name, self.paths) or "`kvplan list` has all; files of your own are found with --layouts DIR"
        raise DslError(Diagnostic("K008", f"unknown {self.file_type} '{name}'", inline(name, "<argument>"), (), help))
