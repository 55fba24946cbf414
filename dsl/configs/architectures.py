"""The table of architectures: whether layouts that `kvplan new` writes agree with an engine's own caches.

`make conformance` writes the table, which comes with kvplan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

TABLE = "architectures.json"
# The verdict on layouts that agree with the engine's caches and have no doubts.
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Architecture:
    """The verdict on one architecture, by its name in configurations, for one release of an engine.

    docs/architectures.md explains the words of `verdict`. `right` of the `configurations` agree with all their dumps;
    `dumps` counts the dumps of all. `kinds` are the kinds of its caches, `models` the layouts that come with kvplan.
    `keys` change the layout of right configurations, although their class is not known to have them.
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
        """Whether a layout of this architecture is known to differ from what the engine stores."""
        return self.verdict.casefold().startswith("wrong")

    @property
    def evidence(self) -> str:
        """The evidence for the verdict, in words."""
        if not self.dumps:
            return "it gave no dump"
        count = f"{self.right} of {self.configurations} configuration{'s' if self.configurations > 1 else ''} right"
        return f"{count}, {self.dumps} dump{'s' if self.dumps > 1 else ''}"


LISTS = ("kinds", "models", "keys")
FIELDS = tuple(field.name for field in fields(Architecture))


@cache
def architectures() -> tuple[Architecture, ...]:
    """All architectures that engines serve, by name."""
    return parsed_table((files("kvplan.layouts") / TABLE).read_text())


def of_words(words: Iterable[str]) -> tuple[Architecture, ...]:
    """The architectures whose name is one of the words."""
    wanted = set(words)
    return tuple(found for found in architectures() if found.name in wanted)


def parsed_table(text: str) -> tuple[Architecture, ...]:
    """The rows of a table that `table_text` wrote."""
    named = (dict(zip(FIELDS, row, strict=True)) for row in json.loads(text))
    return tuple(Architecture(**{**row, **{name: tuple(row[name]) for name in LISTS}}) for row in named)


def table_text(rows: Iterable[Architecture]) -> str:
    """The text of a table, a line for each architecture."""
    plain = ([getattr(row, name) for name in FIELDS] for row in rows)
    return "[\n" + ",\n".join(json.dumps(row) for row in plain) + "\n]\n"
