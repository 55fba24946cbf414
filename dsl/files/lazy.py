"""Mappings whose values are made on first use, so that unused ones are never read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from kvplan.dsl.text.diagnostics import DslError, Sink

T = TypeVar("T")
# By another name: the names that it may stand for, each with what it is in their words.
OtherNames = Mapping[str, Mapping[str, str]]


def raising(read: Callable[[Sink], T]) -> T:
    """The result of `read`. Raises DslError with the errors that it reports."""
    sink = Sink()
    value = read(sink)
    if sink.errors:
        raise DslError(*sink.errors)
    return value


class LazyMap(Mapping[str, T], Generic[T]):
    """A mapping of the `known` names to values that `make` makes on first use. A bad value raises DslError."""

    def __init__(self, known: Mapping[str, object], make: Callable[[str], T]) -> None:
        self._known, self._make = known, make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            if name not in self._known:
                raise KeyError(name)
            self._made[name] = self._make(str(name))
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known))

    def __len__(self) -> int:
        return len(self._known)


class LazyFiles(LazyMap[T]):
    """The values that files of one type describe, by name. `other_names` reads the names by which people call them."""

    def __init__(
        self,
        file_type: str,
        paths: Mapping[str, Path],
        parse: Callable[[str], T],
        other_names: Callable[[], OtherNames] = dict,
    ) -> None:
        super().__init__(paths, parse)
        self.file_type, self.other_names = file_type, other_names
