"""Mappings laid over each other: an engine over the one it extends, a variant over its family."""

from __future__ import annotations

from kvplan.dsl.text.yaml_reader import Entry, Table


def merged(base: Table, own: Table) -> Table:
    """`own` laid over `base`: mappings deep, everything else replaced."""
    found = {entry.key.text: entry for entry in base.entries}
    for entry in own.entries:
        under = found.get(entry.key.text)
        value = entry.value
        if under is not None and isinstance(under.value, Table) and isinstance(value, Table):
            value = merged(under.value, value)
        found[entry.key.text] = Entry(entry.key, value)
    return Table(tuple(found.values()), own.span)


def without(table: Table, *keys: str) -> Table:
    """`table` less some of its keys."""
    return Table(tuple(entry for entry in table.entries if entry.key.text not in keys), table.span)
