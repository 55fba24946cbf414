"""Changes between two plans of one pair, each under its rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvplan.dsl.text.diagnostics import listed, ranges
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import Plan
from kvplan.review.facts import (
    DEFAULT,
    RUNS,
    TURN,
    Fact,
    Subject,
    Value,
    copied_by,
    cost_lengths,
    costs,
    facts,
    gathered,
)
from kvplan.review.rules import POSITION, RULES, Category

# A fact's value by worker; the key is None for a fact that is not about one worker.
ByWorker = Mapping[int | None, Value]
SIDES = ("prefill", "decode")
# The value of a fact that a plan does not have, unless it is `none`.
ABSENT = {"OPTION": DEFAULT, "SKIPPED": "moved", "NEEDS": "what is read"}
# If a cache or a tensor is new or removed, that is the change, and these follow from it: they are not listed as well.
OF_A_TENSOR = {"DTYPE", "EXTENT", "PLACE", "AXIS_ORDER", "STEPS"}
OF_BLOCKS = {"BLOCK_TOKENS", "KERNEL_BLOCKS", "TURNS", "RING", "NEEDS"}
OF_PAGES = {"PAGE_BYTES", "TOKEN_BYTES", "BLOCK_STRIDE"}
OF_READS = {"READS", "SPANS", "STAGES"}
OF_A_WORKER = {"HOLDS", "READERS", "READS"}
OF_A_CACHE = {
    *OF_A_TENSOR,
    *OF_BLOCKS,
    *OF_READS,
    "LAYERS",
    "PAGE_COPIES",
    "MEMORY",
    "TENSOR",
    "HOLDS",
    "PAGE_BYTES",
    "TOKEN_BYTES",
    "BLOCK_STRIDE",
    "PLANES",
}
# Categories that explain why a plan has another digest, by whether both sides kept theirs.
TELLING = {False: {Category.LAYOUT}, True: {Category.LAYOUT, Category.PLAN}}


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs. `before` or `after` is None if that plan lacks it. `workers` is empty for all workers.

    For an option, `given` and `left_out` are the engine's own words: what its command has now, `--block-size 32`, or
    what it has no longer, `--block-size`. Both are empty if the engine's file does not tell.
    """

    subject: Subject
    before: Value | None
    after: Value | None
    workers: str = ""
    given: str = field(default="", compare=False)
    left_out: str = field(default="", compare=False)

    @property
    def rule(self) -> str:
        return self.subject.rule

    @property
    def share(self) -> float | None:
        """The growth of a number, 0.5 for half as much again; None if a value is no number or a place, or was 0."""
        if (
            self.rule == "PLACE"
            or not isinstance(self.before, int)
            or not isinstance(self.after, int)
            or not self.before
        ):
            return None
        return self.after / self.before - 1


def changes(old: Plan, new: Plan) -> list[Change]:
    """Every change from `old` to `new`, in the order of the rules; empty if nothing changes."""
    lengths = cost_lengths([old, new])
    found = _joined_pages(_differing(facts(old, lengths), facts(new, lengths)))
    same = not changed_sides(old, new)
    placed = [_of_unchanged_pages(change) for change in found] if same else found
    placed = [_with_reason(change, old, new) for change in placed]
    reported = [change for change in placed if not _implied(change, found)]
    if old.digest != new.digest and not any(RULES[change.rule].category in TELLING[same] for change in reported):
        reported.append(_digest_change(old, new))
    return sorted(reported, key=lambda change: POSITION[change.rule])


def cost_changes(old: Plan, new: Plan) -> list[Change]:
    """The changes of cost from `old` to `new`."""
    lengths = cost_lengths([old, new])
    return _differing(costs(old, lengths), costs(new, lengths))


def _differing(old: Iterable[Fact], new: Iterable[Fact]) -> list[Change]:
    """The changes of all facts that differ."""
    before, after = gathered(old), gathered(new)
    return [
        change
        for subject in dict.fromkeys([*before, *after])
        for change in _of_subject(subject, before.get(subject, {}), after.get(subject, {}))
    ]


def _with_reason(change: Change, old: Plan, new: Plan) -> Change:
    """The change, with the reason for runs of tokens in its values. Facts lack it: a new reason alone is no change."""
    if change.rule != "PAGE_COPIES":
        return change
    name = change.subject.name
    before, after = (
        copied_by(plan, name) if value == RUNS else value for plan, value in ((old, change.before), (new, change.after))
    )
    return replace(change, before=before, after=after)


