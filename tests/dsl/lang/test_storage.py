"""Storage expressions: notation to nests."""

from __future__ import annotations

import pytest
from tests.random_sides.storage import storage

from kvplan.dsl.lang.nodes import Align, Item, Leaf, Pad, Repeat
from kvplan.dsl.lang.storage import parse_items
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import inline


def plain(items: tuple[Item, ...]) -> str:
    """A storage expression written out, without short forms."""
    return " ".join(_plain(item) for item in items)


def _plain(item: Item) -> str:
    if isinstance(item, Leaf):
        return item.tensor
    if isinstance(item, Pad | Align):
        return f"{type(item).__name__.lower()}({item.size.text})"
    axis = item.axis
    tiles = "".join(f"{op}{size.text}" for op, size in axis.tiles)
    extra = f"+{axis.extra.text}" if axis.extra else ""
    return f"{axis.name}{tiles}{extra} {{ {plain(item.body)} }}"


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("t", "t"),
        ("t[]", "t"),
        ("t[a b]", "a { b { t } }"),
        ("layer{block{k[dim]v[dim]}}", "layer { block { dim { k } dim { v } } }"),
        ("k[head dim/8 token dim%8]", "head { dim/8 { token { dim%8 { k } } } }"),
        ("dim%64/8 { s }", "dim%64/8 { s }"),
        ("dim/(16 // bytes(dtype)) { s }", "dim/16 // bytes(dtype) { s }"),
        ("tap+draft { x } pad(48) align(n * 2)", "tap+draft { x } pad(48) align(n * 2)"),
        ("pad { align }", "pad { align }"),
    ],
)
def test_notation(text: str, long: str) -> None:
    assert plain(parse_items(text, inline(text))) == long


def test_places() -> None:
    layer = storage("layer { head { k[dim] } }").parts[0][1][0]
    assert isinstance(layer, Repeat)
    head = layer.body[0]
    assert isinstance(head, Repeat)
    assert (head.axis.span.column, head.axis.span.length) == (9, 4)


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("layer {", "E002", 8),
        ("layer { }", "E001", 9),
        ("k[dim//8]", "E001", 6),
        ("k(dim)", "E019", 1),
        ("a } b", "E001", 3),
    ],
)
def test_errors(text: str, code: str, column: int) -> None:
    with pytest.raises(DslError) as caught:
        storage(text)
    found = caught.value.diagnostics[0]
    assert (found.code, found.span.column) == (code, column)
