"""Classes of engines that plans treat as one, and what each becomes when plans change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from kvplan.fleet.records import EngineRecord, EngineRole
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.types import Plan, Side
from kvplan.review.review import PairReview, Review, gravest
from kvplan.review.rules import RolloutVerdict

Index = Iterable[IndexEntry]


@dataclass(frozen=True, slots=True)
class EngineClass:
    """Engines that plans treat as one: their record now, and the one they will have (`then`), None if it is not known.

    `plans` are the numbers, in the review, of the changed plans with their side. If NEW has a plan for their side, they
    stay as they are; `others` are what changed plans would make of them all the same.
    """

    names: tuple[str, ...]
    now: EngineRecord
    then: EngineRecord | None
    plans: tuple[int, ...]
    others: tuple[EngineRecord, ...] = ()

    @property
    def rolls(self) -> bool:
        return self.then is not None and self.then != self.now


def engine_classes(
    engines: Mapping[str, EngineRecord], review: Review, before: Index, after: Index
) -> Iterable[EngineClass]:
    """Engines grouped by role, model, side and protocol, with the plans in `review` that concern them."""
    alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name in sorted(engines):
        one = engines[name]
        alike[one.role, one.model, one.model_digest, one.side, one.protocol].append(name)
    known, kept = _sides(before), _sides(after)
    for names in (alike[key] for key in sorted(alike, key=str)):
        now = engines[names[0]]
        then, targets = _record_after(now, review, known, kept), _targets(now, review)
        others = tuple(one for one in targets if one != now) if then == now else ()
        yield EngineClass(tuple(names), now, then, _plan_numbers(now, review), others)


def _sides(index: Index) -> set[tuple[EngineRole, str, str]]:
    """The sides for which an index has plans: role, digest of the model, digest of the side."""
    return {
        side
        for one in index
        for side in (
            (EngineRole.PREFILL, one.model_digest, one.prefill[0]),
            (EngineRole.DECODE, one.model_digest, one.decode[0]),
        )
    }


def _record_after(
    now: EngineRecord, review: Review, known: set[tuple[EngineRole, str, str]], kept: set[tuple[EngineRole, str, str]]
) -> EngineRecord | None:
    """The record that engines will have: the same if NEW has their side, else the one of all changed plans, or None."""
    here, there = (
        {role for role in roles(now) if (role, now.model_digest, now.side) in sides} for sides in (known, kept)
    )
    if there and here <= there:
        return now
    targets = _targets(now, review)
    return targets[0] if len(targets) == 1 else None


def _targets(now: EngineRecord, review: Review) -> list[EngineRecord]:
    """The records that changed plans give engines, each once."""
    found = {
        (new.model_digest, side.digest, side.key)
        for _, old, new in _changed(review)
        for role in roles(now)
        if _has_side(old, role, now)
        for side in [_side(new, role)]
    }
    return [replace(now, model_digest=model, side=side, side_key=key) for model, side, key in sorted(found)]


def _plan_numbers(now: EngineRecord, review: Review) -> tuple[int, ...]:
    return tuple(number for number, old, _ in _changed(review) if any(_has_side(old, role, now) for role in roles(now)))


def _changed(review: Review) -> Iterable[tuple[int, Plan, Plan]]:
    """Changed plans by number, before and after, without those whose format cannot be read."""
    for number, one in enumerate(review.changed, 1):
        before, after = one.pair.plans
        if before and after:
            yield number, before, after


def roles(record: EngineRecord) -> tuple[EngineRole, ...]:
    """The roles of an engine, each once."""
    played = ((EngineRole.PREFILL, record.prefills), (EngineRole.DECODE, record.decodes))
    return tuple(role for role, plays in played if plays)


def _side(plan: Plan, role: EngineRole) -> Side:
    return plan.prefill if role is EngineRole.PREFILL else plan.decode


def _has_side(plan: Plan, role: EngineRole, record: EngineRecord) -> bool:
    return (plan.model_digest, _side(plan, role).digest) == (record.model_digest, record.side)


def verdict(prefill: EngineRecord, decode: EngineRecord, review: Review) -> RolloutVerdict:
    """The gravest verdict of the plans for two engines."""
    return gravest(one for one in (*review.changed, *review.gone) if _is_plan_of(one, prefill, decode))


def _is_plan_of(pair: PairReview, prefill: EngineRecord, decode: EngineRecord) -> bool:
    plan, _ = pair.pair.plans
    return (
        plan is not None and _has_side(plan, EngineRole.PREFILL, prefill) and _has_side(plan, EngineRole.DECODE, decode)
    )
