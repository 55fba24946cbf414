"""The sentences that every report of a review has: how many plans change, what changes, why it fails."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from kvplan.compiler.cost.cost import TOKENS
from kvplan.compiler.emit.header import BOTH_SIDES
from kvplan.compiler.options import DIRECT, MACHINE
from kvplan.compiler.words import many
from kvplan.deploy.plans import fields_in
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import listed
from kvplan.dsl.text.grouped import grouped
from kvplan.review.changes import Change
from kvplan.review.facts import CostLength, cost_lengths, tokens_of
from kvplan.review.fold import FoldedChange, Where, alone, folded, places
from kvplan.review.judge import WHY, Judgement, categories
from kvplan.review.pairing import FilePair, PlanFile
from kvplan.review.review import PairReview, RefusedPair, Review
from kvplan.review.rules import MEANINGS, RULES, Category, RolloutVerdict
from kvplan.review.verdict import named, plain

COST = "COST of the busiest worker of each pair"
UNCOMPARED = "layout files were not compared: give --layouts DIR to see the changed key"
EXPLAIN = "`kvplan explain RULE` says what a rule means and what to do."
# The cause if no rule reports one, by whether only texts change.
UNTOLD = {
    False: "no option and no number of a layout: an engine's file, or kvplan itself",
    True: "comments: a layout's doubts or title, another kvplan, or an edit by hand, which compile --check finds",
}
# If a plan has a change of these categories, its changes that only follow from others are left out.
NEWS = (Category.PLAN, Category.LAYOUT)
# If a block grows by a factor so much larger or smaller than its page's, it is shown: memory changes by the block.
APART = 1.25


@dataclass(frozen=True, slots=True)
class Sections:
    """Folded changes: causes, what follows from them, what that costs; and the rules that are left out as details."""

    causes: tuple[FoldedChange, ...]
    effects: tuple[FoldedChange, ...]
    costs: tuple[FoldedChange, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToldChange:
    """A change in a sentence; `rule` is empty for a cause in a layout file, and for the list of details left out."""

    rule: str
    text: str
    where: str = ""


def told(review: Review) -> list[tuple[str, list[ToldChange]]]:
    """The changes of all changed plans under their headings: causes, their consequences, and the cost."""
    found, count = sections(review), len(review.changed)
    layouts = ((f"{one.path}: {one.key}", one.before or "none", one.after or "none") for one in review.layouts)
    causes = [ToldChange("", f"{where}: {before} → {after}") for where, before, after in layouts]
    causes += _as_sentences(found.causes, count)
    causes += [ToldChange("", note) for note in option_notes(review)]
    causes += [ToldChange("", UNCOMPARED)] if lacks_layouts(review) else []
    if review.changed and not causes:
        causes = [ToldChange("", UNTOLD[all(pair.verdict is RolloutVerdict.TEXT for pair in review.changed)])]
    effects = _as_sentences(found.effects, count)
    if found.left_out:
        named = [f"{rule} ({RULES[rule].detail})" for rule in found.left_out]
        effects.append(
            ToldChange("", f"{'also' if effects else 'only'} {listed(named, 'and')}: details by kvplan diff --verbose")
        )
    effects += [ToldChange("", said) for said in [without_effect(review)] if said]
    costs = _as_sentences(found.costs, len(review.costed)) + [ToldChange("", hint) for hint in cost_hints(review)]
    return [("CAUSE", causes), ("WHAT FOLLOWS", effects), (COST, costs)]


def doubts(review: Review) -> list[str]:
    """Doubts about models that headers of changed and new plans have, and those of OLD do not."""
    pairs = [pair.pair for pair in (*review.changed, *review.new)]
    told = [(each.after.plan.model, each) for each in pairs if each.after and each.after.plan]
    return list(dict.fromkeys(f"{model}: {doubt}" for model, each in told for doubt in _new_doubts(each)))


def warnings(review: Review) -> list[str]:
    """Sentences that change no exit code: on plans of OLD that engines refuse, and on new doubts."""
    return [*(f"in OLD, {one}" for one in review.damaged), *(f"in doubt: {one}" for one in doubts(review))]


def option_notes(review: Review) -> list[str]:
    """The notes of headers on changed options that the engine does not take as they are, each once."""
    return list(dict.fromkeys(note for pair in review.changed for note in _option_notes(pair)))


def _option_notes(pair: PairReview) -> list[str]:
    file, options = pair.pair.after, [change for change in pair.changes if change.rule == "OPTION"]
    if file is None or file.plan is None:
        return []
    told = ((f"{one.subject.name}={plain(one.after)}", one.subject.side) for one in options)
    notes = [
        note.removesuffix(".")
        for said, side in told
        for note in fields_in(file.text, side.capitalize(), BOTH_SIDES)
        if note.startswith((f"{said}, ", f"{said} "))
    ]
    return notes + _default_machine(pair, file, dict(file.plan.options))


def _default_machine(pair: PairReview, file: PlanFile, options: Mapping[str, str]) -> list[str]:
    """Say for which machine a changed strategy was chosen if none was given."""
    if MACHINE in options or not any(one.subject.name == "--strategy" for one in pair.changes):
        return []
    found = [text.partition(":")[0] for text in fields_in(file.text, "Strategy")]
    return [f"strategy {text}, the default machine" for text in found if " on " in text]


def _new_doubts(pair: FilePair) -> list[str]:
    before, after = (
        fields_in(file.text, "In doubt") if file and file.plan else [] for file in (pair.before, pair.after)
    )
    return [doubt for doubt in after if doubt not in before]


def lacks_layouts(review: Review) -> bool:
    """Whether a key of the user's own layout files may be the cause, and these were not compared."""
    own = [pair for pair in review.changed if pair.pair.after and pair.pair.after.has_own_layouts]
    return review.uncompared and any(map(review.layouts_of, own))


