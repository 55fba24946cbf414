"""How layouts that `kvplan new` writes compare with an engine's own caches, architecture by architecture.

The table is made by `make conformance` and comes with kvplan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

TABLE = "architectures.json"
# The verdict on layouts that are as the engine has the caches, and in which nothing is in doubt.
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A name that configurations have, and the release of an engine that was asked for its caches.

    docs/architectures.md explains the words of `verdict`. Of `configurations`, `right` are as the engine has them in
    each of their dumps; `dumps` counts those of all. `kinds` are those of its caches, `models` the layouts that come
    with kvplan for it. `keys` are those that change layouts of right ones and that their class is not known to have.
    """

    name: str
    engine: str
    verdict: str
    right: int
    configurations: int
    dumps: int
    kinds: tuple[str, ...]
    models: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether a layout of it is known to differ from what the engine stores."""
        return self.verdict.casefold().startswith("wrong")

    @property
    def evidence(self) -> str:
        """What the verdict rests on, in words."""
        if not self.dumps:
            return "it gave no dump"
        count = f"{self.right} of {self.configurations} configuration{'s' if self.configurations > 1 else ''} right"
        return f"{count}, {self.dumps} dump{'s' if self.dumps > 1 else ''}"


LISTS = ("kinds", "models", "keys")
FIELDS = tuple(field.name for field in fields(Architecture))


@cache
def architectures() -> tuple[Architecture, ...]:
    """All that engines serve, by name."""
    return parsed_table((files("kvplan.layouts") / TABLE).read_text())


def of_words(words: Iterable[str]) -> tuple[Architecture, ...]:
    """Those that are called by one of the words, as configurations have them."""
    wanted = set(words)
    return tuple(found for found in architectures() if found.name in wanted)


def parsed_table(text: str) -> tuple[Architecture, ...]:
    """The rows of a file that `table_text` wrote."""
    named = (dict(zip(FIELDS, row, strict=True)) for row in json.loads(text))
    return tuple(Architecture(**{**row, **{name: tuple(row[name]) for name in LISTS}}) for row in named)


def table_text(rows: Iterable[Architecture]) -> str:
    """The table as a file, a line for each architecture."""
    plain = ([getattr(row, name) for name in FIELDS] for row in rows)
    return "[\n" + ",\n".join(json.dumps(row) for row in plain) + "\n]\n"
