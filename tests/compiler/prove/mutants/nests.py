"""Damage to the nests of a table: each to the damaged nests, or None where there is nothing to damage so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from kvplan.plan.types import Loop, Nest, Place

Nests = tuple[Nest, ...]
OfNests = Callable[[Nests], Nests | None]
OfNest = Callable[[Nest], Nest | None]


def first(change: OfNest) -> OfNests:
    """A change of the first nest that it can change."""

    def over(nests: Nests) -> Nests | None:
        for i, nest in enumerate(nests):
            other = change(nest)
            if other is not None and other != nest:
                return (*nests[:i], other, *nests[i + 1 :])
        return None

    return over


def moved(nest: Nest, prefill: Place = (0, 0), decode: Place = (0, 0)) -> Nest:
    return replace(nest, prefill=_plus(nest.prefill, prefill), decode=_plus(nest.decode, decode))


def _plus(one: Place, other: Place, times: int = 1) -> Place:
    return one[0] + times * other[0], one[1] + times * other[1]


def shifted(prefill: int, decode: int) -> OfNest:
    """Moved by so many bytes on either side."""
    return lambda nest: moved(nest, (0, prefill), (0, decode))


def resized(by: int) -> OfNest:
    return lambda nest: replace(nest, bytes=nest.bytes + by)


def looped(change: Callable[[Loop], Loop | None], axis: str = "", last: bool = True) -> OfNest:
    """The last (or first) loop changed, of those over `axis`."""

    def over(nest: Nest) -> Nest | None:
        for loop in reversed(nest.loops) if last else nest.loops:
            other = change(loop) if axis in ("", loop.axis) else None
            if other is not None:
                return replace(nest, loops=tuple(other if one is loop else one for one in nest.loops))
        return None

    return over


def another_layer(side: str) -> OfNest:
    """A layer further on one side: the next plane, or the next place in the page."""

    def over(nest: Nest) -> Nest | None:
        step = next((getattr(loop, side) for loop in nest.loops if loop.axis == "layer"), None)
        return None if step is None else moved(nest, **{side: step})

    return over


def another_row(side: int) -> OfNest:
    """One row of tokens further on one side."""

    def over(nest: Nest) -> Nest | None:
        steps = [(0, nest.token_step[i] if nest.token_step and i == side else 0) for i in (0, 1)]
        return moved(nest, steps[0], steps[1])

    return over


def swapped(nests: Nests) -> Nests | None:
    """Two turns of a loop inside a layer exchange their sources: two heads, or two parts of one."""
    for i, nest in enumerate(nests):
        for loop in nest.loops:
            if loop.axis != "layer" and loop.count > 1:
                return (*nests[:i], *_crossed(nest, loop), *nests[i + 1 :])
    return None


def _crossed(nest: Nest, loop: Loop) -> Iterator[Nest]:
    """The turns of `loop` as nests of their own, the first two with each other's source."""
    rest = tuple(one for one in nest.loops if one is not loop)
    for turn in range(loop.count):
        source = {0: 1, 1: 0}.get(turn, turn)
        yield replace(nest, prefill=_plus(nest.prefill, loop.prefill, source),
                      decode=_plus(nest.decode, loop.decode, turn), loops=rest)  # fmt: skip


def halves(nests: Nests) -> Nests | None:
    """Both halves of a span exchange their sources."""
    for i, nest in enumerate(nests):
        half = nest.bytes // 2
        if half and nest.bytes % 2 == 0:
            cut = replace(nest, bytes=half)
            return (*nests[:i], moved(cut, decode=(0, half)), moved(cut, prefill=(0, half)), *nests[i + 1 :])
    return None


def tensors_swapped(nests: Nests) -> Nests | None:
    """Two nests of equal spans exchange their sources."""
    for i, one in enumerate(nests):
        for j, other in enumerate(nests[:i]):
            if one.bytes == other.bytes and one.prefill != other.prefill:
                mine = {i: replace(one, prefill=other.prefill), j: replace(other, prefill=one.prefill)}
                return tuple(mine.get(n, nest) for n, nest in enumerate(nests))
    return None


def without(nests: Nests) -> Nests:
    return nests[1:]


def twice(nests: Nests) -> Nests:
    return (*nests, nests[0])


def of_row(prefill: int, decode: int) -> OfNest:
    """Another token step."""
    return lambda nest: (
        replace(nest, token_step=(nest.token_step[0] + prefill, nest.token_step[1] + decode))
        if nest.token_step
        else None
    )


