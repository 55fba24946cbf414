"""One request, as `trace`, `simulate` and `audit` read it: a token range, and each side's tables, as JSON.

Codes Q001 to Q006: every shape that the format does not have is refused by name. `request_fits` asks whether the tables
fit a pair of sides.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.compiler.json_input import JsonInput, shown
from kvplan.plan.block_tables import Ring, Slot, Table, block_ids
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Interval, Ints

NAME = "request"
JSON = JsonInput(NAME, "docs/trace.md", text="Q001", keys="Q002", types="Q003", numbers="Q006", most=2**31)


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
    return parse(JSON.read(text))


def parse(value: object) -> Request:
    """A request from plain values, as JSON gives them. Raises BadInput (Q002..Q006)."""
    given = JSON.mapping(value, "the request", ("tokens", "prefill", "decode"), ("lengths",))
    tables = _tables("prefill", given["prefill"]), _tables("decode", given["decode"])
    own = JSON.mapping(given.get("lengths", {}), "lengths", free=None, code=JSON.types)
    lengths = {name: _range(f"lengths of {name!r}", tokens) for name, tokens in own.items()}
    return Request(NAME, _range("tokens", given["tokens"]), *tables, lengths)


def _tables(word: str, value: object) -> dict[str, Table]:
    tables = JSON.mapping(value, word, free=None, code=JSON.types)
    return {name: _table(f"{word} group {name!r}", table) for name, table in tables.items()}


def _table(where: str, value: object) -> Table:
    if isinstance(value, dict) and "slot" in value:
        given = JSON.mapping(value, where, ("slot", "at"))
        return Slot(JSON.whole(given["slot"], f"{where}: slot"), JSON.whole(given["at"], f"{where}: at"))
    if isinstance(value, dict) and "at" in value:
        given = JSON.mapping(value, where, ("ids", "at"))
        return Ring(_ids(where, given["ids"]), JSON.whole(given["at"], f"{where}: at"))
    given = JSON.mapping(value, where, ("first", "ids"))
    return Blocks(JSON.whole(given["first"], f"{where}: first"), _ids(where, given["ids"]))


def _ids(where: str, value: object) -> Ints:
    ids = JSON.sequence(value, f"{where}: ids", "list block ids by position, null where none", "Q005")
    return block_ids(None if b is None else JSON.whole(b, f"{where}: ids[{i}]") for i, b in enumerate(ids))


def _range(what: str, value: object) -> Interval:
    if not isinstance(value, list) or len(value) != 2:
        JSON.bad("Q004", f"{what} is {shown(value)}, not [first needed, end]", "write for example [0, 5000]")
    first, end = (JSON.whole(token, f"{what}[{i}]") for i, token in enumerate(value))
    if first > end:
        JSON.bad("Q004", f"{what} [{first}, {end}) ends before it begins", "write [first needed, end]")
    return first, end
