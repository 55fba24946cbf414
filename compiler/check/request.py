"""One request, as `trace`, `simulate` and `audit` read it: a token range, and each side's tables, as JSON.

Codes Q001 to Q006: every shape that the format does not have is refused by name. `request_fits` asks whether the tables
fit a pair of sides.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest
from kvplan.plan.block_tables import Ring, Slot, Table, block_ids
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Ints

WHOLE_IS = "write a whole number from 0 up"
LARGEST = 2**31 - 1
NAME = "request"


class Copy(NamedTuple):
    """One copy of a trace: from a plane of a prefill worker to one of a decode worker; offsets from the plane."""

    from_worker: int
    from_plane: str
    from_offset: int
    to_worker: int
    to_plane: str
    to_offset: int
    bytes: int


def parse_text(text: str) -> Request:
    """A request from JSON text. Raises BadInput (Q001..Q006)."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadInput("Q001", f"the request is not JSON: {error}", "see docs/trace.md for the format") from None
    return parse(value)


def parse(value: object) -> Request:
    """A request from plain values, as JSON gives them. Raises BadInput (Q002..Q006)."""
    found = _keys(value, "the request", ("tokens", "prefill", "decode"), ("lengths",))
    tables = _tables("prefill", found["prefill"]), _tables("decode", found["decode"])
    return Request(NAME, _range("tokens", found["tokens"]), *tables, _lengths(found.get("lengths", {})))


def _tables(word: str, value: object) -> dict[str, Table]:
    if not isinstance(value, dict):
        raise BadInput(
            "Q003", f"{word} is {_name(value)}, not a mapping from group to table", "see `explain` for groups"
        )
    return {name: _table(f"{word} group {name!r}", table) for name, table in value.items()}


def _table(who: str, value: object) -> Table:
    if isinstance(value, dict) and "slot" in value:
        found = _keys(value, who, ("slot", "at"))
        return Slot(_whole(f"{who}: slot", found["slot"]), _whole(f"{who}: at", found["at"]))
    if isinstance(value, dict) and "at" in value:
        found = _keys(value, who, ("ids", "at"))
        return Ring(_ids(who, found["ids"]), _whole(f"{who}: at", found["at"]))
    found = _keys(value, who, ("first", "ids"))
    return Blocks(_whole(f"{who}: first", found["first"]), _ids(who, found["ids"]))


def _ids(who: str, ids: object) -> Ints:
    if not isinstance(ids, list):
        raise BadInput("Q005", f"{who}: ids is {_name(ids)}, not a list", "list block ids by position, null where none")
    return block_ids(None if b is None else _whole(f"{who}: ids[{i}]", b) for i, b in enumerate(ids))


def _lengths(value: object) -> dict[str, tuple[int, int]]:
    if not isinstance(value, dict):
        raise BadInput("Q003", f"lengths is {_name(value)}, not a mapping", 'write {"NAME": [first needed, end]}')
    return {name: _range(f"lengths of {name!r}", tokens) for name, tokens in value.items()}


def _range(what: str, value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput("Q004", f"{what} is {_name(value)}, not [first needed, end]", "write for example [0, 5000]")
    first, end = (_whole(f"{what}[{i}]", v) for i, v in enumerate(value))
    if first > end:
        raise BadInput("Q004", f"{what} [{first}, {end}) ends before it begins", "write [first needed, end]")
    return first, end


def _keys(value: object, what: str, keys: tuple[str, ...], free: tuple[str, ...] = ()) -> dict[str, object]:
    """A mapping that has all of `keys`, and of others at most those of `free`."""
    if not isinstance(value, dict):
        raise BadInput("Q002", f"{what} is {_name(value)}, not a mapping", _listed(keys, free))
    for key in value:
        if key not in (*keys, *free):
            raise BadInput("Q002", f"{what} has an unknown key {key!r}", nearest(str(key), (*keys, *free)))
    for key in keys:
        if key not in value:
            raise BadInput("Q002", f"{what} has no {key!r}", _listed(keys, free))
    return value


def _listed(keys: tuple[str, ...], free: tuple[str, ...]) -> str:
    return f"it has the keys {', '.join(keys)}" + (f", and may have {', '.join(free)}" if free else "")


def _whole(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput("Q006", f"{what} is {json.dumps(value, default=str)}", WHOLE_IS)
    if value > LARGEST:
        raise BadInput("Q006", f"{what} is {value}, more than {LARGEST}", WHOLE_IS)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        raise BadInput("Q002", f"the request has the key {twice!r} twice in one mapping", "give it once")
    return found


def _name(value: object) -> str:
    words = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else words.get(type(value), "a number")
