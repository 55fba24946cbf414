"""The functions of expressions: how each is called, and its result. FOREIGN has those for foreign values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FUNCTIONS = {
    "ceildiv(a, b)": "a / b, rounded up",
    "min(a, …)": "the smallest of one or more numbers",
    "max(a, …)": "the largest of one or more numbers",
    "gcd(a, …)": "the greatest common divisor of one or more numbers",
    "lcm(a, …)": "the least common multiple of one or more numbers",
    "pow2(n)": "the smallest power of two from n up",
    "bytes(t)": "the size of an element type",
    "multiples(n)": "a set of sizes: every multiple of n",
    "sizes(a, …)": "a set of sizes: those listed",
    "least(s)": "the smallest of a set",
    "most(s)": "the largest of a set, 0 where there is no end of them",
    "largest(s, n)": "the largest of a set that divides n",
    "within(s, n)": "the largest of a set that is not more than n; the smallest where none is",
    "among(x, y, …)": "whether x is one of the others",
    "given(name)": "whether a side gives the option or a model the parameter, even if with the default value",
    "rank(axis)": "a worker's coordinate; in `mesh: derived` only",
}
# Functions of a name, not of its value: `rank(tp)` is itself a name with a value.
ABOUT_NAMES = {"given": "an option or a parameter", "rank": "a mesh axis"}
FOREIGN = {
    "has(x, …)": "whether all of them are there, and not null",
    "first(x, …)": "the first of them that is there",
    "agreed(x, …)": "the first of them that is there; a doubt names those that say otherwise",
    "at(x, i)": "entry i of a list or letter i of a word, from 0; the entry of a mapping with the key i",
    "number(x)": "x if it is a whole number; otherwise x counts as missing",
    "list(x)": "x if it is a list; otherwise x counts as missing",
    "letters(x)": "the letters of a word as a list; any other x as it is",
    "len(x)": "how many entries a list or mapping has, or letters a word",
    "count(x, y)": "how many entries, or letters, of x are y",
    "place(x, y)": "the number of the first entry of x that is y, from 0",
    "assumed(x)": "x, if nothing else has a value: a doubt says that it is assumed",
}
# Functions of other languages, and what to write instead.
INSTEAD = {"range": "write a condition: layer >= 2 and layer % 3 == 2"}
MANY = 64


def given_words(names: Iterable[str]) -> dict[str, str]:
    """By each name the name that says whether it is given: `given(block)`."""
    return {name: f"given({name})" for name in names}


# Function -> the least and the most arguments.
Arity = Mapping[str, tuple[int, int]]


def _arity(calls: Mapping[str, str]) -> Arity:
    """The numbers of arguments of functions, from their calls: `min(a, …)` takes one or more."""
    parts = [call.removesuffix(")").partition("(") for call in calls]
    given = {name: args.split(", ") for name, _, args in parts}
    return {name: (len(args) - 1, MANY) if args[-1] == "…" else (len(args), len(args)) for name, args in given.items()}


ARITY = _arity(FUNCTIONS)
FOREIGN_ARITY = _arity(FOREIGN)
EVERY = {**ARITY, **FOREIGN_ARITY}
