"""Parse text by lark, and turn lark's errors into kvplan's. lark is imported on the first parse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from kvplan.dsl.text.diagnostics import DslError, fault, listed
from kvplan.dsl.text.source import SourceSpan

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

LONGEST = 4000
DEEPEST = 60
MOST_OPERATORS = 80
WORDS = {
    "LPAR": "'('", "RPAR": "')'", "COMMA": "','", "LBRACE": "'{'", "RBRACE": "'}'", "LSQB": "'['", "RSQB": "']'",
    "INT": "a number", "NAME": "a name", "WORD": "a quoted word", "IF": "'if'", "ELSE": "'else'",
}  # fmt: skip
OPERATORS = {"PLUS", "MINUS", "STAR", "QUOTIENT", "PERCENT", "COMPARE", "AND", "OR", "IF", "SLASH"}
VALUES = {"INT", "NAME", "WORD", "TRUE", "FALSE", "NOT"}
HINTS = (
    ("**", "there is no power; write a product"),
    ("&&", "write 'and'"),
    ("||", "write 'or'"),
    ("!", "write 'not', or '!=' to compare"),
    ("=", "write '==' to compare"),
    ("//", "in a storage expression a tile is written dim/8"),
    ("/", "division is written //"),
    (".", "there are no fractions and no attributes"),
    ('"', "words are quoted with single quotes: 'fp8'"),
    ("'", "the quote is not closed"),
    ("<", "compare two values at a time, with 'and' between comparisons"),
    (">", "compare two values at a time, with 'and' between comparisons"),
)
# A number followed by a separator or a word.
NUMBER, MORE = re.compile(r"\b\d+ *$"), re.compile(r"[,_A-Za-z]")


@cache
def _lark() -> Lark:
    from lark import Lark

    grammar = files("kvplan.dsl.lang").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start=["expr", "storage"], propagate_positions=True, maybe_placeholders=False)


@cache
def _parsed(text: str, start: str) -> Tree[Token] | None:
    """lark's tree, cached by text because many files share expressions; None if too long or nested too deeply."""
    if len(text) > LONGEST or _depth(text) > DEEPEST or _longest_chain(text) > MOST_OPERATORS:
        return None
    return _lark().parse(text, start=start)


def tree(text: str, start: str, span: SourceSpan, exact: bool) -> Tree[Token]:
    """The tree of `text`; `exact` says that `span` begins where the text does. Raises DslError (E001, E002, E006)."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    try:
        if (parsed := _parsed(text, start)) is not None:
            return parsed
    except UnexpectedToken as error:
        at, allowed = error.token.start_pos or 0, set(error.accepts or error.expected)
        if error.token.type == "$END":
            raise _ends(text, allowed, span, exact) from None
        raise _unexpected(text, at, len(error.token), allowed, span, exact) from None
    except UnexpectedCharacters as error:
        raise _unexpected(text, error.pos_in_stream or 0, 1, set(error.allowed or ()), span, exact) from None
    except UnexpectedInput as error:
        raise _unexpected(text, error.pos_in_stream or 0, 1, set(), span, exact) from None
    raise fault("E006", "the expression is too long or nested too deeply", span)


def _depth(text: str) -> int:
    """An upper bound of the nesting: the depth of brackets, and the operators that nest what follows them."""
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest + max(text.count("not "), text.count(" else "), _signs(text))


def _longest_chain(text: str) -> int:
    """The most operators in one expression: the tree of a chain is as deep as the chain is long."""
    pieces = re.split(r"[\[\]{}]", text)
    return max(len(re.findall(r"[-+*%/]|\b(?:and|or)\b", piece)) for piece in pieces)


def _signs(text: str) -> int:
    run = longest = 0
    for letter in text:
        run = run + 1 if letter == "-" else run if letter.isspace() else 0
        longest = max(longest, run)
    return longest


def _ends(text: str, allowed: set[str], span: SourceSpan, exact: bool) -> DslError:
    place = span.at(len(text.rstrip()), 1) if exact else span
    if not text.strip():
        return fault("E002", "there is no expression here", span)
    return fault("E002", f"the expression ends where {_expected(allowed)} is expected", place)


def _unexpected(text: str, at: int, length: int, allowed: set[str], span: SourceSpan, exact: bool) -> DslError:
    at -= text[max(at - 1, 0) : at + 1] in ("**", "//")
    hint, length = next(((h, max(length, len(s))) for s, h in HINTS if text.startswith(s, at)), ("", length))
    if text.startswith("[", at) and "WORD" in allowed:
        hint = "a list is no value: write one, without brackets"
    if text.startswith(("in ", "in["), at):
        hint = "write among(layer, 0, 1, 2), or instead of the expression a list, [0, 1, 2]"
    if not hint and NUMBER.search(text[:at]) and MORE.match(text[at:]):
        hint = "write all digits of the number, without units and separators"
    place = span.at(at, length) if exact else span
    message = f"expected {_expected(allowed)}, not '{text[at : at + length]}'"
    return fault("E001", message, place, help=hint)


def _expected(allowed: Iterable[str]) -> str:
    names = set(allowed) - {"$END", "FILLER"}
    words = ["a value"] if names >= {"INT", "WORD", "LPAR"} else []
    if words:
        names -= VALUES | {"LPAR", "MINUS"}
    if len(names & OPERATORS) > 1:
        names -= OPERATORS | {"ELSE", "LPAR"} | ({"RPAR", "COMMA"} if "COMMA" in names else set())
        words.append("an operator")
    words += sorted(WORDS.get(name, f"'{name.lower()}'") for name in names)
    return listed(words) if words else "the end"
