"""Storage expressions of the orders that a case may name, for any tensors over heads, tokens and elements."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.compiler.bound import BoundTensor

# Loops outside the block, between the block and the tokens, and inside the tokens.
JOINED = {
    "LBHNC": ("layer", "head", ""),
    "LBNHC": ("layer", "", "head"),
    "LHBNC": ("layer head", "", ""),
    "BLHNC": ("", "layer head", ""),
    "BLNHC": ("", "layer", "head"),
    "BHLNC": ("", "head layer", ""),
}


def nest(loops: str, body: str) -> str:
    """`body` under loops, outermost first."""
    for loop in reversed(loops.split()):
        body = f"{loop} {{ {body} }}"
    return body


PAGE, TAPS = "layer block", "head { x[dim] } group { b[st] } group { c[st] }"
STATES: dict[str, str | dict[str, str]] = {
    "channels first": nest(PAGE, "head { x[dim tap] } group { b[st tap] } group { c[st tap] } head { z[dim st] }"),
    "taps first": nest(PAGE, f"tap {{ {TAPS} }} head {{ z[dim st] }}"),
    "drafts": nest(PAGE, f"tap+2 {{ {TAPS} }} head {{ z[st dim] }}"),
    "parts": {
        "conv": nest(PAGE, "head { x[dim tap] } group { c[tap st] } group { b[tap st] }"),
        "ssm": nest("block layer", "head { z[dim st] }"),
    },
    "padded": nest(
        PAGE, "head { x[tap dim] pad(2) } group { b[st tap] c[st tap] } align(16) head { z[dim st] } pad(9)"
    ),
}


def token_axis(t: BoundTensor) -> str:
    """The name of a tensor's token axis."""
    return next(axis for axis, extent in t.axes if not extent)


def lay(order: str, tensors: Sequence[BoundTensor], padding: str, kernel: int, tile: int) -> str | dict[str, str]:
    """`tensors` in one of the orders; `tile` is the largest tile of tokens, and of elements, where there are tiles."""
    row, page = {"row": " pad(3)"}.get(padding, ""), {"page": " pad(24)"}.get(padding, "")
    if order in JOINED:
        return _joined(JOINED[order], tensors, row, page)
    each = {t.name: _alone(order, t, row, kernel, tile) for t in tensors}
    if order == "parts":
        return {name: nest("layer block", text + page) for name, text in each.items()}
    if order == "planes":
        return nest("layer", " ".join(nest("block", text + page) for text in each.values()))
    return nest("layer block", " ".join(each.values()) + page)


def _joined(loops: tuple[str, str, str], tensors: Sequence[BoundTensor], row: str, page: str) -> str:
    outside, between, inside = loops
    by_axis = {token_axis(t): [u for u in tensors if token_axis(u) == token_axis(t)] for t in tensors}
    rows = [nest(f"{axis} {inside}", " ".join(map(_leaf, some)) + row) for axis, some in by_axis.items()]
    return nest(f"{outside} block", nest(between, " ".join(rows)) + page)


def _alone(order: str, t: BoundTensor, row: str, kernel: int, tile: int) -> str:
    """One tensor by itself, inside its block."""
    axis, elements = token_axis(t), _elements(t)
    if order == "parts":
        return nest(f"{axis} head", _leaf(t) + row)
    if order == "dim tiles" and elements:
        return nest(f"head {elements}/{tile // 2} {axis} {elements}%{tile // 2}", t.name)
    if order == "token tiles":
        rows = kernel // t.tokens_per_row
        size = next((n for n in (tile, tile // 2, 2) if rows % n == 0 and rows > n), 1)
        return nest(f"head {axis}/{size} {elements} {axis}%{size}", t.name + row)
    return nest(f"head {axis}", _leaf(t) + row)


def _elements(t: BoundTensor) -> str:
    return " ".join(axis for axis, extent in t.axes if extent and axis != "head")


def _leaf(t: BoundTensor) -> str:
    return f"{t.name}[{_elements(t)}]" if _elements(t) else t.name
