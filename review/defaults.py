"""The values of options as people know them: `block: 16 (default) → 32`, `order: LBNHC (nhd)`."""

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
from kvplan.review.facts import DEFAULT, Value
from kvplan.review.review import PairReview, Review


def with_defaults(review: Review, models: Sequence[Path], layouts: Sequence[Path]) -> Review:
    """The review with the engine's value in place of DEFAULT, and with the aliases that engine files give to values.

    `models` are model files that a deployment names by path. Raises DslError for bad files.
    """
    if not any(change.rule == "OPTION" for one in review.changed for change in one.changes):
        return review
    library = load(models, layouts)
    return replace(review, changed=tuple(_filled(library, one) for one in review.changed))


def _filled(library: Library, one: PairReview) -> PairReview:
    return replace(one, changes=tuple(_change(library, one, change) for change in one.changes))


def _change(library: Library, one: PairReview, change: Change) -> Change:
    if change.rule != "OPTION":
        return change
    before, after = (
        _known(library, plan, change, value) if plan and value is not None else value
        for plan, value in zip(one.pair.plans, (change.before, change.after), strict=True)
    )
    return replace(change, before=before, after=after)


def _known(library: Library, plan: Plan, change: Change, value: Value) -> Value:
    """`16 (default)`, `LBNHC (nhd)`; `value` itself if it has no alias, or if no layout file knows it any more."""
    side = plan.prefill if change.subject.side == "prefill" else plan.decode
    name = change.subject.name
    given = parse_side(side.key)
    try:
        engine = library.engine(given.pop("engine", library.default_engine))
        own = {**option_values(library, engine, library.model(plan.model), given), "engine": engine.name}
    except (BadInput, Refused, DslError):
        return value
    said = as_written(own[name]) if value == DEFAULT and own.get(name) is not None else value
    words = [*filter(None, [engine.alias(name, said)]), *(["default"] if said != value else [])]
    return f"{said} ({', '.join(words)})" if words else said
