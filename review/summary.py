"""A review in sentences that every report has: how many plans, the verdict, what it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from kvplan.compiler.words import many
from kvplan.dsl.text.diagnostics import listed
from kvplan.plan.types import Plan
from kvplan.review.changes import SIDES, Change
from kvplan.review.fold import FoldedChange, Where, alone, folded, places
from kvplan.review.judge import WHY, Judgement
from kvplan.review.review import PairReview, Review
from kvplan.review.rules import RELOAD, RULES, Category, RolloutVerdict

COST = "COST, of all decode workers together"
# A cause that no rule tells, by whether only texts change.
UNTOLD = {
    False: "no option and no number of a layout: an engine's file, or kvplan itself",
    True: "titles or comments: of a layout, of kvplan itself, or of a plan edited by hand, which compile --check tells",
}
# So many pairs are named, more are counted.
FEW = 3
# Beside these, a change that follows from others is no news.
NEWS = (Category.PLAN, Category.BYTES)


@dataclass(frozen=True, slots=True)
class Sections:
    """Folded changes: what somebody wrote, what follows of it, what that costs; and rules that are not worth a line."""

    causes: tuple[FoldedChange, ...]
    effects: tuple[FoldedChange, ...]
    costs: tuple[FoldedChange, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToldChange:
    """A change in a sentence; a cause in a layout file, and what is left out, have no `rule`."""

    rule: str
    text: str
    where: str = ""


def told(review: Review) -> list[tuple[str, list[ToldChange]]]:
    """What plans that change have in common, under its headings: causes, what follows of them, what that costs."""
    found, count = sections(review), len(review.changed)
    layouts = ((f"{one.path}: {one.key}", one.before or "none", one.after or "none") for one in review.layouts)
    causes = [ToldChange("", f"{where} {before} → {after}") for where, before, after in layouts]
    causes += _told(found.causes, count)
    if review.changed and not causes:
        causes = [ToldChange("", UNTOLD[review.verdict is RolloutVerdict.TEXT])]
    effects = _told(found.effects, count)
    if found.left_out:
        effects.append(
            ToldChange("", f"as a consequence also {listed(found.left_out, 'and')}: kvplan diff --verbose shows them")
        )
    costs = _told(found.costs, count) + [ToldChange("", hint) for hint in [cost_hint(review)] if hint]
    return [("CAUSE", causes), ("WHAT FOLLOWS", effects), (COST, costs)]


def _told(changes: Sequence[FoldedChange], count: int) -> list[ToldChange]:
    return [ToldChange(one.rule, one.text(), places(one.where, count)) for one in changes]


def sections(review: Review) -> Sections:
    told = [_news(pair) for pair in review.changed]
    found = folded(told)
    written = {
        (number, change.subject.side)
        for number, pair in enumerate(review.changed, 1)
        for change in pair.changes
        if change.rule == "OPTION"
    }
    causes = tuple(one for one in found if RULES[one.rule].cause and not _follows(one, written))
    costs = tuple(one for one in found if one.category is Category.COST)
    effects = tuple(one for one in found if one not in causes and one not in costs)
    quiet = {rule for pair, short in zip(review.changed, told, strict=True) for rule in {*pair.rules} - {*short.rules}}
    return Sections(causes, effects, costs, tuple(rule for rule in RULES if rule in quiet))


def _follows(change: FoldedChange, written: Set[Where]) -> bool:
    """Whether a change of bytes has its cause in an option of the same side of every plan that it is in."""
    return change.category is Category.BYTES and {*change.where} <= written


def _news(pair: PairReview) -> PairReview:
    """A pair without changes that follow from others, if there are others."""
    if not any(RULES[rule].category in NEWS and not RULES[rule].detail for rule in pair.rules):
        return pair
    return replace(pair, changes=tuple(change for change in pair.changes if not RULES[change.rule].detail))


def headline(review: Review) -> str:
    """`8 plans change, 1 is new; 31 stay as they are.`"""
    words = (
        (review.changed, "changes", "change"),
        (review.new, "is new", "are new"),
        (review.gone, "is removed", "are removed"),
    )
    found = [(len(some), one if len(some) == 1 else more) for some, one, more in words if some]
    said = [f"{count if number else many(count, 'plan')} {verb}" for number, (count, verb) in enumerate(found)]
    same = review.same
    stay = f"; {same} {'stays as it is' if same == 1 else 'stay as they are'}" if same else ""
    return f"{', '.join(said) or 'no plan changes'}{stay}."


def cost_hint(review: Review) -> str:
    """The commands that explain the cost of the pair that grew most, new and old; empty if none grew."""
    grown = [
        (change.share, number)
        for number, pair in enumerate(review.changed)
        for change in pair.changes
        if RULES[change.rule].category is Category.COST and change.share is not None and change.share > 0
    ]
    old, plan = review.changed[max(grown)[1]].pair.plans if grown else (None, None)
    if plan is None:
        return ""
    former = f"; {_advise(old)} predicts that of OLD" if old else ""
    return f"{_advise(plan)} predicts the time, and which settings lower it{former}"


def _advise(plan: Plan) -> str:
    return f"kvplan advise {plan.model} --prefill {plan.prefill.key} --decode {plan.decode.key}"


def verdict(review: Review) -> str:
    """What has to be done with engines that run, in a few sentences."""
    counts = Counter(pair.verdict for pair in review.changed)
    said = _rollouts(review)
    said += _reloads(review)
    if still := counts[RolloutVerdict.TEXT]:
        only = "Only the text changes: old and new engines can talk."
        said.append(f"In {many(still, 'pair')} only the text changes: those can talk." if said else only)
    if gone := len(review.gone):
        have, its, it = ("has", "its", "it") if gone == 1 else ("have", "their", "them")
        said.append(
            f"{many(gone, 'pair')} {have} no plan any more: {its} engines cannot talk. This is safe once no engine "
            f"uses {it} (kvplan fleet lists engines)."
        )
    if not said and review.new:
        said.append("All plans are new: engines that run keep theirs.")
    return " ".join(said)


def _single(review: Review) -> bool:
    """Whether one plan changes: then no sentence says of how many it is."""
    return len(review.changed) == 1


def _rollouts(review: Review) -> list[str]:
    """What to roll out, for the pairs whose engines become others: as `kvplan diff --fleet` has it."""
    counts = Counter(pair.rolls for pair in review.changed if pair.rolls)
    said = []
    if both := counts.pop(SIDES, 0):
        of = "" if _single(review) else f" of {many(both, 'pair')}"
        said.append(f"Roll out both sides{of} together: old and new engines refuse each other.")
    said += [
        f"Only {side} changes." if _single(review) else f"In {many(count, 'pair')} only {side} changes."
        for (side,), count in sorted(counts.items())
    ]
    return said + _steps([side for side in SIDES if (side,) in counts]) if counts else said


def _reloads(review: Review) -> list[str]:
    """What to do for pairs whose sides stay, and for those with other options, by which engines choose among plans."""
    options = sum("COMPILE_OPTION" in pair.rules for pair in review.changed)
    said = []
    if plain := sum(
        pair.verdict is RolloutVerdict.RELOAD and "COMPILE_OPTION" not in pair.rules for pair in review.changed
    ):
        said.append(f"{_none_restarts(review, plain)} {RELOAD}")
    if options:
        of = "The plan has" if _single(review) else f"The plans of {many(options, 'pair')} have"
        said.append(
            f"{of} other compile options, by which engines choose: restart both sides with these as plan_options. "
            "With different ones they refuse each other."
        )
    return said


def _none_restarts(review: Review, count: int) -> str:
    return "No engine restarts." if _single(review) else f"In {many(count, 'pair')} no engine restarts."


def _steps(sides: Sequence[str]) -> list[str]:
    """How to restart a side that changes alone, in all pairs that one of `sides`."""
    restarted, other, old = "the side that changes", "the other side", "engines"
    if len(sides) == 1:
        (restarted,), (other,) = sides, {*SIDES} - {*sides}
        old = f"{restarted} engines"
    return [
        "1. Put the plans of OLD and NEW into one index (kvplan push, or a deployment that has both pairs, each with a "
        "name).",
        f"2. Restart {restarted}; {other} keeps running.",
        f"If the index has only the plans of NEW, old {old} cannot connect.",
    ]


def outcome(judgement: Judgement) -> str:
    """What fails, by category, or that nothing does: why the exit code is what it is."""
    if not judgement.rules:
        return "Nothing fails."
    alike: dict[str, list[str]] = {}
    for pair, changes in judgement.pairs:
        if changes:
            alike.setdefault(_gravest(changes), []).append(pair.title)
    pairs = sum(map(len, alike.values()))
    said = "; ".join(f"{what} in {_named(titles)}" if len(alike) > 1 else what for what, titles in alike.items())
    every = " Without --fail-on every change fails, but not a lower cost." if judgement.strict else ""
    return f"Fails in {many(pairs, 'pair')}: {said}.{every}"


def _gravest(changes: Sequence[Change]) -> str:
    """The category that asks most of engines, which includes the milder ones; a cost is beside it."""
    found = {RULES[change.rule].category for change in changes}
    worst = max(found, key=list(Category).index)
    return ", ".join(dict.fromkeys([worst, *({Category.COST} & found)]))


def _named(titles: Sequence[str]) -> str:
    return listed(titles, "and") if len(titles) <= FEW else many(len(titles), "pair")


def how_to_accept(judgement: Judgement) -> list[str]:
    """Entries of a file of exceptions, for a person who adds the reason; empty where nobody has said what fails."""
    if judgement.strict and not judgement.used:
        return []
    pairs: dict[tuple[str, ...], list[str]] = {}
    for pair, failing in judgement.pairs:
        pairs.setdefault(tuple(dict.fromkeys(change.rule for change in failing)), []).append(pair.title)
    return [
        f'- {{rule: [{", ".join(rules)}], pair: {_like(titles)}, reason: "{WHY}"}}'
        for rules, titles in pairs.items()
        if rules
    ]


def _like(titles: Sequence[str]) -> str:
    """A name that all of these are like, as YAML. Two files that are compared have no names."""
    folders = {str(PurePosixPath(title).parent) for title in titles}
    if len(titles) == 1 and titles[0]:
        return titles[0]
    return f"{folders.pop()}/*" if len(folders) == 1 and folders != {"."} else '"*"'


def listed_plans(review: Review) -> list[tuple[str, str]]:
    """The plans that change with their numbers, by folder: `model`, `1 p_tp4__d_tp2, 2 p_tp4__d_tp4`."""
    folders: dict[str, list[str]] = {}
    # Two files that are compared have no names.
    named = [(number, one) for number, one in enumerate(review.changed, 1) if one.title]
    for number, one in named:
        path, former = PurePosixPath(one.title), PurePosixPath(one.pair.former)
        was = former.name if former.parent == path.parent else str(former)
        name = f"{path.name} (was {was})" if one.pair.former else path.name
        folders.setdefault("" if str(path.parent) == "." else str(path.parent), []).append(f"{number} {name}".rstrip())
    return [(folder, ", ".join(names)) for folder, names in folders.items()]


def in_full(change: Change) -> str:
    """A change of one plan with its side and its workers: `decode workers 0-1, attention: 1 → 2 B`."""
    subject = change.subject
    word = "worker" if change.workers.isdecimal() else "workers"
    who = f"{subject.side} {word} {change.workers}" if change.workers else subject.side
    return ", ".join(filter(None, [who, alone(change).text(full=True)]))
