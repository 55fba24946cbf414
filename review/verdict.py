"""The verdict of a review, for every report: sentences and numbered steps about engines that run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvplan.compiler.api import unusual
from kvplan.compiler.words import DOCS, many
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import listed
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import FORMAT
from kvplan.review.changes import SIDES, Change
from kvplan.review.facts import DEFAULT, Value
from kvplan.review.review import NEW, OLD, PairReview, Review, SharedSide
from kvplan.review.rules import MODEL_NAMED, RELOAD, RolloutVerdict

# Up to this many pairs are named; more are counted.
FEW = 3
INDEX = (
    "Put both plans into one index, because NEW alone cuts off old {}: "
    "`kvplan push` the plans of OLD, then those of NEW"
)
# Not offered if only a layout file changed: a deployment cannot have both then.
BY_NAME = "; or keep the old pair in the deployment and add the new one under another name"
BESIDE = (
    "Start new engines beside the old ones, and let the router keep old with old and new with new; or stop both sides"
)
KEEP = "Leave some engines as they are for other pairs, or change these pairs, too"
ROUTER = f"Change the router: it asks each engine in that engine's own way, {DOCS}/mixed.md#the-router"
GUIDE = f"How to do this, and what to do afterwards: {DOCS}/review.md#roll-out-this-change"


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """A sentence about some pairs and their engines, and the steps to follow."""

    sentence: str
    steps: tuple[str, ...] = ()

    @property
    def numbered(self) -> list[str]:
        return [f"{number}. {step}." for number, step in enumerate(self.steps, 1)]


def verdict(review: Review) -> str:
    """The verdict in one line."""
    return " ".join(text for part in verdict_parts(review) for text in (part.sentence, *part.numbered))


def verdict_parts(review: Review) -> list[VerdictPart]:
    """The parts of the verdict. Each pair is in one part, except new pairs, which ask nothing of running engines."""
    two = [pair for pair in review.changed if _models(pair)]
    unread = [pair for pair in review.changed if None in pair.pair.plans]
    pairs = [pair for pair in review.changed if pair not in (*two, *unread)]
    alone, both = ([pair for pair in pairs if len(pair.rolls) == count] for count in (1, 2))
    kept, texts = (
        [pair for pair in pairs if pair.verdict is kind] for kind in (RolloutVerdict.RELOAD, RolloutVerdict.TEXT)
    )
    found = _refused(review)
    found += [VerdictPart(_models(pair)) for pair in two]
    found += [VerdictPart(_unread(_which_pairs(review, unread, " in ")))] if unread else []
    found += [_one_side(review, alone)] if alone else []
    found += [_together(review, both)] if both else []
    found += [VerdictPart(_gone(len(review.gone)))] if review.gone else []
    found += [VerdictPart(f"No engine restarts{_which_pairs(review, kept, ' in ')}. {RELOAD}")] if kept else []
    where = _which_pairs(review, texts, " in ") if len(texts) < len(review.changed) else ""
    found += [VerdictPart(f"Only the text changes{where}: old and new engines can talk.")] if texts else []
    found += [VerdictPart(MODEL_NAMED)] if any("MODEL_NAME" in pair.rules for pair in pairs) else []
    found += [] if found else _harmless(review)
    return found + ([VerdictPart(GUIDE)] if any(part.steps for part in found) else [])


def _refused(review: Review) -> list[VerdictPart]:
    counts = {of: sum(one.of == of for one in review.refused) for of in (OLD, NEW)}
    said = [_no_plan(of, count) for of, count in counts.items() if count]
    if review.missing:
        sure = {one.title for one in review.missing} <= {one.title for one in review.refused}
        said.append(
            f"`kvplan compile` keeps {many(len(review.missing), 'plan')} of OLD until then"
            f"{'' if sure else ', even one that you left out on purpose'}."
        )
    return [VerdictPart(" ".join(said))] if said else []


def _no_plan(of: str, count: int) -> str:
    are, have = ("is", "has") if count == 1 else ("are", "have")
    return f"{many(count, 'pair')} of {of} {are} refused and {have} no plan: correct {of}, then compare again."


def _models(pair: PairReview) -> str:
    """A sentence if the two plans are of different models, else empty."""
    old, new = pair.pair.plans
    if old is None or new is None or old.model == new.model or old.model_digest == new.model_digest:
        return ""
    return (
        f"These are plans of two models, {old.model} and {new.model}: engines of one never become those of the other."
    )


def _unread(where: str) -> str:
    return (
        f"Only the format was compared{where}: this kvplan reads plan format {FORMAT}. Compile the other plan again "
        "with the release of kvplan that the engines run."
    )


def _one_side(review: Review, pairs: Sequence[PairReview]) -> VerdictPart:
    """The part for pairs in which one side changes: prefill in some, decode in others."""
    by_side = {side: some for side in SIDES if (some := [pair for pair in pairs if pair.rolls == (side,)])}
    said = "; only ".join(f"{side} changes{_which_pairs(review, some, ' in ')}" for side, some in by_side.items())
    sides = [*by_side]
    old = f"{sides[0]} " if len(sides) == 1 else ""
    other = next(side for side in SIDES if side != sides[0]) if len(sides) == 1 else "the other side"
    return VerdictPart(
        f"Only {said}.",
        (
            *_index(review, pairs, old),
            *_kept_engines(pairs),
            f"While {other} keeps running, restart {_restarts(review, pairs)}",
            *_router(review, pairs),
        ),
    )


def _together(review: Review, pairs: Sequence[PairReview]) -> VerdictPart:
    sentence = (
        f"Roll out both sides{_which_pairs(review, pairs, ' of ')} together: old and new engines refuse each other."
    )
    return VerdictPart(
        sentence,
        (
            *_index(review, pairs),
            *_kept_engines(pairs),
            f"{BESIDE}. Start {_restarts(review, pairs)}",
            *_router(review, pairs),
        ),
    )


def _kept_engines(pairs: Iterable[PairReview]) -> list[str]:
    """The step for other pairs that need a side as it is; empty if no pair does."""
    users = {f"{one.side} {one.key}{_started_with(one)}": one.pairs for pair in pairs for one in pair.shared}
    needs = [f"{_few(names)} {'needs' if len(names) == 1 else 'need'} {side}" for side, names in users.items()]
    return [f"{KEEP}: {'; '.join(needs)}"] if needs else []


def _started_with(shared: SharedSide) -> str:
    if shared.options is None:
        return ""
    return f" with plan_options {json.dumps(dict(shared.options))}" if shared.options else " without plan_options"


def _router(review: Review, pairs: Iterable[PairReview]) -> list[str]:
    """The step for a router that asks another package than before; empty if all packages stay."""
    changed = [one for pair in pairs for side in pair.rolls for one in _changed(pair, "OPTION", side)]
    engines = [(plain(one.before), plain(one.after)) for one in changed if one.subject.name == "engine"]
    known = load([], review.folders).engines if engines else {}
    asked = ([known[name].package if name in known else name for name in both] for both in engines)
    return [ROUTER] if any(before != after for before, after in asked) else []


def _index(review: Review, pairs: Sequence[PairReview], old: str = "") -> list[str]:
    """The step that puts both plans into one index, if they are not in one.

    `old` is the side of the engines that need the old plan.
    """
    if review.one_index:
        return []
    written = all({"OPTION", "COMPILE_OPTION"} & {*pair.rules} and not review.layouts_of(pair) for pair in pairs)
    return [f"{INDEX.format(f'{old}engines')}{BY_NAME if written else ''}"]


def _which_pairs(review: Review, pairs: Sequence[PairReview], word: str) -> str:
    """The pairs that are meant, after `word`: empty if only one changes, their number if they are all that change."""
    if len(review.changed) == 1:
        return ""
    return word + (many(len(pairs), "pair") if len(pairs) == len(review.changed) else named(pairs))


def named(pairs: Sequence[PairReview]) -> str:
    """The names of some pairs, or their number if there are more than FEW."""
    return _few([pair.pair.full_title for pair in pairs])


def _few(names: Sequence[str]) -> str:
    """The names of pairs, or their number if there are more than FEW."""
    return listed(names, "and") if len(names) <= FEW else many(len(names), "pair")


def _restarts(review: Review, pairs: Sequence[PairReview]) -> str:
    """`decode with tp=1`; if pairs differ, `chat decode with tp=1; next prefill with tp=2`."""
    alike = grouped((_settings(pair) + _news(review, pair), pair) for pair in pairs)
    if len(alike) == 1:
        return next(iter(alike))
    if len(alike) > FEW:
        return "the sides that change, with the options below"
    return "; ".join(f"{named(some)} {what}" for what, some in alike.items())


def _settings(pair: PairReview) -> str:
    """The sides of a pair that restart, each with its changed options: `prefill as before, and decode with tp=1`."""
    options = {side: _side(pair, side) for side in pair.rolls}
    if not any(options.values()):
        return listed(list(options), "and")
    between = " and " if all(options.values()) else ", and "
    return between.join(f"{side}{text or ' as before'}" for side, text in options.items())


def _side(pair: PairReview, side: str) -> str:
    """The options of a side to start it with: those that change, all if another engine has its place."""
    changed = {one.subject.name: one for one in _changed(pair, "OPTION", side)}
    if "engine" in changed:
        _, plan = pair.pair.plans
        key = getattr(plan, side).key if plan else ""
        named = key if "engine=" in key else f"engine={plain(changed['engine'].after)},{key}"
        return f" as {named} in place of {plain(changed['engine'].before)}"
    return _options([*changed.values()])


def _news(review: Review, pair: PairReview) -> str:
    """The words for news that are no options of a side: compile options, layout files."""
    files, chosen = review.layouts_of(pair), _changed(pair, "COMPILE_OPTION", "")
    new = [f"plan_options {_plan_options(pair)}"] if chosen else []
    new += [f"the new {listed(files, 'and') if len(files) <= FEW else 'layout files'}"] if files else []
    given = any(_side(pair, side) for side in pair.rolls)
    both = ", both" if len(pair.rolls) > 1 else ","
    return f"{both if given or chosen else ''} with {listed(new, 'and')}" if new else ""


def _changed(pair: PairReview, rule: str, side: str) -> list[Change]:
    return [one for one in pair.changes if one.rule == rule and one.subject.side == side]


def _plan_options(pair: PairReview) -> str:
    """The JSON that a connector takes."""
    _, plan = pair.pair.plans
    return json.dumps(dict(unusual(plan)) if plan else {})


def _options(changes: Sequence[Change]) -> str:
    """` with --block-size 32 and without CACHE_LAYOUT`: an option as its engine takes it, else as of a side."""
    values = [(one, plain(one.after)) for one in changes]
    given = [one.given or f"{one.subject.name}={value}" for one, value in values if value and not one.left_out]
    left = [one.left_out or one.subject.name for one, value in values if one.left_out or not value]
    words = [f"{word} {listed(some, 'and')}" for word, some in (("with", given), ("without", left)) if some]
    return f" {listed(words, 'and')}" if words else ""


def plain(value: Value | None) -> str:
    """A value as plans and commands have it, without the words beside it: `LBNHC` of `LBNHC (nhd)`; empty for none."""
    return "" if value in (None, DEFAULT) else str(value).partition(" (")[0]


def _gone(count: int) -> str:
    are, its, it = ("is", "its", "it") if count == 1 else ("are", "their", "them")
    return (
        f"{many(count, 'pair')} {are} removed, and {its} engines cannot talk any more: merge once no engine uses "
        f"{it}. `kvplan fleet URL --plans DIR` lists engines."
    )


def lost_names(review: Review) -> list[str]:
    """The names of removed pairs; if another plan has the name now, also the digest of the removed one."""
    taken = {pair.title for pair in (*review.changed, *review.new, *review.renamed)}
    return [
        f"{pair.title}, its old plan {pair.pair.before.short_digest}"
        if pair.title in taken and pair.pair.before
        else pair.pair.full_title
        for pair in review.gone
    ]


def _harmless(review: Review) -> Iterable[VerdictPart]:
    """The part if no plan changes or is removed."""
    if review.new and not review.same and not review.renamed:
        return [VerdictPart("All plans are new: OLD has none. If they lay elsewhere, compare with that path.")]
    if review.new:
        return [VerdictPart("Plans are only added: engines that run keep theirs.")]
    return [VerdictPart("Plans are only renamed: engines find them by digest.")] if review.renamed else []
