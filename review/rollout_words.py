"""A rollout in words: what engines become, which can talk meanwhile, which to roll first, the state after each step."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.compiler.words import columns, many
from kvplan.dsl.text.diagnostics import listed
from kvplan.fleet.pairs import AGAIN
from kvplan.fleet.records import EngineRecord
from kvplan.review.classes import EngineClass
from kvplan.review.fold import numbered
from kvplan.review.rollout import ClassPair, FleetRollout, ModelRollout
from kvplan.review.rules import RolloutVerdict

DIGITS = 8
SHARED = "choose which engines change and which stay for other pairs. What follows is of these engines as they are now."
NO_OPTIONS = " What follows is of engines without plan_options."
BESIDE = "start engines of NEW beside the old ones, or stop both sides"
ADVICE = {
    "nothing": "no engine has to be rolled",
    "prefill": "roll prefill; decode stays as it is",
    "decode": "roll decode; prefill stays as it is",
    "both sides": "roll the engines",
    "prefill first": "roll prefill first, then decode",
    "decode first": "roll decode first, then prefill",
    "together": "roll both sides together, half of each first",
}


def headline(rollout: FleetRollout) -> str:
    said = [f"{many(rollout.engines, 'engine')}, with the plans of OLD and NEW in one index"]
    if drains := len(rollout.draining):
        said.append(f"{many(drains, 'engine')} that {'drains' if drains == 1 else 'drain'} left out")
    if others := len(rollout.others):
        said.append(f"{many(others, 'engine')} of other models left out")
    return "; ".join(said)


def engines(one: EngineClass) -> str:
    """`4 prefill engines of mini, tp=2 (5f6e7d8c), become tp=4 (01234567)  [plans 1-2]`"""
    said = f"{many(len(one.names), f'{one.now.role} engine')} of {one.now.model}, {_side(one.now)}, {_becoming(one)}"
    return f"{said}  [{numbered(one.plans)}]" if one.plans else said


def pair(one: ClassPair, classes: Sequence[EngineClass]) -> str:
    """`tp=2 → tp=1, 8 engine pairs: can talk now and afterwards, but not with prefill rolled first: …`"""
    sides = f"{classes[one.prefill].now.side_key} → {classes[one.decode].now.side_key}"
    return f"{sides}, {many(one.engines, 'engine pair')}: {_talking(one)}{_settling(one)}"


def advice(one: ModelRollout) -> str:
    """Advice in a sentence: the side to roll first, and how many engines cannot talk meanwhile."""
    best, now = one.best, one.best.steps[0].alone
    free = [order.name for order in one.orders if order.alone <= now]
    said = "roll either side first" if {"prefill first", "decode first"} <= {*free} else ADVICE[best.name]
    last = best.steps[-1].alone
    alone = f" Once OLD is removed from the index {_nobody(last, 'engine')}." if last else ""
    rolled = "" if best.name == "nothing" else f"{said}, and "
    if one.refused:
        return (
            f"{one.model}: correct NEW first. What follows is without its {many(one.refused, 'refused pair')}.{alone}"
        )
    if one.shared:
        return f"{one.model}: {rolled}{SHARED}{alone}"
    if one.options:
        return f"{one.model}: {rolled}restart both sides of {numbered(one.options)} with new plan_options.{NO_OPTIONS}"
    if best.silent:
        return f"{one.model}: no order keeps a pair talking: {BESIDE}.{alone}"
    if best.alone <= now:
        return f"{one.model}: {said}.{alone}"
    left = f"Meanwhile {_nobody(best.alone - now, 'more engine')}"
    return f"{one.model}: {said}. {left}: {BESIDE}.{alone}"


def steps(one: ModelRollout) -> list[str]:
    """A table of every possible order, the best first."""
    rows: list[Sequence[object]] = [
        (order.name if not number else "", step.what, step.pairs, step.alone)
        for order in one.orders
        for number, step in enumerate(order.steps)
    ]
    return columns(("order", "step", "engine pairs", "cannot talk"), rows)


def sentences(rollout: FleetRollout) -> list[str]:
    """The lines about classes, models and pairs, without the tables."""
    models = [line for one in rollout.models for line in (advice(one), *(pair(p, rollout.classes) for p in one.pairs))]
    return [*map(engines, rollout.classes), *models]


def _nobody(count: int, word: str) -> str:
    return f"{many(count, word)} cannot talk to anyone"


def _side(record: EngineRecord) -> str:
    return f"{record.side_key} ({record.side[:DIGITS]})"


def _becoming(one: EngineClass) -> str:
    if one.then is None:
        return "not known what they become: NEW has no plan for their side" if one.plans else "in no plan of NEW"
    stays, becomes = ("stays as it is", "becomes") if len(one.names) == 1 else ("stay as they are", "become")
    if one.others:
        return f"{stays} for other pairs, or {becomes} {listed([_target(one, other) for other in one.others], 'or')}"
    return f"{becomes} {_target(one, one.then)}" if one.rolls else stays


def _target(one: EngineClass, then: EngineRecord) -> str:
    layout = "" if then.model_digest == one.now.model_digest else f" of layout {then.model_digest[:DIGITS]}"
    return f"{_side(then)}{layout}"


def _talking(one: ClassPair) -> str:
    ends = {"now": one.before, "afterwards": one.after}
    mixed = {"prefill": one.prefill_first, "decode": one.decode_first}
    talk = [word for word, found in ends.items() if found.plan]
    # The advice to compile again is for `kvplan fleet`: here NEW is compiled.
    never = [f"not {word} ({found.reason.removesuffix(AGAIN)})" for word, found in ends.items() if not found.plan]
    cut = [side for side, found in mixed.items() if not found.plan and found not in ends.values()]
    never += [f"not with {listed(cut, 'or')} rolled first: old and new have no plan for each other"] if cut else []
    if never:
        return f"can talk {listed(talk, 'and')}, but {listed(never, 'and')}"
    return "old and new can talk" + (" meanwhile" if one.settled.plan else "")


def _settling(one: ClassPair) -> str:
    """The role of OLD in the index once both are rolled; empty if it has none."""
    if one.verdict is RolloutVerdict.RELOAD and one.after.plan != one.settled.plan:
        return "; the new plan is used once OLD is removed from the index"
    return ", only as long as OLD is in the index" if one.after.plan and not one.settled.plan else ""
