"""Values of a dump's JSON, each of the type that is asked for, or an error that says where it is not (D001..D004)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest

LARGEST = 2**62
FORMAT = "docs/from-cache.md has the format"


def from_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadInput("D001", f"the dump is not JSON: {error}", FORMAT) from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        bad("D003", f"key {twice!r} is given twice in one mapping", "give it once")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def bad(code: str, said: str, help: str = FORMAT) -> NoReturn:
    raise BadInput(code, said, help)


def a_mapping(
    value: object, where: str, known: Sequence[str] | None = None, needed: Sequence[str] = ()
) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        bad("D003", f"{where} must be a mapping, not {shown(value)}")
    for key in value:
        if known is not None and key not in known:
            bad("D003", f"{where} has an unknown key {key!r}", nearest(key, known))
    missing = [key for key in needed if key not in value]
    if missing:
        bad("D003", f"{where} lacks {missing[0]!r}")
    return value


def a_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        bad("D003", f"{where} must be a list, not {shown(value)}")
    return value


def a_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        bad("D003", f"{where} must be a text, not {shown(value)}")
    return value


def an_option(value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        bad("D003", f"{where} must be a text or a number, not {shown(value)}")
    return str(value)


def a_whole(value: object, where: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        bad("D004", f"{where} is {shown(value)}, not a whole number from {least} up")
    return value


def shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)[:40]


def some_numbers(value: object, where: str, least: int) -> dict[str, int]:
    return {key: a_whole(number, f"{where}.{key}", least) for key, number in a_mapping(value, where).items()}
