"""A review as a screenful of text: the causes, what follows from them, what it costs; never wider than WIDTH."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap

from kvplan.review import rollout_words
from kvplan.review.judge import Judgement
from kvplan.review.review import PairReview, Review
from kvplan.review.rollout import FleetRollout
from kvplan.review.rules import RULES
from kvplan.review.summary import (
    ToldChange,
    doubts,
    headline,
    how_to_accept,
    in_full,
    listed_plans,
    new_names,
    outcome,
    refusal,
    told,
)
from kvplan.review.verdict import VerdictPart, lost_names, verdict_parts

WIDTH = 100
NO_BREAK = "\xa0"
COLUMN = max(map(len, RULES))


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Words to wrap: `first` begins the first line, `rest` the others. Without `words`, `first` is the whole line."""

    words: str
    first: str = ""
    rest: str = ""
    # Whether a word that is longer than a line, a path for example, is broken.
    breaks: bool = True

    def lines(self, width: int) -> list[str]:
        """Lines of at most `width`."""
        if not self.words:
            return [self.first]
        # Words that cannot stay together on one line are broken at a blank.
        fits = max(map(len, self.words.split(" "))) <= width - len(self.rest)
        found = wrap(
            self.words if fits or not self.breaks else self.words.replace(NO_BREAK, " "),
            width,
            initial_indent=self.first,
            subsequent_indent=self.rest,
            break_on_hyphens=False,
            break_long_words=self.breaks,
        )
        return [line.replace(NO_BREAK, " ") for line in found]


def text(
    review: Review, judgement: Judgement, verbose: bool = False, rollout: FleetRollout | None = None, width: int = WIDTH
) -> str:
    """The report in lines of at most `width` and WIDTH."""
    parts = _parts(review, judgement, verbose, rollout)
    room = min(WIDTH, width)
    return "\n\n".join("\n".join(line for one in part for line in one.lines(room)) for part in parts if part)


def _parts(review: Review, judgement: Judgement, verbose: bool, rollout: FleetRollout | None) -> list[list[_Paragraph]]:
    fleet = _fleet(rollout) if rollout is not None else []
    first = [_words(headline(review).capitalize() if not review.pairs and not review.refused else headline(review))]
    first += [_words(f"warning: in OLD, {one}", "", "    ") for one in review.damaged]
    if not review.pairs and not review.refused:
        return [*first, *fleet]
    parts = [*first, *map(_verdict, verdict_parts(review)), *_folded(review)]
    parts += (
        [[*([_whole(pair.title)] if pair.title else []), *_details(pair)] for pair in review.changed] if verbose else []
    )
    return [*parts, *fleet, _exceptions(judgement), [*_words(outcome(judgement)), *_to_accept(judgement)]]


def _folded(review: Review) -> list[list[_Paragraph]]:
    blocks = [("REFUSED", [line for one in review.refused for line in _words(refusal(one), "  ", "      ")])]
    blocks += [("DOUBTS about layouts, new", [line for one in doubts(review) for line in _words(one, "  ", "      ")])]
    blocks += [("PLANS that change", _plans(review))]
    blocks += [(heading, [line for one in changes for line in _change_lines(one)]) for heading, changes in told(review)]
    blocks += [
        ("NEW", [line for name in new_names(review) for line in _words(name, "  ")]),
        ("REMOVED", [line for name in lost_names(review) for line in _words(name, "  ")]),
        ("KEPT until NEW is corrected", _titles(review.missing)),
    ]
    blocks += [("RENAMED", _titles(review.renamed))]
    return [[_whole(heading), *lines] for heading, lines in blocks if lines]


def _verdict(part: VerdictPart) -> list[_Paragraph]:
    # A flag stays with its value.
    steps = [re.sub(r"(--\S+) (?=[^\s-])", rf"\1{NO_BREAK}", step) for step in part.numbered]
    return [*_words(part.sentence), *(line for step in steps for line in _words(step, "  ", "     "))]


def _change_lines(change: ToldChange) -> list[_Paragraph]:
    if change.rule:
        return _row(change.rule, change.text, change.where)
    return _words(_with_whole_command(change.text), "  ", "      ")


def _with_whole_command(said: str) -> str:
    """The words, with a command at their end that stays on one line."""
    before, colon, command = said.rpartition(": kvplan ")
    whole = f"kvplan {command}"
    return f"{before}: {whole.replace(' ', NO_BREAK)}" if colon else said


def _fleet(rollout: FleetRollout) -> list[list[_Paragraph]]:
    heading = _words(f"FLEET, {rollout_words.headline(rollout)}")
    blocks = [[*heading, *(line for one in rollout.classes for line in _indented(rollout_words.engines(one)))]]
    for one in rollout.models:
        pairs = [line for p in one.pairs for line in _indented(rollout_words.pair(p, rollout.classes), "    ")]
        table = [_whole(f"    {line}") for line in rollout_words.steps(one)]
        blocks.append([*_indented(rollout_words.advice(one)), *pairs, *table])
    return blocks


def _indented(said: str, indent: str = "  ") -> list[_Paragraph]:
    return _words(said, indent, f"{indent}    ")


def _plans(review: Review) -> list[_Paragraph]:
    said = [f"{folder}: {names}" if folder else names for folder, names in listed_plans(review)]
    # A number stays with its name.
    joined = [re.sub(r"(\d) (?=\w)", rf"\1{NO_BREAK}", one) for one in said]
    return [line for one in joined for line in _words(one, "  ", "    ")]


def _row(rule: str, said: str, where: str = "") -> list[_Paragraph]:
    # A list of plans stays on one line.
    kept = re.sub(r"(?<=[\ds]) (?=\d)|(?<=\d,) (?=\d)", NO_BREAK, where)
    return _words(said + (f"  [{kept}]" if where else ""), f"  {rule:{COLUMN}}  ", " " * (COLUMN + 6))


def _details(pair: PairReview) -> list[_Paragraph]:
    return [line for change in pair.changes for line in _row(change.rule, in_full(change))]


def _titles(pairs: Iterable[PairReview]) -> list[_Paragraph]:
    return [line for pair in pairs for line in _words(pair.pair.full_title, "  ")]


def _exceptions(judgement: Judgement) -> list[_Paragraph]:
    lines = [f"accepted: {one.word} of {one.pair}: {one.reason}" for one in judgement.used]
    lines += [f"{one.place.path}:{one.place.line}: {judgement.useless(one)}" for one in judgement.unused]
    return [line for said in lines for line in _words(said, "", "    ")]


def _to_accept(judgement: Judgement) -> list[_Paragraph]:
    """The entries to accept the changes, for a reader to paste."""
    entries = how_to_accept(judgement)
    said = f"If this is intended, add to {judgement.file} below `accept:`, with your reason:"
    return [*_words(said), *(_entry(one) for one in entries)] if entries else []


def _entry(said: str) -> _Paragraph:
    """An entry of YAML: no word is broken, and a key stays with its value."""
    return _Paragraph(said.replace(": ", f":{NO_BREAK}"), "  ", "     ", breaks=False)


def _words(said: str, first: str = "", rest: str | None = None) -> list[_Paragraph]:
    return [_Paragraph(said, first, first if rest is None else rest)] if said else []


def _whole(line: str) -> _Paragraph:
    return _Paragraph("", line)
