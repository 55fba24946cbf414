"""A review of many plans: the changes of each, and the verdict for running engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from kvplan.compiler.api import unusual
from kvplan.dsl.text.source import SourceSpan
from kvplan.plan.types import Plan
from kvplan.review.changes import SIDES, Change, changed_sides, changes, cost_changes
from kvplan.review.facts import Subject, options
from kvplan.review.layouts import DEFAULT, LayoutChange
from kvplan.review.pairing import FilePair, PlanFile, nearest, paired
from kvplan.review.rules import RolloutVerdict

OLD, NEW = "OLD", "NEW"
VERDICT_OF_SIDES = {0: RolloutVerdict.RELOAD, 1: RolloutVerdict.ONE_SIDE, 2: RolloutVerdict.TOGETHER}


@dataclass(frozen=True, slots=True)
class SharedSide:
    """A side that a pair of OLD leaves, and the names of the pairs of NEW that need it as it is.

    `options` are the plan_options of its engines, None if these stay.
    """

    side: str
    key: str
    options: tuple[tuple[str, str], ...] | None
    pairs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairReview:
    """The changes in the plan of one pair, with the verdict on it. The cost of a new pair changes from `nearest`.

    `shared` are sides that restart for this pair, although other pairs need them as they are.
    """

    pair: FilePair
    changes: tuple[Change, ...]
    verdict: RolloutVerdict
    nearest: PlanFile | None = None
    shared: tuple[SharedSide, ...] = ()

    @property
    def title(self) -> str:
        return self.pair.title

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.rule for change in self.changes))

    @property
    def rolls(self) -> tuple[str, ...]:
        """The sides whose engines restart. One side can restart alone only if an index also has the old plans."""
        before, after = self.pair.before, self.pair.after
        if before is None or after is None or self.verdict not in (RolloutVerdict.ONE_SIDE, RolloutVerdict.TOGETHER):
            return ()
        return restarted(before.plan, after.plan) if before.plan and after.plan else SIDES


@dataclass(frozen=True, slots=True)
class RefusedPair:
    """A pair of the deployment `of`, OLD or NEW, that has no plan, with the reason.

    `title` is the name of its plan, empty if the deployment names none: then it depends on what compiles.
    """

    of: str
    model: str
    pair: str
    code: str
    message: str
    help: str = ""
    place: SourceSpan | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """All pairs: changed, new, removed, only renamed, and the number of unchanged ones. `layouts` are changed keys.

    `missing` are pairs of OLD without a plan in NEW which may be `refused` there. `folders` have layout files of the
    user's own; commands that a report prints name them.
    """

    changed: tuple[PairReview, ...]
    new: tuple[PairReview, ...]
    gone: tuple[PairReview, ...]
    same: int
    layouts: tuple[LayoutChange, ...] = ()
    renamed: tuple[PairReview, ...] = ()
    folders: tuple[Path, ...] = ()
    missing: tuple[PairReview, ...] = ()
    refused: tuple[RefusedPair, ...] = ()
    # Whether engines know the plans of OLD and NEW already.
    one_index: bool = False
    # Whether layout files were not compared, because nothing names the user's own ones.
    uncompared: bool = False
    # Sentences about plans of OLD that engines refuse.
    damaged: tuple[str, ...] = ()

    @property
    def costed(self) -> tuple[PairReview, ...]:
        """The pairs whose cost is compared: changed ones, then new ones."""
        return (*self.changed, *(pair for pair in self.new if pair.nearest))

    @property
    def pairs(self) -> tuple[PairReview, ...]:
        return (*self.changed, *self.new, *self.gone, *self.renamed)

    def only(self, pair: PairReview) -> Review:
        """The review of one of its pairs."""
        kinds = (self.changed, self.new, self.gone, self.renamed)
        changed, new, gone, renamed = (tuple(one for one in some if one is pair) for some in kinds)
        return replace(
            self, changed=changed, new=new, gone=gone, same=0, renamed=renamed, folders=(), missing=(), refused=()
        )

    def layouts_of(self, pair: PairReview) -> tuple[str, ...]:
        """The changed layout files that concern a pair; `layout` if it has a new one and no file is known to differ."""
        paths = dict.fromkeys(one.path for one in _causes(self.layouts, [pair]))
        return (*paths,) or (("layout",) if self._has_new_layout(pair) else ())

    def _has_new_layout(self, pair: PairReview) -> bool:
        """Whether a side changes without an option, or what is stored may, and layout files were not compared."""
        (old, new), after = pair.pair.plans, pair.pair.after
        if old is None or new is None or after is None:
            return False
        written = {change.subject.side for change in pair.changes if change.rule == "OPTION"}
        stored = old.model_digest != new.model_digest
        return not {*changed_sides(old, new)} <= written or (stored and self.uncompared and after.has_own_layouts)

    @property
    def verdict(self) -> RolloutVerdict:
        """The gravest verdict of all pairs that are not new; REFUSED if NEW or OLD has a pair without a plan."""
        if self.refused:
            return RolloutVerdict.REFUSED
        return gravest((*self.changed, *self.gone, *self.renamed))


def gravest(pairs: Iterable[PairReview]) -> RolloutVerdict:
    """The gravest verdict of some pairs, SAME if there is none."""
    return max((pair.verdict for pair in pairs), key=list(RolloutVerdict).index, default=RolloutVerdict.SAME)


def review(
    before: Mapping[str, PlanFile],
    after: Mapping[str, PlanFile],
    layouts: Sequence[LayoutChange] = (),
    same: int = 0,
    refused: Sequence[RefusedPair] = (),
) -> Review:
    """Compare plans by path. `same` further plans are counted as unchanged without being read.

    Only those changes of layouts are kept that may cause the changes of plans.
    """
    every = [_pair(pair) for pair in paired(before, after)]
    unlike = [one for one in every if one.verdict is not RolloutVerdict.SAME]
    renamed = tuple(one for one in unlike if one.rules == ("FILE_NAME",))
    changed = tuple(one for one in unlike if one.pair.before and one.pair.after and one not in renamed)
    new = tuple(one for one in unlike if not one.pair.before)
    lost = [one for one in unlike if not one.pair.after]
    missing = tuple(one for one in lost if _may_be_refused(one, lost, refused))
    gone = tuple(one for one in lost if one not in missing)
    kept = same + len(every) - len(unlike)
    causes = _causes(layouts, changed)
    return Review(changed, new, gone, kept, causes, renamed, missing=missing, refused=tuple(refused))


def with_costs(answer: Review, old: Iterable[PlanFile]) -> Review:
    """The review, in which each new pair has the cost that it changes from its nearest plan in `old`.

    If several are as near, a removed one counts: the new pair may take its place.
    """
    gone = {one.pair.before.path for one in answer.gone if one.pair.before}
    others = sorted(old, key=lambda file: (file.path not in gone, file.path))
    return replace(answer, new=tuple(_with_cost(one, others) for one in answer.new))


def _with_cost(new: PairReview, others: Sequence[PlanFile]) -> PairReview:
    near = nearest(new.pair.after, others) if new.pair.after else None
    _, plan = new.pair.plans
    if near is None or near.plan is None or plan is None:
        return new
    return replace(new, changes=(*new.changes, *cost_changes(near.plan, plan)), nearest=near)


def with_shared(answer: Review, new: Iterable[PlanFile]) -> Review:
    """The review, in which each changed pair has the sides that plans of NEW, or of refused pairs, still need."""
    stay = [*new, *(one.pair.before for one in answer.missing if one.pair.before)]
    return replace(answer, changed=tuple(replace(one, shared=_shared(one, stay)) for one in answer.changed))


def _shared(pair: PairReview, stay: Sequence[PlanFile]) -> tuple[SharedSide, ...]:
    old, new = pair.pair.plans
    if old is None or new is None:
        return ()
    options = None if old.options == new.options else (*unusual(old),)
    found = {
        side: tuple(file.title for file in stay if file.plan and _engine(file.plan, side) == _engine(old, side))
        for side in pair.rolls
    }
    return tuple(SharedSide(side, getattr(old, side).key, options, names) for side, names in found.items() if names)


def _engine(plan: Plan, side: str) -> tuple[object, ...]:
    """The identity of an engine of a side to plans: its memory, and the options of those that it looks for."""
    return plan.model_digest, getattr(plan, side).digest, plan.options


def _may_be_refused(one: PairReview, lost: Iterable[PairReview], refused: Iterable[RefusedPair]) -> bool:
    """Whether a pair may have lost its plan because NEW refuses it: one of its name, or else one of its model."""
    plan, _ = one.pair.plans
    names = {each.title for each in lost}
    found = [each for each in refused if each.of == NEW]
    return any(each.title == one.title for each in found) or any(
        each.title not in names and (plan is None or plan.model == each.model) for each in found
    )


def _pair(pair: FilePair) -> PairReview:
    before, after = pair.before, pair.after
    if before is None:
        return PairReview(pair, (_pair_change("PAIR_NEW", pair, None, "new"),), RolloutVerdict.RELOAD)
    if after is None:
        return PairReview(pair, (_pair_change("PAIR_GONE", pair, "there", None),), RolloutVerdict.REMOVED)
    named = before.path != after.path and bool(before.path and after.path)
    moved = (Change(Subject("FILE_NAME", name="file"), before.path, after.path),) if named else ()
    if before.text == after.text:
        return PairReview(pair, moved, RolloutVerdict.TEXT if moved else RolloutVerdict.SAME)
    if before.plan is None or after.plan is None:
        unread = Change(Subject("FORMAT", name="format"), str(before.format), str(after.format))
        return PairReview(pair, (*moved, unread), RolloutVerdict.TOGETHER)
    found = tuple(changes(before.plan, after.plan)) or (
        Change(Subject("FILE_TEXT", name="text"), "as it was", f"changed from line {_first_change(before, after)} on"),
    )
    return PairReview(pair, (*moved, *found), _verdict(before, after))


def _pair_change(rule: str, pair: FilePair, before: str | None, after: str | None) -> Change:
    return Change(Subject(rule, name=pair.title), before, after)


def _first_change(before: PlanFile, after: PlanFile) -> int:
    """The number of the first line that differs."""
    lines = zip_longest(before.text.splitlines(), after.text.splitlines())
    return next((number for number, (old, new) in enumerate(lines, 1) if old != new), 1)


def _verdict(before: PlanFile, after: PlanFile) -> RolloutVerdict:
    assert before.plan
    assert after.plan
    if before.plan.digest == after.plan.digest:
        return RolloutVerdict.TEXT
    return VERDICT_OF_SIDES[len(restarted(before.plan, after.plan))]


def restarted(old: Plan, new: Plan) -> tuple[str, ...]:
    """The sides whose engines restart: both if compile options differ, because engines choose plans by them."""
    return changed_sides(old, new) if old.options == new.options else SIDES


def _causes(layouts: Iterable[LayoutChange], changed: Sequence[PairReview]) -> tuple[LayoutChange, ...]:
    """The changes of layouts that concern a model or an engine of a changed plan; a change of a kind concerns all."""
    plans = [plan for one in changed for plan in one.pair.plans if plan]
    models = {plan.model for plan in plans}
    engines = {dict(options(side)).get("engine", DEFAULT) for plan in plans for side in (plan.prefill, plan.decode)}
    return tuple(
        layout
        for layout in layouts
        if (not layout.models or layout.models & models)
        and (not layout.engines or layout.engines & engines)
        and models - layout.spared
    )
