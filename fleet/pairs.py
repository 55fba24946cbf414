"""Which engines of a fleet may deal with each other: the index of plans answers, no plan is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from kvplan.fleet.records import EngineRecord
from kvplan.plan.files.index import IndexEntry

# A model and two sides, each by its digest or by its name.
Names = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FleetPair:
    """A prefill and a decode engine, and the digest of their plan, or why they cannot deal with each other."""

    prefill: EngineRecord
    decode: EngineRecord
    plan: str
    reason: str


def fleet_pairs(engines: Mapping[str, EngineRecord], index: Iterable[IndexEntry]) -> tuple[FleetPair, ...]:
    """All pairs of one that prefills and one that decodes a model of the same name, by their names.

    A plan is what a catalog without options finds: compiled without unusual ones, of several that of the lowest digest.
    """
    usual = sorted((one for one in index if not one.unusual), key=lambda one: one.plan, reverse=True)
    plans = {(one.model_digest, one.prefill[0], one.decode[0]): one.plan for one in usual}
    named = {(one.model, one.prefill[1], one.decode[1]) for one in usual}
    ordered = [engines[name] for name in sorted(engines)]
    both = product((each for each in ordered if each.prefills), (each for each in ordered if each.decodes))
    return tuple(_pair(p, d, plans, named) for p, d in both if p.name != d.name and p.model == d.model)


def _pair(
    prefill: EngineRecord, decode: EngineRecord, plans: Mapping[Names, str], named: Collection[Names]
) -> FleetPair:
    plan = plans.get((prefill.model_digest, prefill.side, decode.side), "")
    reason = _reason(prefill, decode, plan, (prefill.model, prefill.side_key, decode.side_key) in named)
    return FleetPair(prefill, decode, "" if reason else plan, reason)


def _reason(prefill: EngineRecord, decode: EngineRecord, plan: str, named: bool) -> str:
    """Why two engines cannot deal with each other; `named`: there is a plan for sides that are called so."""
    if prefill.model_digest != decode.model_digest:
        return f"different layouts of the model, {prefill.model_digest} and {decode.model_digest}"
    if prefill.revision and decode.revision and prefill.revision != decode.revision:
        return f"different revisions of the weights, {prefill.revision} and {decode.revision}"
    if prefill.protocol != decode.protocol:
        return f"different protocols, {prefill.protocol} and {decode.protocol}"
    if plan:
        return ""
    # Sides of one name differ if a layout has changed.
    other = ": the one of these names is for other sides, by digest; compile again" if named else ""
    return f"no plan from {prefill.side_key} to {decode.side_key}{other}"
