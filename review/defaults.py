"""The values of options that a side does not name: `block: 16 (default) → 32`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kvplan.compiler.bind.options import option_values
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.text import parse_side
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError, as_written
from kvplan.plan.types import Plan
from kvplan.review.changes import Change
from kvplan.review.facts import DEFAULT
from kvplan.review.review import PairReview, Review


def with_defaults(review: Review, models: Sequence[Path], layouts: Sequence[Path]) -> Review:
    """The review with these values for DEFAULT, as layout files have them now; `models` are some that a deployment
    names by path. Raises DslError for bad files."""
    if not any(DEFAULT in (change.before, change.after) for one in review.changed for change in one.changes):
        return review
    library = load(models, layouts)
    return replace(review, changed=tuple(_filled(library, one) for one in review.changed))


def _filled(library: Library, one: PairReview) -> PairReview:
    return replace(one, changes=tuple(_change(library, one, change) for change in one.changes))


def _change(library: Library, one: PairReview, change: Change) -> Change:
    old, new = one.pair.plans
    if change.before == DEFAULT and old:
        return replace(change, before=_default(library, old, change))
    if change.after == DEFAULT and new:
        return replace(change, after=_default(library, new, change))
    return change


def _default(library: Library, plan: Plan, change: Change) -> str:
    """`16 (default)`; DEFAULT if the engine derives the value, or if no layout file has the model any more."""
    side = plan.prefill if change.subject.side == "prefill" else plan.decode
    given = parse_side(side.key)
    try:
        name = given.pop("engine", library.default_engine)
        values = option_values(library, library.engine(name), library.model(plan.model), given)
    except (BadInput, Refused, DslError):
        return DEFAULT
    value = {**values, "engine": name}.get(change.subject.name)
    return DEFAULT if value is None else f"{as_written(value)} (default)"
