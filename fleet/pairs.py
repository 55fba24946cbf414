"""The pairs of a fleet's engines that can work together, by the index of plans: no plan is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from json import dumps

from kvplan.fleet.records import EngineRecord
from kvplan.plan.files.index import IndexEntry

# A model and two sides, each by its digest or by its name.
Names = tuple[str, str, str]
AGAIN = "; compile again"
NO_PLAN = "no plan from "


@dataclass(frozen=True, slots=True)
class FleetPair:
    """A prefill and a decode engine, with the digest of their plan, or the reason why they cannot work together.

    `options` are the plan_options, as JSON, with which they have a plan if it is only with some.
    """

    prefill: EngineRecord
    decode: EngineRecord
    plan: str
    reason: str
    options: str = ""


def fleet_pairs(engines: Mapping[str, EngineRecord], index: Iterable[IndexEntry]) -> tuple[FleetPair, ...]:
    """Return all pairs of a prefilling and a decoding engine with a model of the same name, in order of their names.

    A pair's plan is the one that a catalog without options finds: compiled without unusual options, with the lowest
    digest if there are several.
    """
    entries = tuple(index)
    usual = sorted((one for one in entries if not one.unusual), key=lambda one: one.plan, reverse=True)
    plans = {_sides(one): one.plan for one in usual}
    optional = {
        _sides(one): dumps({k: v for k, v in one.options if k in one.unusual}) for one in entries if one.unusual
    }
    named = {(one.model, one.prefill[1], one.decode[1]) for one in usual}
    ordered = [engines[name] for name in sorted(engines)]
    both = product((each for each in ordered if each.prefills), (each for each in ordered if each.decodes))
    return tuple(_pair(p, d, plans, optional, named) for p, d in both if p.name != d.name and p.model == d.model)


def _sides(one: IndexEntry) -> Names:
    return one.model_digest, one.prefill[0], one.decode[0]


def _pair(
    prefill: EngineRecord,
    decode: EngineRecord,
    plans: Mapping[Names, str],
    optional: Mapping[Names, str],
    named: Collection[Names],
) -> FleetPair:
    sides = prefill.model_digest, prefill.side, decode.side
    plan, options = plans.get(sides, ""), optional.get(sides, "")
    reason = _reason(prefill, decode, plan, (prefill.model, prefill.side_key, decode.side_key) in named)
    if plan or not options or not reason.startswith(NO_PLAN):
        return FleetPair(prefill, decode, "" if reason else plan, reason)
    return FleetPair(prefill, decode, "", f"a plan only with plan_options {options} on both sides", options)


def _reason(prefill: EngineRecord, decode: EngineRecord, plan: str, named: bool) -> str:
    """Return why two engines cannot work together. `named` says that a plan for sides with these names exists."""
    if prefill.model_digest != decode.model_digest:
        return f"different layouts of the model, {prefill.model_digest} and {decode.model_digest}"
    if prefill.revision and decode.revision and prefill.revision != decode.revision:
        return f"different revisions of the weights, {prefill.revision} and {decode.revision}"
    if prefill.protocol != decode.protocol:
        return f"different protocols, {prefill.protocol} and {decode.protocol}"
    if plan:
        return ""
    # Sides with the same name differ if a layout has changed.
    other = f": the one of these names is for other sides, by digest{AGAIN}" if named else ""
    return f"{NO_PLAN}{prefill.side_key} to {decode.side_key}{other}"
