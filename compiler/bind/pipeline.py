"""How a pipeline is cut: layers per stage, by a named rule or an explicit list."""

from __future__ import annotations

from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.text import nearest, whole
from kvplan.dsl.schema.engine import LAYERS


def stages(rule: str, layers: int, count: int, listed: str | None = None) -> tuple[range, ...]:
    """The global layers of every stage. `listed` is a side's `31+30`. Raises BadInput, Refused."""
    if count > layers:
        raise Refused("C111", f"{layers} layers cannot be cut into {count} stages", f"use pp <= {layers}")
    sizes = _listed(listed, layers, count) if listed else _by_rule(rule, layers, count)
    starts = [sum(sizes[:stage]) for stage in range(count)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _listed(text: str, layers: int, count: int) -> list[int]:
    sizes = [whole("layers", piece) for piece in text.split("+")]
    if len(sizes) != count or sum(sizes) != layers:
        raise BadInput(
            "S007", f"layers={text} is not {count} stages of {layers} layers together", "one number per stage"
        )
    return sizes


def _by_rule(rule: str, layers: int, count: int) -> list[int]:
    """Where layers do not come out even, one more for the first stages (`even`), for those before the last one
    (`remainder_before_last`), or for the last ones (`remainder_last`)."""
    each, rest = divmod(layers, count)
    if rule == "even":
        return [each + (stage < rest) for stage in range(count)]
    if rule == "remainder_before_last":
        return [each + (0 < count - 1 - stage <= rest) for stage in range(count)]
    if rule == "remainder_last":
        return [each + (count - stage <= rest) for stage in range(count)]
    raise BadInput("S006", f"unknown pipeline rule {rule!r}", nearest(rule, LAYERS))