def without_effect(review: Review) -> str:
    """A sentence about pairs whose compile options change nothing but the digest; empty if there are none."""
    bare = [pair for pair in review.changed if {"COMPILE_OPTION"} <= {*pair.rules} <= {"COMPILE_OPTION", "FILE_NAME"}]
    where = f" in {named(bare)}" if len(bare) < len(review.changed) else ""
    return f"The same bytes move{where}: a restart for this alone gains nothing." if bare else ""


def _as_sentences(changes: Sequence[FoldedChange], count: int) -> list[ToldChange]:
    return [ToldChange(one.rule, one.text(), places(one.where, count)) for one in changes]


def sections(review: Review) -> Sections:
    shortened = [_without_details(pair) for pair in review.changed]
    found = folded(shortened)
    written = {
        (number, change.subject.side)
        for number, pair in enumerate(review.changed, 1)
        for change in pair.changes
        if change.rule == "OPTION"
    }
    causes = tuple(one for one in found if RULES[one.rule].cause and not _follows(one, written))
    costs = tuple(one for one in folded(review.costed) if one.category is Category.COST)
    effects = tuple(one for one in found if one not in causes and one.category is not Category.COST)
    quiet = {
        rule for pair, short in zip(review.changed, shortened, strict=True) for rule in {*pair.rules} - {*short.rules}
    }
    return Sections(causes, effects, costs, tuple(rule for rule in RULES if rule in quiet))


def _follows(change: FoldedChange, written: Set[Where]) -> bool:
    """Whether a change of a layout follows from a changed option: each side with the change also has such an option."""
    return change.category is Category.LAYOUT and {*change.where} <= written


def _without_details(pair: PairReview) -> PairReview:
    """The pair without its details, if it has a change of NEWS that is no detail."""
    if not any(RULES[rule].category in NEWS and not RULES[rule].detail for rule in pair.rules):
        return pair
    pages = {_place(change): change.share for change in pair.changes if change.rule == "PAGE_BYTES"}
    kept = (change for change in pair.changes if not RULES[change.rule].detail or _is_apart(change, pages))
    return replace(pair, changes=tuple(kept))


