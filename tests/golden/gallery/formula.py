"""Bytes per token, or per state, of a kind as expressions in its parameters, derived from its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Call, Expr, Name, Number, Text
from kvplan.dsl.schema.kind import Kind, TensorSpec
from kvplan.dsl.text.diagnostics import DslError

Env = Mapping[str, object]
ATOMS = (Name, Number, Text, Call)


def formulas(kind: Kind) -> list[tuple[tuple[tuple[str, str], ...], str]]:
    """(what is chosen, formula), once for every choice: values of the parameters that decide which tensors exist."""
    return [(tuple(chosen.items()), formula(kind, chosen)) for chosen in choices(kind)]


def formula(kind: Kind, chosen: Env) -> str:
    """The bytes of one token (a state) of one layer; what `chosen` does not settle stays as it is written."""
    env = settled(kind, chosen)
    found = Counter(term for spec in recorded(kind, chosen).tensors.values() if (term := bytes_of(spec, env)))
    return " + ".join(term if times == 1 else f"{times} * {term}" for term, times in found.items()) or "0"


def choices(kind: Kind) -> Iterator[dict[str, str]]:
    """Every combination of the words that decide which tensors exist and of what elements; one, if none does."""
    tensors = [kind.tensors, *(variant.tensors for variant in kind.variants)]
    specs = [spec for record in tensors for spec in record.values()]
    whens = {name for variant in kind.variants for name in variant.when.names}
    used = closure(kind, whens | {name for spec in specs for name in _deciding(spec)})
    worded = [name for name, param in kind.params.items() if param.values and name in used]
    roots = [name for name in worded if not (closure(kind, _default(kind, name)) & {*worded} - {name})]
    for values in product(*(kind.params[name].values for name in roots)):
        yield dict(zip(roots, values, strict=True))


def recorded(kind: Kind, chosen: Env) -> Kind:
    """The kind as it is for one record: its first variant that holds, or what the file says."""
    env = settled(kind, chosen)
    held = (each for each in kind.variants if worth(each.when, env))
    return next((replace(kind.as_variant(each), variants=()) for each in held), replace(kind, variants=()))


def settled(kind: Kind, chosen: Env) -> dict[str, object]:
    """`chosen`, and the parameters whose defaults follow from it."""
    env = dict(chosen)
    waiting = {n: p.default for n, p in kind.params.items() if n not in env and p.default and p.default.names}
    while ready := [name for name, expr in waiting.items() if expr.names <= env.keys()]:
        env |= {name: evaluate(waiting.pop(name), env) for name in ready}
    return env


def bytes_of(spec: TensorSpec, env: Env) -> str:
    """`heads * dim * 2`, empty where the tensor does not exist; under a condition that is still open, a choice.

    A row of several tokens is divided by their number exactly: `(dim * 2 / 4)`.
    """
    exists = worth(spec.when, env) if spec.when else True
    if exists is not None and not exists:
        return ""
    factors = [_factor(expr, env) for _, expr in spec.axes if expr] + [_element(spec.dtype, env)]
    text = " * ".join(factor for factor in factors if factor != "1") or "1"
    text = f"({text} / {_factor(spec.tokens_per_row, env)})" if spec.tokens_per_row else text
    return text if exists is not None or spec.when is None else f"({text} if {spec.when.text} else 0)"


def worth(expr: Expr, env: Env) -> object:
    """The value of an expression, None while it has none."""
    try:
        return evaluate(expr, env) if expr.names <= env.keys() else None
    except DslError:
        return None


def _factor(expr: Expr, env: Env) -> str:
    value, text = worth(expr, env), " ".join(expr.text.split())
    if value is not None:
        return str(value)
    return text if isinstance(expr.tree, ATOMS) else f"({text})"


def _element(dtype: Expr, env: Env) -> str:
    value = worth(dtype, env)
    return str(size(value)) if isinstance(value, str) else f"bytes({' '.join(dtype.text.split())})"


def _deciding(spec: TensorSpec) -> set[str]:
    return {*spec.dtype.names, *(spec.when.names if spec.when else ())}


def _default(kind: Kind, name: str) -> set[str]:
    default = kind.params[name].default if name in kind.params else None
    return set(default.names) - {name} if default else set()


def closure(kind: Kind, found: Iterable[str]) -> set[str]:
    """Names, and those that their defaults use, however far."""
    todo, known = list(found), set[str]()
    while todo:
        name = todo.pop()
        if name not in known:
            known.add(name)
            todo += _default(kind, name)
    return known
