"""Mappings laid over each other: an engine over the one it extends, a variant over its family."""

from __future__ import annotations

from kvplan.dsl.text.yaml_reader import YamlEntry, YamlTable


def merged(base: YamlTable, own: YamlTable) -> YamlTable:
    """`own` laid over `base`: mappings deep, everything else replaced."""
    entries = {entry.key.text: entry for entry in base.entries}
    for entry in own.entries:
        under = entries.get(entry.key.text)
        value = entry.value
        if under is not None and isinstance(under.value, YamlTable) and isinstance(value, YamlTable):
            value = merged(under.value, value)
        entries[entry.key.text] = YamlEntry(entry.key, value)
    return YamlTable(tuple(entries.values()), own.span)


def without(table: YamlTable, *keys: str) -> YamlTable:
    """`table` less some of its keys."""
    return YamlTable(tuple(entry for entry in table.entries if entry.key.text not in keys), table.span)