def two_rows(nest: Nest) -> Nest | None:
    """A loop that also moves the next token."""
    if nest.token_step is None:
        return None
    return replace(nest, loops=(*nest.loops, Loop("token", 2, (0, nest.token_step[0]), (0, nest.token_step[1]))))


def other_hops(nest: Nest) -> Nest:
    return replace(nest, hops=tuple((rows, p + 2, d) for rows, p, d in nest.hops))


def joined(nest: Nest) -> Nest | None:
    """The innermost loops over one axis as a single loop, which is right at its second turn and at its last."""
    inner = nest.loops[-1:]
    while len(inner) < len(nest.loops) and nest.loops[-1 - len(inner)].axis == inner[-1].axis:
        inner = nest.loops[-1 - len(inner) :]
    if len(inner) < 2:
        return None
    count = prod(loop.count for loop in inner)
    return replace(nest, loops=(*nest.loops[: -len(inner)], replace(inner[-1], count=count)))


NESTS: dict[str, OfNests] = {
    "drop a span": without,
    "a span twice": twice,
    "shift the source": first(lambda nest: moved(nest, (0, nest.bytes))),
    "shift the source by an element": first(shifted(2, 0)),
    "shift the source by a byte": first(shifted(1, 0)),
    "shift the source by half of it": first(lambda nest: moved(nest, (0, -(nest.bytes // 2)))),
    "shift the destination": first(lambda nest: moved(nest, decode=(0, nest.bytes))),
    "shift the destination by an element": first(shifted(0, 2)),
    "shift both": first(shifted(2, 2)),
    "before the page": first(lambda nest: moved(nest, (0, -nest.prefill[1] - 1), (0, -nest.decode[1] - 1))),
    "shorten": first(resized(-2)),
    "shorten by a byte": first(resized(-1)),
    "no bytes": first(lambda nest: replace(nest, bytes=0)),
    "join what lies behind": first(resized(4)),
    "join more of it": first(resized(1)),
    "join what lies before": first(lambda nest: moved(replace(nest, bytes=nest.bytes + 4), (0, -4), (0, -4))),
    "swap two heads": swapped,
    "swap two halves": halves,
    "swap two tensors": tensors_swapped,
    "wrong layer": first(another_layer("prefill")),
    "wrong layer, destination": first(another_layer("decode")),
    "wrong plane": first(lambda nest: moved(nest, (1, 0))),
    "no such plane": first(lambda nest: moved(nest, (99, 0))),
    "wrong plane, destination": first(lambda nest: moved(nest, decode=(1, 0))),
    "tiles of no rows": first(lambda nest: replace(nest, hops=((0, 2, 2),))),
    "one turn fewer": first(looped(lambda loop: replace(loop, count=loop.count - 1))),
    "one turn more": first(looped(lambda loop: replace(loop, count=loop.count + 1))),
    "one layer fewer": first(looped(lambda loop: replace(loop, count=loop.count - 1), "layer")),
    "one layer more": first(looped(lambda loop: replace(loop, count=loop.count + 1), "layer")),
    "wrong step": first(looped(lambda loop: replace(loop, prefill=_plus(loop.prefill, (0, 2))))),
    "wrong step, destination": first(looped(lambda loop: replace(loop, decode=_plus(loop.decode, (0, 2))))),
    "a loop that stands still": first(looped(lambda loop: replace(loop, prefill=(0, 0), decode=(0, 0)))),
    "loops joined": first(joined),
    "a loop too many": first(lambda nest: replace(nest, loops=(Loop("nobody", 2, (0, 2), (0, 2)), *nest.loops))),
    "another axis": first(looped(lambda loop: replace(loop, axis="nobody"))),
    "a tensor named twice": first(lambda nest: replace(nest, tensors=(*nest.tensors, nest.tensors[0]))),
    "another tensor": first(lambda nest: replace(nest, tensors=("nobody",))),
}
OF_TOKENS: dict[str, OfNests] = {
    "one row further": first(another_row(0)),
    "one row further, destination": first(another_row(1)),
    "wrong token step": first(of_row(2, 0)),
    "wrong token step, destination": first(of_row(0, 2)),
    "no token step": first(lambda nest: replace(nest, token_step=None)),
    "two rows at once": first(two_rows),
    "tiles forgotten": first(lambda nest: replace(nest, hops=())),
    "wrong tiles": first(other_hops),
}