def _place(change: Change) -> tuple[str, ...]:
    """The cache, or the part of it, and the workers that a change is about."""
    return change.subject.side, change.subject.name, change.subject.part, change.workers


def _is_apart(change: Change, pages: Mapping[tuple[str, ...], float | None]) -> bool:
    """Whether blocks grow otherwise than the page in each."""
    page, block = pages.get(_place(change)), change.share
    if change.rule != "BLOCK_STRIDE" or page is None or block is None:
        return False
    return not 1 / APART < (1 + block) / (1 + page) < APART


def headline(review: Review) -> str:
    """`8 plans change, 1 is new; 31 stay as they are.`"""
    words = (
        (review.changed, "changes", "change"),
        (review.new, "is new", "are new"),
        (review.gone, "is removed", "are removed"),
        (review.renamed, "is renamed", "are renamed"),
        (review.missing, "is kept for a refused pair", "are kept for refused pairs"),
    )
    found = [(len(some), one if len(some) == 1 else more) for some, one, more in words if some]
    said = [f"{count if number else many(count, 'plan')} {verb}" for number, (count, verb) in enumerate(found)]
    same = review.same
    stay = f"; {same} {'stays as it is' if same == 1 else 'stay as they are'}" if same else ""
    refused = f"; {many(len(review.refused), 'pair')} refused" if review.refused else ""
    return f"{', '.join(said) or 'no plan changes'}{stay}{refused}."


def refusal(one: RefusedPair) -> str:
    """`deploy.yaml:5: mini/chat (mini: tp=2 -> tp=3) is refused (C110): …`, with what to do."""
    place = f"{one.place.path}:{one.place.line}: " if one.place else ""
    pair = f"{one.title} ({one.pair})" if one.title else one.pair
    return f"{place}{pair} is refused ({one.code}): {one.message}" + (f". Help: {one.help}" if one.help else "")


def cost_hints(review: Review) -> list[str]:
    """The commands that explain the new and the old cost of the pair whose cost grew most; empty if none grew."""
    grown = [
        (change.share, number, change.subject.name)
        for number, pair in enumerate(review.costed)
        for change in pair.changes
        if RULES[change.rule].category is Category.COST and change.share is not None and change.share > 0
    ]
    if not grown:
        return []
    _, number, cache = max(grown, key=lambda each: (each[0], -each[1]))
    one = review.costed[number]
    files = one.nearest or one.pair.before, one.pair.after
    which = f" of plan {number + 1}, whose cost grows most," if len(review.costed) > 1 else ","
    lengths = cost_lengths([file.plan for file in files if file and file.plan])
    before, after = (_advise(file, review.folders, cache, lengths) for file in files)
    former = [f"The time of OLD: {before}"] if before not in ("", after) else []
    return [f"The time of NEW{which} and which settings lower it: {after}", *former]


def _advise(file: PlanFile | None, folders: Sequence[Path], cache: str, lengths: Mapping[str, CostLength]) -> str:
    """The command that measures what COST measured of a cache of a plan; empty if the plan cannot be read.

    It has the user's own layouts if the plan needs them.
    """
    plan = file.plan if file else None
    if plan is None:
        return ""
    names = [shlex.quote(str(path)) for path in folders] or ["DIR"]
    own = "".join(f" --layouts {name}" for name in names) if file and file.has_own_layouts else ""
    chosen = {name: value for name, value in plan.options if name in ("strategy", MACHINE) and value != DIRECT}
    if chosen and MACHINE not in chosen:
        chosen[MACHINE] = load().default_machine
    options = "".join(f" --{name} {value}" for name, value in chosen.items())
    tokens = tokens_of(plan, cache, lengths)
    length = f" --tokens {tokens}" if tokens != TOKENS else ""
    sides = f"--prefill {plan.prefill.key} --decode {plan.decode.key}"
    return f"kvplan advise {plan.model} {sides}{options}{length}{own}"


