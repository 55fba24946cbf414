"""Judge a review: the changes that `--fail-on` names fail, without those that a file accepts with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import close
from kvplan.dsl.schema.forms import Form, FormKeys, ListShape, key
from kvplan.dsl.schema.shapes import SENTENCE, ScalarShape
from kvplan.dsl.text.diagnostics import DslError, Sink
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import YamlScalar, read
from kvplan.review.changes import Change
from kvplan.review.review import PairReview, Review
from kvplan.review.rules import FAILING, RULES, Category, chosen

FILE = Path("kvplan-diff.yaml")
# The placeholder for a reason in the lines that a review proposes. A file that still has it is refused (S037).
WHY = "WHY"


@dataclass(frozen=True, slots=True)
class AcceptedKeys(FormKeys):
    rule: tuple[YamlScalar, ...] = key(
        ListShape(ScalarShape("rule"), bare=True, filled=True), "ids of rules, or categories", required=True
    )
    pair: YamlScalar | None = key(ScalarShape("name"), "the name of a pair; * stands for any letters", required=True)
    change: tuple[YamlScalar, ...] = key(
        ListShape(ScalarShape("digests"), bare=True, filled=True),
        "digests of the plans before and after, as `kvplan diff` prints them; without it every change",
    )
    reason: YamlScalar | None = key(SENTENCE, "why it is all right", required=True)


@dataclass(frozen=True, slots=True)
class AcceptKeys(FormKeys):
    accept: tuple[AcceptedKeys, ...] = key(
        ListShape(Form("an exception", AcceptedKeys), blank=True), "changes that do not fail", required=True
    )


ACCEPT = Form("the file", AcceptKeys)
STARTS = "a file of exceptions begins with 'accept:', and has its entries below"


@dataclass(frozen=True, slots=True)
class Exempt:
    """An exception: changes under `rules` are accepted in pairs whose names match the pattern `pair`.

    `change` are the ids of the changes that are meant, empty for all.
    """

    rules: tuple[str, ...]
    word: str
    pair: str
    reason: str
    place: SourceSpan
    change: tuple[str, ...] = ()

    def covers(self, pair: PairReview, change: Change) -> bool:
        return change.rule in self.rules and self.names(pair.title) and self.means(pair)

    def means(self, pair: PairReview) -> bool:
        return not self.change or pair.pair.change in self.change

    def names(self, title: str) -> bool:
        return fnmatchcase(title, self.pair)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules that fail. A cost fails only if it grew by more than `cost_growth`."""

    fail_on: tuple[str, ...] = FAILING
    cost_growth: float = 0.0
    exempt: tuple[Exempt, ...] = ()
    file: Path = FILE


@dataclass(frozen=True, slots=True)
class Judgement:
    """All pairs with their failing changes; the exceptions that were used, and the unused ones."""

    pairs: tuple[tuple[PairReview, tuple[Change, ...]], ...]
    used: tuple[Exempt, ...]
    unused: tuple[Exempt, ...]
    # The file for exceptions.
    file: Path = FILE
    # The number of pairs that have no plan: no exception accepts these.
    refused: int = 0

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that fail, in the order of the table."""
        found = {change.rule for _, changes in self.pairs for change in changes}
        return tuple(rule for rule in RULES if rule in found)

    def useless(self, one: Exempt) -> str:
        """The message for an unused exception: no changed plan has the name, or the plan does not change so."""
        named = [pair for pair, _ in self.pairs if one.names(pair.title)]
        if named and not any(map(one.means, named)):
            return f"accepts {one.word} of another change of {one.pair} than this one: once that is merged, remove it"
        if named:
            return f"accepts {one.word} of {one.pair}, which does not change: remove it"
        names = [pair.title for pair, _ in self.pairs]
        near = close(one.pair, names)
        return f"accepts {one.word} of {one.pair}, and no plan of that name changes: " + (
            f"did you mean '{near}'?" if near else "remove it"
        )


def categories(changes: Sequence[Change]) -> tuple[Category, ...]:
    """The categories of some changes, the gravest first: the same in every report."""
    found = {RULES[change.rule].category for change in changes}
    return tuple(category for category in reversed(Category) if category in found)


def judged(review: Review, policy: Policy) -> Judgement:
    pairs: list[tuple[PairReview, tuple[Change, ...]]] = []
    used: set[Exempt] = set()
    # Whether these pairs change as an exception says is not known before they compile.
    unjudged = [*(one.title for one in review.missing), *(one.title for one in review.refused)]
    for pair in review.pairs:
        asked = [change for change in pair.changes if _asked(change, policy)]
        covering = {change: [one for one in policy.exempt if one.covers(pair, change)] for change in asked}
        used.update(one for some in covering.values() for one in some)
        pairs.append((pair, tuple(change for change in asked if not covering[change])))
    return Judgement(
        tuple(pairs),
        tuple(one for one in policy.exempt if one in used),
        tuple(one for one in policy.exempt if one not in used and not any(map(one.names, unjudged))),
        policy.file,
        len(review.refused),
    )


def policy(fail_on: Sequence[str], cost_growth: str | None, accept: Path | None) -> Policy:
    """A policy from the words of a command line. Raises BadInput (S027, S028), DslError."""
    rules = tuple(rule for word in fail_on for rule in chosen(word))
    if cost_growth is not None and fail_on and not any(RULES[rule].category is Category.COST for rule in rules):
        raise BadInput("S028", "--cost-growth has no effect: no --fail-on names a cost", "add --fail-on COST")
    path = accept or (FILE if FILE.is_file() else None)
    exempt = exceptions(path) if path else ()
    return Policy(rules or FAILING, share(cost_growth or "0%"), exempt, path or FILE)


def share(text: str) -> float:
    """`10%` as 0.1; a number without % might be meant as either. Raises BadInput (S028)."""
    said = text.strip()
    try:
        found = float(said.removesuffix("%")) / 100 if said.endswith("%") else -1.0
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise BadInput("S028", f"--cost-growth {text} is no percentage", "give one, for example 10%")
    return found


def exceptions(path: Path) -> tuple[Exempt, ...]:
    """The exceptions in a file, none in an empty one. Raises DslError at the place of each fault."""
    sink = Sink()
    try:
        document = read(path, STARTS)
    except DslError as error:
        if {one.code for one in error.diagnostics} == {"Y008"}:
            return ()
        raise
    sink.errors.extend(document.errors)
    keys = ACCEPT.read(sink, document.root, "the file")
    found = [one for entry in (keys.accept if keys else ()) if (one := _exempt(sink, entry))]
    if sink.errors:
        raise DslError(*(replace(one, help=one.help or STARTS) for one in sink.errors))
    return tuple(found)


def _exempt(sink: Sink, entry: AcceptedKeys) -> Exempt | None:
    if not entry.rule or entry.pair is None or entry.reason is None:
        return None
    if entry.reason == WHY:
        message = f"{entry.pair} is accepted without a reason"
        sink.add("S037", message, entry.reason.span, help=f"write in place of {WHY} why it is all right")
    rules = tuple(rule for word in entry.rule for rule in _rules(sink, word))
    return Exempt(rules, ", ".join(entry.rule), entry.pair, entry.reason, entry.rule[0].span, entry.change)


def _rules(sink: Sink, word: YamlScalar) -> tuple[str, ...]:
    try:
        return chosen(word)
    except BadInput as error:
        sink.add(error.code, error.message, word.span, help=error.help)
        return ()


def _asked(change: Change, policy: Policy) -> bool:
    if RULES[change.rule].category is Category.COST and change.share is not None and change.share <= policy.cost_growth:
        return False
    return change.rule in policy.fail_on
