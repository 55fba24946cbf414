"""Read JSON that people or engines write: values of the expected type, or an error that says where they are not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest


@dataclass(frozen=True, slots=True)
class JsonInput:
    """One format: its name, the page that describes it, and the error codes for its faults.

    `text`: not JSON; `keys`: a key is unknown, missing or given twice; `types`: a value has another type;
    `numbers`: not a whole number, too small, or not below `most`.
    """

    what: str
    docs: str
    text: str
    keys: str
    types: str
    numbers: str
    most: int

    def read(self, text: str) -> object:
        """Parse a text into its value."""
        try:
            return json.loads(text, object_pairs_hook=self._once, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            message = f"the {self.what} is not JSON: {error}"
            raise BadInput(self.text, message, f"see {self.docs} for the format") from None

    def bad(self, code: str, message: str, help: str = "") -> NoReturn:
        raise BadInput(code, message, help or f"see {self.docs} for the format")

    def mapping(
        self, value: object, where: str, needed: Sequence[str] = (), free: Sequence[str] | None = (), code: str = ""
    ) -> Mapping[str, Any]:
        """Check that a value is a mapping with all keys `needed`, and others only from `free` (None: any others)."""
        if not isinstance(value, dict):
            self.bad(code or self.keys, f"{where} is {shown(value)}, not a mapping", _listed(needed, free))
        for key in value:
            if free is not None and key not in (*needed, *free):
                self.bad(self.keys, f"{where} has an unknown key {key!r}", nearest(str(key), (*needed, *free)))
        for key in needed:
            if key not in value:
                self.bad(self.keys, f"{where} has no {key!r}", _listed(needed, free))
        return value

    def sequence(self, value: object, where: str, help: str = "", code: str = "") -> list[Any]:
        if not isinstance(value, list):
            self.bad(code or self.types, f"{where} is {shown(value)}, not a list", help)
        return value

    def words(self, value: object, where: str) -> str:
        if not isinstance(value, str):
            self.bad(self.types, f"{where} is {shown(value)}, not a text")
        return value

    def whole(self, value: object, where: str, least: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.bad(self.numbers, f"{where} is {shown(value)}", f"write a whole number from {least} up")
        if value >= self.most:
            self.bad(self.numbers, f"{where} is {value}", f"write a whole number below {self.most}")
        return value

    def _once(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
            self.bad(self.keys, f"the {self.what} has the key {twice!r} twice in one mapping", "give it once")
        return found


def shown(value: object) -> str:
    """Return a value for a sentence: as written if short, else its type."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, default=str)
    return text if len(text) < 40 else f"{text[:36]} …"


def _listed(needed: Sequence[str], free: Sequence[str] | None) -> str:
    keys = f"it needs the keys {', '.join(needed)}" if needed else ""
    return keys + (f", and may have {', '.join(free)}" if keys and free else "")


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
