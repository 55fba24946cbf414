"""The text of a side, `tp=4,order=nhd`: `/` between values makes a product of sides, `+` joins a list value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import product

from kvplan.compiler.errors import BadInput

EXAMPLE = "write keys with values: tp=4,order=nhd, or with another engine engine=NAME,tp=4"
# The most digits of a number in a side.
MOST_DIGITS = 12


def sides(text: str) -> list[str]:
    """Return every side that a text with products stands for, first key outermost: `tp=1/2,pp=1` gives two."""
    asked = pairs(text)
    choices = [[f"{key}={value}" for value in values.split("/")] for key, values in asked]
    return [",".join(choice) for choice in product(*choices)]


def parse_side(text: str) -> dict[str, str]:
    """Return one side as key -> value, both as written. Raises BadInput (S001..S003)."""
    found: dict[str, str] = {}
    for key, value in pairs(text):
        if "/" in value:
            raise BadInput("S003", f"{key}={value} stands for several sides where one is needed", "give one value")
        if key in found:
            raise BadInput("S002", f"{key!r} is given twice in side {text!r}", "give it once")
        found[key] = value
    return found


def whole(key: str, text: str, least: int = 0) -> int:
    """Parse a decimal whole number of a side. Raises BadInput (S004)."""
    if text.isascii() and text.isdigit() and len(text) > MOST_DIGITS:
        raise BadInput("S004", f"{key}={text} has too many digits", f"write at most {MOST_DIGITS} digits")
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise BadInput("S004", f"{key}={text} is not a whole number from {least} up", f"write {key}=N")
    return int(text)


def unknown(what: str, name: str, known: Iterable[str]) -> BadInput:
    """Return the error for an unknown key, with the nearest name or the allowed names."""
    return BadInput("S005", f"unknown {what} {name!r}", nearest(name, sorted(known)))


def nearest(name: str, known: Sequence[str]) -> str:
    near = close(name, known)
    return f"did you mean '{near}'?" if near else f"allowed: {', '.join(known)}"


def close(name: str, known: Sequence[str]) -> str:
    """Return the nearest name, "" if none is near. Two letters are near to anything: `ep` does not mean `step`."""
    near = (other for other in get_close_matches(name, known) if abs(len(other) - len(name)) <= 2)
    return next(near, "") if len(name) > 2 else ""


def pairs(text: str) -> list[tuple[str, str]]:
    """Return every key with its values, `1/2`, as written. Raises BadInput (S001)."""
    found: list[tuple[str, str]] = []
    for item in (piece.strip() for piece in text.split(",") if piece.strip()):
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip() or any(not v.strip() for v in value.split("/")):
            raise BadInput("S001", f"{item!r} in side {text!r} is not key=value", EXAMPLE)
        found.append((key.strip(), value.strip()))
    return found
