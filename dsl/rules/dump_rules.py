"""How an engine's dump is read: rules over what it prints of a layer, which say what the layer stores."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.model import DumpRules, Kind, Param
from kvplan.dsl.rules.rule import foreign, parse_rules
from kvplan.dsl.schema.engine import DUMP
from kvplan.dsl.schema.fields import fields, guarded
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree


def parse_dump(sink: Sink, tree: Tree | None, kinds: Mapping[str, Kind]) -> DumpRules | None:
    """An engine's `dump`, with every error in the sink; None where it has none."""
    if tree is None:
        return None
    found = fields(sink, tree, DUMP.what, DUMP.known, DUMP.required)
    dtype, heads = (foreign(sink, found.get(word), word) for word in ("dtype", "query_heads"))

    def params_of(kind: str) -> Mapping[str, Param] | None:
        known = guarded(sink, lambda: kinds[kind]) if kind in kinds else None
        return known.params if known else None

    return DumpRules(dtype, heads, parse_rules(sink, found.get("caches"), "a rule of a dump", params_of))
