"""The values of options as people and engines know them: `block: 16 (default) → 32`, `--block-size 32`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kvplan.compiler.bind.instead import stored_values
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.text import parse_side
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.serve import Setting
from kvplan.dsl.text.diagnostics import DslError, as_written
from kvplan.plan.types import Plan
from kvplan.review.changes import Change
from kvplan.review.facts import DEFAULT, Value
from kvplan.review.review import PairReview, Review
from kvplan.review.rules import POSITION

# The words that an engine's command has for an option, and those that it leaves out.
EngineWords = tuple[str, str]
NO_WORDS: EngineWords = "", ""
WORD = re.compile(r"[^\s(),]+")


def with_defaults(review: Review, models: Sequence[Path], layouts: Sequence[Path]) -> Review:
    """The review with the engine's value in place of DEFAULT, and with the aliases that engine files give to values.

    `models` are model files that a deployment names by path. Raises DslError for bad files.
    """
    if not any(change.rule == "OPTION" for one in review.changed for change in one.changes):
        return review
    library = load(models, layouts)
    return replace(review, changed=tuple(_filled(library, one) for one in review.changed))


def _filled(library: Library, one: PairReview) -> PairReview:
    """The pair with known values, an engine before its options, without options that another engine has likewise."""
    known = [_change(library, one, change) for change in one.changes]
    replaced = {change.subject.side for change in known if _is_engine(change)}
    kept = [change for change in known if not (change.subject.side in replaced and _has_equal_values(change))]
    return replace(one, changes=tuple(sorted(kept, key=lambda each: (POSITION[each.rule], not _is_engine(each)))))


def _is_engine(change: Change) -> bool:
    return change.rule == "OPTION" and change.subject.name == "engine"


def _has_equal_values(change: Change) -> bool:
    """Whether an option has the same value, which two engines may call by different names."""
    before, after = ({*WORD.findall(str(value))} - {"default"} for value in (change.before, change.after))
    return change.rule == "OPTION" and bool(before & after)


def _change(library: Library, one: PairReview, change: Change) -> Change:
    if change.rule != "OPTION":
        return change
    (before, _), (after, words) = (
        _known(library, plan, change, value) if plan and value is not None else (value, NO_WORDS)
        for plan, value in zip(one.pair.plans, (change.before, change.after), strict=True)
    )
    return replace(change, before=before, after=after, given=words[0], left_out=words[1])


def _known(library: Library, plan: Plan, change: Change, value: Value) -> tuple[Value, EngineWords]:
    """`16 (default)`, `LBNHC (nhd)`, and the engine's setting; only `value` if the engine's file does not tell it.

    Only a default needs the model's file, too.
    """
    side = plan.prefill if change.subject.side == "prefill" else plan.decode
    name = change.subject.name
    given = parse_side(side.key)
    try:
        engine = library.engine(given.pop("engine", library.default_engine))
        own = stored_values(library, engine, library.model(plan.model), given) if value == DEFAULT else {}
    except (BadInput, Refused, DslError):
        return value, NO_WORDS
    found = engine.name if name == "engine" and value == DEFAULT else own.get(name)
    said = str(value) if found is None else as_written(found)
    words = [*filter(None, [engine.alias(name, said)]), *(["default"] if value == DEFAULT and said != value else [])]
    return f"{said} ({', '.join(words)})" if words else value, _setting(engine.setting(name), said, value == DEFAULT)


def _setting(setting: Setting, value: str, default: bool) -> EngineWords:
    """The words for a value; the engine's command leaves out one that the engine takes by itself."""
    if not setting.name:
        return NO_WORDS
    if default and not setting.unset:
        return "", setting.name
    return setting.with_word(setting.value_word(value)), ""
