"""The values that a side is bound with: given or default options, and expressions that use each other's names."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.text import nearest, whole
from kvplan.dsl.lang.dtypes import canonical
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, SizeSet, Value
from kvplan.dsl.schema.kind import Param

Env = dict[str, Value | SizeSet]


def settle(exprs: Mapping[str, Expr], env: Env) -> Env:
    """Add the value of every expression to `env`, in the order of their dependencies. Raises BadInput (S008)."""
    found = dict(env)
    for name in exprs:
        _settle(name, exprs, (), found)
    return found


def _settle(name: str, exprs: Mapping[str, Expr], busy: tuple[str, ...], env: Env) -> None:
    """Add the value of `name` to `env`; the names in `busy` wait for it."""
    if name in env:
        return
    if name in busy:
        raise BadInput("S008", f"{' -> '.join((*busy, name))} need each other", "give one of them in the side")
    for other in sorted(exprs[name].names & exprs.keys() - env.keys()):
        _settle(other, exprs, (*busy, name), env)
    env[name] = evaluate(exprs[name], env)


def value_of(expr: Expr, exprs: Mapping[str, Expr], env: Env) -> Value | SizeSet:
    """Return the value of `expr`, evaluating only the `exprs` that it needs. Raises BadInput (S008), DslError."""
    needed: dict[str, Expr] = {}
    waiting = [*expr.names]
    while waiting:
        name = waiting.pop()
        if name in exprs and name not in needed:
            needed[name] = exprs[name]
            waiting += exprs[name].names
    return evaluate(expr, settle(needed, env))


def read_option(param: Param, text: str) -> Value | SizeSet:
    """Return an option's value from a side's text, aliases resolved. Raises BadInput (S004, S009)."""
    word = param.aliases.get(text, text)
    if param.values and word not in param.values:
        allowed = [*param.values, *param.aliases]
        raise BadInput("S009", f"{param.name}={text} is not a value of {param.name!r}", nearest(text, allowed))
    if param.type == "int":
        return whole(param.name, word)
    if param.type == "sizes":
        return SizeSet(only=tuple(sorted({whole(param.name, piece, 1) for piece in word.split("+")})))
    if param.type == "dtype":
        return canonical(word)
    return word == "true" if word in ("true", "false") and not param.values else word


def split_options(options: Mapping[str, Param], given: Mapping[str, str], env: Env) -> Env:
    """Add every option to `env`, as given or by its default, and whether it is given."""
    read = {name: read_option(options[name], text) for name, text in given.items() if name in options}
    missing = [name for name, param in options.items() if name not in read and param.default is None]
    if missing:
        raise BadInput("S010", f"option {missing[0]!r} has no default", f"give {missing[0]}=… in the side")
    flags = {word: name in read for name, word in given_words(options).items()}
    return settle({name: p.default for name, p in options.items() if p.default is not None}, {**env, **flags, **read})


def override_help(name: str) -> str:
    return f"give {name}=… in the side, or correct the engine's rule"


def number(value: object, least: int, what: str, unit: str, help: str) -> int:
    """Return a derived value that must be a whole number from `least` up. Raises Refused (C114)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Refused("C114", f"{what} comes out as {value!r}, not {unit}", help)
    return value
