"""Which keys of a configuration were put to the test when its layout was compared with an engine's caches.

A key that is as it would be anyway proves nothing: an engine that ignores it has the same caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kvplan.dsl.configs.families import reading_of
from kvplan.dsl.configs.foreign_keys import Names, foreign
from kvplan.dsl.configs.new_model import stored_by
from kvplan.dsl.library import Library
from kvplan.dsl.text.source import SourceSpan

Config = Mapping[str, object]


def keys_that_count(library: Library, config: Config, names: Names, place: SourceSpan) -> tuple[str, ...]:
    """The keys among `names` that change the layout of a configuration, ascending."""
    reading, _ = reading_of(library, config)
    return counted(config, reading.inside, names, partial(stored_by, reading, library.kinds, place))


def counted(config: Config, inside: Sequence[str], names: Names, stored: Callable[[Config], object]) -> tuple[str, ...]:
    """The names that are to be known for none of the others to be foreign: those without which another is stored."""
    found: frozenset[str] = frozenset()
    while more := frozenset(foreign(config, inside, names, found, stored)):
        found |= more
    return tuple(sorted(found))
