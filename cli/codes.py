"""What is written about codes: those of layout files, the compiler and the command line in codes.md, the runtime's in
its classes. Nothing of it is read before somebody asks.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from inspect import cleandoc
from typing import NamedTuple

SECTION = re.compile(r"^## ([A-Z]\d{3}): (.*)\n\n", re.MULTILINE)
# The letters of codes that layout files have; docs/errors.md has an example for each of these.
LAYOUTS = "YKETBF"


class ErrorCode(NamedTuple):
    """One sentence, and a long text, some with an example."""

    title: str
    text: str


@cache
def written() -> dict[str, ErrorCode]:
    """The codes of codes.md, in its order."""
    text = re.sub(r"^# .*\n\n", "", files("kvplan.cli").joinpath("codes.md").read_text("utf-8"), flags=re.MULTILINE)
    _, *sections = SECTION.split(text)
    parts = zip(sections[::3], sections[1::3], sections[2::3], strict=True)
    return {code: ErrorCode(title, body.strip()) for code, title, body in parts}


def all_codes() -> dict[str, ErrorCode]:
    """Every code: those that are written here, then those of the runtime."""
    from kvplan.runtime import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.KvplanError)]
    return {
        **written(),
        **{kind.code: ErrorCode(kind.__name__, cleandoc(kind.__doc__ or "")) for kind in reversed(kinds)},
    }


def layout_page() -> str:
    """The codes of layout files as Markdown, for docs/errors.md."""
    every = {code: said for code, said in written().items() if code[0] in LAYOUTS}
    return "\n".join(f"### {code}: {title}\n\n{text}\n" for code, (title, text) in every.items())
