"""The digests of the shipped models for legal tp 1, 2, 4, 8 on both sides. Run as a program it prints them."""

from __future__ import annotations

from itertools import product

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import Library, load

SIZES = (1, 2, 4, 8)
HEAD = "# model, prefill tp, decode tp, plan digest, or the code of the refusal; `make goldens` writes this\n"


def table() -> str:
    """One line per pair, models sorted."""
    library = load()
    pairs = product(sorted(library.models), SIZES, SIZES)
    return HEAD + "".join(f"{model} {p} {d} {found(library, model, p, d)}\n" for model, p, d in pairs)


def found(library: Library, model: str, prefill: int, decode: int) -> str:
    try:
        return compile_pair(library, model, f"tp={prefill}", f"tp={decode}").plan.digest
    except Refused as error:
        return error.code


if __name__ == "__main__":
    print(table(), end="")
