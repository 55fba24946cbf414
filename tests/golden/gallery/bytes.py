"""What a token or a state of a kind takes: formulas, the engines that have each record, and a model's numbers."""

from __future__ import annotations

from fractions import Fraction

from tests.golden.gallery.engines import choosing
from tests.golden.gallery.formula import choices, formula, formulas, worth
from tests.golden.gallery.numbers import Numbers, tensors
from tests.golden.gallery.pages import Subject
from tests.golden.gallery.text import block, code, codes, exact, table

from kvplan.dsl.schema.kind import TensorSpec


def formula_section(of: Subject) -> list[str]:
    """One formula, or one per record with the engines that have it; records that come to the same share a row."""
    alike: dict[str, list[str]] = {}
    for chosen, text in formulas(of.kind):
        alike.setdefault(text, []).append(", ".join(value for _, value in chosen))
    if len(alike) == 1:
        return block(alike)
    words = [name for name, _ in formulas(of.kind)[0][0]]
    option = choosing(of.kind, words, of.engines)
    rows = [(codes(values), code(text), _takers(of, option, values)) for text, values in alike.items()]
    return table((", ".join(words), "bytes", f"engines, by {code(option)}"), rows)


def _takers(of: Subject, option: str, values: list[str]) -> str:
    """The engines whose option lists the values, with those that it lists where they are not all."""
    listed = {engine.name: engine.options[option].values for engine in of.engines if option in engine.options}
    found = {name: [value for value in values if value in known] for name, known in listed.items()}
    return ", ".join(
        code(name) + (f" ({codes(some)})" if len(some) < len(values) else "") for name, some in found.items() if some
    )


def example_sections(of: Subject) -> list[list[str]]:
    """The numbers of a model, tensor by tensor."""
    if not of.caches:
        return []
    model, found = of.caches[0]
    rows = [
        (code(spec.name), _product(spec, found), exact(Fraction(held, many))) for spec, held, many in tensors(found)
    ]
    whose = f"[{model}](../models/{of.stem(model)}.md), cache {code(found.cache.name)}"
    in_force = {name: found.env[name] for chosen in choices(of.kind) for name in chosen}
    several = len({text for _, text in formulas(of.kind)}) > 1
    by = f", by {code(formula(of.kind, in_force))}" if several else ""
    return [
        [f"For example {whose}{by}:"],
        table(("tensor", "elements", "bytes"), [*rows, ("together", "", exact(found.row))]),
    ]


def _product(spec: TensorSpec, found: Numbers) -> str:
    axes = [f"{worth(expr, found.env):,} {name}" for name, expr in spec.axes if expr]
    tokens = worth(spec.tokens_per_row, found.env) if spec.tokens_per_row else 1
    rows = [f"a row per {tokens} tokens"] if tokens != 1 else []
    return " × ".join([*rows, *axes, str(worth(spec.dtype, found.env))])