def _digest_change(old: Plan, new: Plan) -> Change:
    name, before, after = "digest", old.digest, new.digest
    if old.model_digest != new.model_digest:
        name, before, after = "digest of what is stored", old.model_digest, new.model_digest
    return Change(Subject("DIGEST", name=name), before[:12], after[:12])


def changed_sides(old: Plan, new: Plan) -> tuple[str, ...]:
    """The sides whose digests differ; both if the digest of the model differs."""
    if old.model_digest != new.model_digest:
        return SIDES
    digests = {"prefill": (old.prefill, new.prefill), "decode": (old.decode, new.decode)}
    return tuple(side for side, (before, after) in digests.items() if before.digest != after.digest)


def _of_subject(subject: Subject, before: ByWorker, after: ByWorker) -> Iterator[Change]:
    """The changes of one fact. Workers with equal changes share one."""
    uniform = len({*before.values()}) <= 1 and len({*after.values()}) <= 1
    if uniform and before and after:
        # All workers agree before, and all agree after: the number of workers does not matter.
        before, after = {None: next(iter(before.values()))}, {None: next(iter(after.values()))}
    alike: dict[tuple[Value | None, Value | None], list[int | None]] = {}
    uneven = bool(before and after) and before.keys() != after.keys()
    every = [*dict.fromkeys([*before, *after])]
    if uneven and subject.rule not in OF_A_WORKER:
        # Workers that only one plan has count only by what they hold and read: the rule WORKERS reports them.
        every = [worker for worker in before if worker in after]
    for worker in every:
        pair = before.get(worker), after.get(worker)
        if pair[0] != pair[1]:
            alike.setdefault(pair, []).append(worker)
    for (left, right), workers in alike.items():
        absent = ABSENT.get(subject.rule)
        numbers = ranges(number for number in workers if number is not None)
        some = numbers if uneven or len(workers) < len(every) else ""
        yield Change(subject, absent if left is None else left, absent if right is None else right, some)


def _of_unchanged_pages(change: Change) -> Change:
    return replace(change, subject=replace(change.subject, rule="SPANS_CUT")) if change.rule == "SPANS" else change


def _joined_pages(found: Sequence[Change]) -> list[Change]:
    """The changes, each cache whose pages only one plan has in parts, or with all layers, with one of each rule.

    `131,072 B page → 4,096 B page for k and for v` is one change; without it a page would seem to be removed.
    """
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in found:
        if change.rule in OF_PAGES and None in (change.before, change.after):
            alike.setdefault(_of_pages(change), []).append(change)
    both = {key: some for key, some in alike.items() if len({one.before is None for one in some}) > 1}
    kept = [change for change in found if change not in both.get(_of_pages(change), ())]
    return kept + [_joined(some) for some in both.values()]


def _of_pages(change: Change) -> tuple[str, ...]:
    return change.rule, change.subject.side, change.subject.name, change.workers


def _joined(some: Sequence[Change]) -> Change:
    first = some[0]
    before, after = (
        _pages_in_words([(one.subject, value) for one in some if (value := getattr(one, when)) is not None])
        for when in ("before", "after")
    )
    return replace(first, subject=replace(first.subject, part="", word="", unit=""), before=before, after=after)


def _pages_in_words(pages: Sequence[tuple[Subject, Value]]) -> str:
    """`4,096 B page for k and for v`."""
    sizes = grouped(
        ((f"{value:,}" if isinstance(value, int) else value, one.unit, one.word), one) for one, value in pages
    )
    parts = {words: [one.part for one in some if one.part] for words, some in sizes.items()}
    each = [(*words, listed([f"for {part}" for part in some], "and") if some else "") for words, some in parts.items()]
    return ", ".join(" ".join(filter(None, words)) for words in each)


def _is_of_turns(change: Change, side: str) -> bool:
    return change.rule == "TURNS" and change.subject.word != TURN and change.subject.side == side


def _implied(change: Change, found: Sequence[Change]) -> bool:
    """Whether a change only follows from a new or removed cache, tensor, group or layer in `found`."""
    subject = change.subject

    def new_or_gone(rule: str, *, part: bool = False) -> bool:
        others = (other.subject for other in found if other.rule == rule)
        return any(
            other.name == subject.name and subject.side in ("", other.side) and (not part or other.part == subject.part)
            for other in others
        )

    return (
        (subject.word == TURN and any(_is_of_turns(other, subject.side) for other in found))
        or (change.rule in OF_A_CACHE and new_or_gone("CACHE"))
        or (change.rule in OF_A_TENSOR and new_or_gone("TENSOR", part=True))
        or (change.rule == "GROUP_KIND" and new_or_gone("GROUP"))
        or (change.rule == "PLANES" and new_or_gone("LAYERS"))
    )
