"""The content of a request: written into memory and verified by plain indexing, without a plan's tables."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import numpy as np
import numpy.typing as npt
from tests.runtime.helpers.plans import ROW, STATE, Bytes, Model, Shape, held
from tests.runtime.helpers.worlds import Truth, truth

from kvplan.plan.types import Blocks

PAINT = 0xA5
Arrays = dict[str, Bytes]
Rows = npt.NDArray[np.int64]


def content(model: Model, request: str, end: int) -> Truth:
    """The content of a request of `end` tokens: always the same for one id, different for each id."""
    return truth(model, end, crc32(request.encode()))


def paint(arrays: Arrays) -> None:
    """Make all memory look unused, so that a wrong read or write shows."""
    for array in arrays.values():
        array[:] = PAINT


def write(
    shape: Shape, model: Model, worker: int, arrays: Arrays, what: Truth, table: Blocks, rows: Rows,
    layers: Iterable[int] | None = None,
) -> None:  # fmt: skip
    """Put tokens `rows` of a request into the blocks of its table, in all layers or some."""
    heads, some = held(model, shape, worker), set(model.layers if layers is None else layers)
    for index, pages in enumerate(_pages(shape, model, len(heads), arrays)):
        block, at = _place(shape, table, rows)
        if model.layers[index] in some:
            pages[block, :, at] = what.k[index, heads.start : heads.stop, rows].reshape(len(rows), len(heads), ROW)


def write_states(
    shape: Shape, model: Model, worker: int, arrays: Arrays, what: Truth, slot: int, layers: Iterable[int] | None = None
) -> None:
    heads, some = held(model, shape, worker), set(model.layers if layers is None else layers)
    for index, states in enumerate(_states(model, len(heads), arrays)):
        if model.layers[index] in some:
            states[slot] = what.s[index, heads.start : heads.stop]


def wrong_rows(
    shape: Shape, model: Model, worker: int, arrays: Arrays, what: Truth, table: Blocks, tokens: tuple[int, int]
) -> str:
    """Why the rows of a table are not these tokens, with paint elsewhere in its blocks; empty if they are."""
    heads, first = held(model, shape, worker), table.first * shape.kernel * shape.ratio
    rows = np.arange(first, first + len(table.ids) * shape.kernel * shape.ratio)
    mine = (rows >= tokens[0]) & (rows < tokens[1])
    for index, pages in enumerate(_pages(shape, model, len(heads), arrays)):
        block, at = _place(shape, table, rows)
        want = np.full((len(rows), len(heads), ROW), PAINT, np.uint8)
        want[mine] = what.k[index, heads.start : heads.stop, tokens[0] : tokens[1]].swapaxes(0, 1)
        bad = rows[(pages[block, :, at] != want).any(axis=(1, 2))]
        if len(bad):
            return f"layer {model.layers[index]}: tokens {bad[:4].tolist()} of {len(bad)}, asked for {list(tokens)}"
    return ""


def wrong_states(shape: Shape, model: Model, worker: int, arrays: Arrays, what: Truth, slot: int) -> str:
    heads = held(model, shape, worker)
    for index, states in enumerate(_states(model, len(heads), arrays)):
        if not np.array_equal(states[slot], what.s[index, heads.start : heads.stop]):
            return f"layer {model.layers[index]}: state in slot {slot}"
    return ""


def changed(shape: Shape, model: Model, arrays: Arrays, kind: str, ids: Iterable[int]) -> tuple[int, ...]:
    """The logical blocks, or slots, among `ids` that are not all paint."""
    asked = np.array(sorted(ids), np.int64)
    found: set[int] = set()
    for name, array in arrays.items():
        if name.startswith(f"{kind}."):
            blocks = array.reshape(-1, (shape.ratio if kind == "kv" else 1) * array.shape[1])
            found |= set(asked[(blocks[asked] != PAINT).any(axis=1)].tolist())
    return tuple(sorted(found))


def repaint(shape: Shape, arrays: Arrays, kind: str, ids: Iterable[int]) -> None:
    """Scribble over logical blocks, or slots, that nobody may read or write any more."""
    asked = np.array(sorted(ids), np.int64)
    for name, array in arrays.items():
        if name.startswith(f"{kind}."):
            array.reshape(-1, (shape.ratio if kind == "kv" else 1) * array.shape[1])[asked] = PAINT


def _place(shape: Shape, table: Blocks, rows: Rows) -> tuple[Rows, Rows]:
    position, within = np.divmod(rows, shape.kernel * shape.ratio)
    logical = table.ids[position - table.first]
    assert (logical >= 0).all()
    return logical * shape.ratio + within // shape.kernel, within % shape.kernel


def _pages(shape: Shape, model: Model, heads: int, arrays: Arrays) -> Iterable[Bytes]:
    """By layer, (kernel block, head, token, byte)."""
    for layer in model.layers:
        array = arrays[f"kv.{layer}"]
        steps = array.strides[0], shape.kernel * ROW, ROW, 1
        yield np.lib.stride_tricks.as_strided(array, (len(array), heads, shape.kernel, ROW), steps)


def _states(model: Model, heads: int, arrays: Arrays) -> Iterable[Bytes]:
    """By layer, (slot, head, byte)."""
    for layer in model.layers if model.state else ():
        yield arrays[f"state.{layer}"].reshape(-1, heads, STATE)
