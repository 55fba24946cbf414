"""Fill in the keys that a configuration leaves out because its class has defaults for them.

Invariant: a given key is never replaced, under any of its names; a null also counts as given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kvplan.dsl.schema.config import ConfigClass, ConfigClasses

TYPE = "model_type"
NO_CLASS = ConfigClass()


@dataclass(frozen=True, slots=True)
class FilledConfig:
    """The mappings of a configuration (`chain`), each with the keys that its class adds, which `defaulted` lists.

    `open` are missing keys that the innermost class computes from others; `known` says whether that class is known.
    `apart` are, for each given mapping, keys that its class has for other things than the model that writes text. `own`
    are, for each mapping of `chain`, all keys that its class is known to have.
    """

    chain: tuple[Mapping[str, object], ...]
    defaulted: frozenset[str]
    open: tuple[str, ...]
    known: bool
    apart: tuple[frozenset[str], ...] = ()
    own: tuple[frozenset[str], ...] = ()


def filled(chain: Sequence[Mapping[str, object]], inside: Sequence[str], classes: ConfigClasses) -> FilledConfig:
    """The mappings of a configuration, each inside the one before, with the defaults of their classes."""
    entries = list(_entries(chain, inside, classes))
    given = [*chain, *({} for _ in entries[len(chain) :])]
    # A key that an outer mapping gives is no default of an inner class either, unless it is null there.
    told = frozenset(key for mapping in given for key, value in mapping.items() if value is not None)
    said = [told | mapping.keys() for mapping in given]
    added = [_left_out(entry, own) for (_, entry), own in zip(entries, said, strict=True)]
    whole = (
        {**more, **({TYPE: name} if name else {}), **mapping}
        for mapping, (name, _), more in zip(given, entries, added, strict=True)
    )
    last = entries[-1][1]
    apart = tuple(frozenset(entry.apart) for _, entry in entries[: len(chain)])
    own = tuple(entry.every for _, entry in entries)
    return FilledConfig(
        tuple(whole), frozenset().union(*added), _open(last, said[-1]), last is not NO_CLASS, apart, own
    )


def _entries(
    chain: Sequence[Mapping[str, object]], inside: Sequence[str], classes: ConfigClasses
) -> Iterator[tuple[str, ConfigClass]]:
    """The type and the class of each mapping, then of the inner mappings that the configuration leaves out.

    A class that does not know the inner mapping adds no keys: this configuration has another form.
    """
    entry = NO_CLASS
    keys = [next((key for key in inside if outer.get(key) is inner), "") for outer, inner in pairwise(chain)]
    for key, mapping, own in zip(("", *keys), chain, (*keys, ""), strict=True):
        told = mapping.get(TYPE)
        name, entry = _inner(entry, key, told if isinstance(told, str) else "", classes)
        entry = NO_CLASS if own and own not in entry.inside else entry
        yield name, entry
    while key := next((key for key in inside if key in entry.inside), ""):
        name, entry = _inner(entry, key, "", classes)
        yield name, entry


def _inner(outer: ConfigClass, key: str, told: str, classes: ConfigClasses) -> tuple[str, ConfigClass]:
    """The type and the class of the mapping under `key` of `outer`; `told` is the type that it names, if any."""
    usual = outer.inside.get(key, {})
    name = told or str(usual.get(TYPE, ""))
    entry = classes.entries.get(name, NO_CLASS)
    return name, replace(entry, keys={**entry.keys, **usual}) if usual.get(TYPE) == name and name else entry


def _left_out(entry: ConfigClass, said: frozenset[str]) -> dict[str, object]:
    """The keys that a class adds, without those whose default is null."""
    added = {key: value for key, value in entry.keys.items() if value is not None and key != TYPE}
    return {key: value for key, value in added.items() if not _names(entry, key) & said}


def _open(entry: ConfigClass, said: frozenset[str]) -> tuple[str, ...]:
    return tuple(key for key in entry.other if not _names(entry, key) & said)


def _names(entry: ConfigClass, key: str) -> set[str]:
    """A key and its other names."""
    return {key, *(name for name, own in entry.same.items() if own == key)}
