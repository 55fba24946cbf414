"""A list of another program's copies, in the JSON of a trace. Codes Q030..Q035, each with the copy's index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import Labels
from kvplan.compiler.check.oracle import OraclePlane
from kvplan.compiler.check.request import Copy
from kvplan.compiler.errors import BadInput
from kvplan.compiler.json_input import shown
from kvplan.compiler.side.text import nearest

Key = tuple[int, str]
# Rows of (prefill offset, decode offset, bytes, index in the list), by decode plane, then prefill plane.
Moves = Mapping[Key, Mapping[Key, Labels]]
MOST_BYTES = 2**48
KEYS = {"copy": ("from", "to", "bytes"), "end": ("worker", "plane", "offset")}
NUMBERS = {0: "from.worker", 2: "from.offset", 3: "to.worker", 5: "to.offset", 6: "bytes"}


class CopyEnd(NamedTuple):
    """One end of a copy as JSON has it, unchecked."""

    worker: int
    plane: str
    offset: int


def parse_text(text: str) -> list[Copy]:
    """Parse copies from JSON text: a trace, or only its list `copies`. Raises BadInput (Q030..Q032)."""
    try:
        value = json.loads(text, object_pairs_hook=_packed)
    except (ValueError, RecursionError) as error:
        raise BadInput("Q030", f"the copies are not JSON: {error}", "see docs/trace.md for the format") from None
    if isinstance(value, dict) and "copies" not in value:
        raise BadInput("Q031", "the copies have no 'copies'", "give a list, or a mapping with the list 'copies'")
    found = value["copies"] if isinstance(value, dict) else value
    if type(found) is not list:
        raise BadInput("Q031", "copies is not a list", "give a list of copies as `trace` does")
    for index, copy in enumerate(found):
        if type(copy) is not Copy:
            raise _malformed(f"copies[{index}]", copy)
    check_numbers(found)
    return found


def check_numbers(copies: Sequence[Copy]) -> None:
    """Refuse numbers that are not whole or out of range, and planes that are no names. Raises BadInput (Q031, Q032)."""
    columns = list(zip(*copies, strict=True))
    for at, column in enumerate(columns):
        word = NUMBERS.get(at)
        if word is not None and not (
            set(map(type, column)) == {int} and least(at) <= min(column) <= max(column) <= MOST_BYTES
        ):
            raise next(_bad_number(i, at, word, value) for i, value in enumerate(column) if _bad(at, value))
        if word is None and set(map(type, column)) != {str}:
            index = next(i for i, value in enumerate(column) if type(value) is not str)
            raise BadInput("Q031", f"copies[{index}]: a plane is {_shown(column[index])}", "give the plane's name")


def least(at: int) -> int:
    """Return the smallest number allowed in column `at` of a copy."""
    return 1 if NUMBERS[at] == "bytes" else 0


def by_plane(copies: Iterable[Copy]) -> Moves:
    """Return copies as rows, by decode plane, then prefill plane."""
    found: dict[Key, dict[Key, list[tuple[int, int, int, int]]]] = {}
    for index, c in enumerate(copies):
        mine = found.setdefault((c.to_worker, c.to_plane), {}).setdefault((c.from_worker, c.from_plane), [])
        mine.append((c.from_offset, c.to_offset, c.bytes, index))
    return {to: {at: np.array(rows, np.int64) for at, rows in by.items()} for to, by in found.items()}


def check_places(
    moves: Moves, prefill: Mapping[Key, OraclePlane], decode: Mapping[Key, OraclePlane], *sides: BoundSide
) -> None:
    """Refuse workers and planes that do not exist, and bytes beyond a pool. Raises BadInput (Q033..Q035).

    `sides` are the prefill and the decode side; the end of a pool is known if a side has `blocks`.
    """
    pools = [side.blocks for side in sides]
    faults = [
        fault
        for to, by in moves.items()
        for at, rows in by.items()
        for fault in (
            _misplaced("from", "prefill", at, prefill, rows[:, (0, 2, 3)], pools[0]),
            _misplaced("to", "decode", to, decode, rows[:, (1, 2, 3)], pools[1]),
        )
        if fault is not None
    ]
    if faults:
        raise min(faults, key=lambda fault: fault[0])[1]


def _misplaced(
    end: str, word: str, key: Key, planes: Mapping[Key, OraclePlane], rows: Labels, pool: int | None
) -> tuple[int, BadInput] | None:
    """Return the first of `rows` (offset, bytes, index) outside the side's planes, and the error for it."""
    worker, name = key
    index = int(rows[:, 2].min())
    names = [plane for number, plane in planes if number == worker]
    if not names:
        count = 1 + max((number for number, _ in planes), default=-1)
        said = f"copies[{index}].{end}: there is no {word} worker {worker}"
        return index, BadInput("Q033", said, f"{word} has the workers 0 to {count - 1}")
    if key not in planes:
        said = f"copies[{index}].{end}: {word} worker {worker} has no plane {name!r}"
        return index, BadInput("Q034", said, _near(name, names))
    return None if pool is None else _beyond(f"{end}: {word} worker {worker}", planes[key], rows, pool)


