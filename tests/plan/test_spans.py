"""The spans of a request against plain indexing: each byte from the same head, token and element."""

import numpy as np
import pytest
from tests.runtime.helpers.plans import ROW, STATE, Model, Shape, held, plan
from tests.runtime.helpers.worlds import request, tables

from kvplan.plan import planes as names
from kvplan.plan import spans
from kvplan.runtime.transfer.demand import demand

CASES = [
    (Shape(2), Shape(1), (0, 16)),
    (Shape(1), Shape(2), (3, 14)),
    (Shape(1, kernel=6), Shape(1, kernel=4, ratio=3), (1, 23)),
]


def spelled(prefill: Shape, decode: Shape, model: Model, worker: int, tokens: tuple[int, int], sides: list) -> set:
    """Every byte as (prefill worker, plane, offset, decode plane, offset), by hand."""
    found = set()
    for layer in range(len(model.layers)):
        for head in held(model, decode, worker):
            source = next(n for n in range(prefill.workers) if head in held(model, prefill, n))
            places = [(prefill, source, sides[0]), (decode, worker, sides[1])]
            for token in range(*tokens):
                at = [
                    offset(shape, head - held(model, shape, n).start, len(held(model, shape, n)), token, table)
                    for shape, n, table in places
                ]
                found |= {(source, layer, at[0] + byte, layer, at[1] + byte) for byte in range(ROW)}
            at = [
                table["state"].slot * len(held(model, shape, n)) * STATE + (head - held(model, shape, n).start) * STATE
                for shape, n, table in places
            ]
            plane = layer + len(model.layers)
            found |= {(source, plane, at[0] + byte, plane, at[1] + byte) for byte in range(STATE)}
    return found


def offset(shape: Shape, head: int, heads: int, token: int, table: dict) -> int:
    logical, at = divmod(token, shape.kernel * shape.ratio)
    block = int(table["kv"].ids[logical]) * shape.ratio + at // shape.kernel
    return block * (heads * shape.kernel * ROW + shape.tail) + head * shape.kernel * ROW + at % shape.kernel * ROW


@pytest.mark.parametrize(("prefill", "decode", "tokens"), CASES)
def test_copies_are_what_indexing_says(prefill: Shape, decode: Shape, tokens: tuple[int, int]) -> None:
    model, made = Model(), plan(prefill, decode)
    sides = [tables(shape, model, [7, 2, 9, 4, 1, 5], 0, 3 + n, tokens[1]) for n, shape in enumerate((prefill, decode))]
    for worker in range(decode.workers):
        wanted = demand(made, worker, request("r", tokens, *sides))
        found = []
        for read in made.reads[worker]:
            copied = spans.copies(made, worker, read, wanted.runs[read.groups, 0])
            for p_plane, p_offset, d_plane, d_offset, size in copied.tolist():
                found += [(read.worker, p_plane, p_offset + byte, d_plane, d_offset + byte) for byte in range(size)]
        assert len(found) == len(set(found))
        assert set(found) == spelled(prefill, decode, model, worker, tokens, sides)


def test_a_run_of_tokens_is_one_span_where_both_sides_are_contiguous() -> None:
    made = plan(Shape(1), Shape(1), Model(state=False))
    sides = [tables(Shape(1), Model(state=False), [7, 2], 0, 0, 7)] * 2
    wanted = demand(made, 0, request("r", (0, 7), *sides))
    found = spans.copies(made, 0, made.reads[0][0], wanted.runs["kv", 0])
    assert sorted(found[:, 4].tolist()) == [3 * ROW] * 4 + [2 * 4 * ROW] * 2


def test_each_token() -> None:
    from kvplan.plan.types import Runs

    cut = spans.each_token(Runs(*(np.array(c) for c in ([7, 8], [1, 0], [5, 6], [0, 2], [2, 1]))))
    assert [column.tolist() for column in cut] == [[7, 7, 8], [1, 2, 0], [5, 5, 6], [0, 1, 2], [1, 1, 1]]
    assert len(names.planes(plan(Shape(1), Shape(1)).prefill.workers[0])) == 4
