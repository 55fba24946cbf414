"""How an engine's dump is read: rules over what it prints of a layer, which say what the layer stores."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.model import DumpRules, Kind, Param
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.schema.engine import DumpKeys
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.text.diagnostics import Sink


def read_dump(sink: Sink, keys: DumpKeys, kinds: Mapping[str, Kind]) -> DumpRules | None:
    """An engine's `dump`, with every error in the sink; None where it has none."""

    def params_of(kind: str) -> Mapping[str, Param] | None:
        known = guarded(sink, lambda: kinds[kind]) if kind in kinds else None
        return known.params if known else None

    caches = parse_rules(sink, keys.given.get("caches"), "a rule of a dump", params_of)
    words = tuple((name.text, expr) for name, expr in keys.words.items())
    return DumpRules(keys.dtype, keys.query_heads, caches, words) if keys.tree is not None else None