def _beyond(where: str, plane: OraclePlane, rows: Labels, pool: int) -> tuple[int, BadInput] | None:
    end = pool * plane.group.ratio * plane.stride
    late = rows[:, 0] + rows[:, 1] > end
    if not late.any():
        return None
    offset, size, index = rows[late][np.argmin(rows[late, 2])].tolist()
    said = f"copies[{index}].{where}, plane {plane.name!r}: bytes {offset} to {offset + size} of {end}"
    return index, BadInput("Q035", said, f"the pool has {pool} blocks; raise blocks= if it has more")


def _near(name: str, names: Sequence[str]) -> str:
    """Return the nearest name, or a few examples if none is near."""
    near = nearest(name, names)
    return near if near.startswith("did") or len(names) < 9 else f"its planes are {', '.join(names[:8])} …"


def _packed(pairs: list[tuple[str, object]]) -> object:
    """Return a JSON mapping as an End or a Copy if it has their keys, which saves memory; otherwise as it is."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        raise BadInput("Q031", f"the copies have the key {twice!r} twice in one mapping", "give it once")
    if len(found) != 3:
        return found
    if "worker" in found and "plane" in found and "offset" in found:
        return CopyEnd(found["worker"], found["plane"], found["offset"])  # type: ignore[arg-type]
    start, end = found.get("from"), found.get("to")
    if type(start) is CopyEnd and type(end) is CopyEnd and "bytes" in found:
        return Copy(*start, *end, found["bytes"])  # type: ignore[arg-type]
    return found


def _malformed(where: str, value: object, sort: str = "copy") -> BadInput:
    """Return the error for a copy, or for an end of one, that lacks the shape of one."""
    keys = KEYS[sort]
    help = f"it needs the keys {', '.join(keys)}"
    if not isinstance(value, dict):
        return BadInput("Q031", f"{where} is {_shown(value)}, not a mapping with a {sort}'s keys", help)
    for key in (key for key in value if key not in keys):
        return BadInput("Q031", f"{where} has an unknown key {key!r}", nearest(str(key), keys))
    for key in (key for key in keys if key not in value):
        return BadInput("Q031", f"{where} has no {key!r}", help)
    at = next(key for key in ("from", "to") if type(value[key]) is not CopyEnd)
    return _malformed(f"{where}.{at}", value[at], "end")


def _bad(at: int, value: object) -> bool:
    return type(value) is not int or not least(at) <= value <= MOST_BYTES


def _bad_number(index: int, at: int, word: str, value: object) -> BadInput:
    if type(value) is int and value > MOST_BYTES:
        return BadInput("Q032", f"copies[{index}].{word} is {value}, more than 2^48", "no pool is that large")
    return BadInput("Q032", f"copies[{index}].{word} is {_shown(value)}", f"write a whole number from {least(at)} up")


def _shown(value: object) -> str:
    return "a mapping of other keys" if isinstance(value, CopyEnd | Copy) else shown(value)