def outcome(judgement: Judgement) -> str:
    """The reason for the exit code: each failing category with its meaning, or that nothing fails."""
    if judgement.refused:
        return (
            f"Fails, whatever --fail-on says: {many(judgement.refused, 'pair')} refused. {_failed(judgement)}".strip()
        )
    return _failed(judgement) or "Nothing fails."


def _failed(judgement: Judgement) -> str:
    if not judgement.rules:
        return ""
    by_category = grouped((one, pair) for pair, changes in judgement.pairs for one in categories(changes))
    count = sum(bool(changes) for _, changes in judgement.pairs)
    failing = [(one, by_category[one]) for one in reversed(Category) if one in by_category]
    said = "; ".join(_failing(one, some, len(some) == count) for one, some in failing)
    return f"Fails in {many(count, 'pair')}: {said}. {EXPLAIN}"


def _failing(category: Category, pairs: Sequence[PairReview], every: bool) -> str:
    """`COST (more or fewer descriptors or bytes) in chat`, without names if `every` failing pair has the category."""
    where = "" if every else f" in {named(pairs)}"
    return f"{category} ({MEANINGS[category].brief}){where}"


def how_to_accept(judgement: Judgement) -> list[str]:
    """Entries to paste into the file of exceptions."""
    by_rules = grouped(
        (tuple(dict.fromkeys(change.rule for change in failing)), pair) for pair, failing in judgement.pairs
    )
    return [
        f"- {{rule: [{', '.join(rules)}], pair: {name}, change: [{', '.join(one.pair.change for one in some)}], "
        f'reason: "{WHY}"}}'
        for rules, pairs in by_rules.items()
        for name, some in (grouped((_pattern(pair.title, len(pairs)), pair) for pair in pairs) if rules else {}).items()
    ]


def _pattern(title: str, count: int) -> str:
    """A name as YAML; if several have it, a pattern for its folder. Two files that are compared have no names."""
    folder = title.rpartition("/")[0]
    return f"{folder}/*" if folder and count > 1 else title or '"*"'


def listed_plans(review: Review) -> list[tuple[str, str]]:
    """Changed plans with their numbers, by folder: `model`, `1 p_tp4__d_tp2, 2 p_tp4__d_tp4`."""
    folders: dict[str, list[str]] = {}
    # Two files that are compared have no names.
    named = [(number, one) for number, one in enumerate(review.changed, 1) if one.title]
    for number, one in named:
        folder = one.title.rpartition("/")[0]
        name = one.pair.full_title.removeprefix(f"{folder}/")
        folders.setdefault(folder, []).append(f"{number} {name}".rstrip())
    return [(folder, ", ".join(names)) for folder, names in folders.items()]


def new_names(review: Review) -> list[str]:
    """New pairs, with the pair that the cost of each is compared with, and the number that COST gives it."""
    numbers = {pair.title: number for number, pair in enumerate(review.costed, 1)}
    return [_new_name(pair, numbers.get(pair.title, 0)) for pair in review.new]


def _new_name(pair: PairReview, number: int) -> str:
    if pair.nearest is None:
        return pair.title
    if pair.rules != ("PAIR_NEW",):
        return f"{number} {pair.title}, its COST compared with {pair.nearest.title}"
    is_same = pair.pair.after is not None and pair.pair.after.short_digest == pair.nearest.short_digest
    return f"{pair.title}, {'a second name of the plan' if is_same else 'costs as much as'} {pair.nearest.title}"


def in_full(change: Change) -> str:
    """A change of one plan with its side and its workers: `decode workers 0-1, attention: 1 → 2 B`."""
    subject = change.subject
    word = "worker" if change.workers.isdecimal() else "workers"
    who = f"{subject.side} {word} {change.workers}" if change.workers else subject.side
    return ", ".join(filter(None, [who, alone(change).text(full=True)]))
