"""How an engine's dump is read: rules over what it prints of a layer, which say what the layer stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.dsl.diagnostics import Sink
from kvplan.dsl.fields import fields, guarded
from kvplan.dsl.forms_engines import DUMP
from kvplan.dsl.nodes import Expr
from kvplan.dsl.reader import Tree
from kvplan.dsl.recognise import Rule, foreign, parse_rules

if TYPE_CHECKING:
    from kvplan.dsl.model import Kind, Param


@dataclass(frozen=True, slots=True)
class DumpRules:
    """What a layer's print says: `dtype` and `query_heads` of the model, its cache by the first rule that holds."""

    dtype: Expr | None
    query_heads: Expr | None
    caches: tuple[Rule, ...]


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
