"""A review as a screenful of text: what changes, why, what follows, what it costs; never wider than WIDTH."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import wrap

from kvplan.cli.review import rollout_words
from kvplan.cli.review.judge import Judgement
from kvplan.cli.review.rollout import FleetRollout
from kvplan.cli.review.summary import ToldChange, headline, how_to_accept, in_full, listed_plans, outcome, told, verdict
from kvplan.cli.terminal import width
from kvplan.compiler.explain.diff.review import PairReview, Review
from kvplan.compiler.explain.diff.rules import RULES

WIDTH = 100
COLUMN = max(map(len, RULES))


def text(review: Review, judgement: Judgement, verbose: bool = False, rollout: FleetRollout | None = None) -> str:
    fleet = _fleet(rollout) if rollout is not None else []
    if not review.pairs:
        same = f"No plan changes: {headline(review).partition('; ')[2]}"
        return "\n\n".join([same, *map("\n".join, fleet)])
    parts = [_wrapped(headline(review)), _wrapped(verdict(review)), *_folded(review)]
    parts += [[pair.pair.title, *_details(pair)] for pair in review.changed] if verbose else []
    parts += [*fleet, _exceptions(judgement), [*_wrapped(outcome(judgement)), *_to_accept(review, judgement)]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _folded(review: Review) -> list[list[str]]:
    blocks = [(heading, [line for one in changes for line in _told(one)]) for heading, changes in told(review)]
    blocks += [("PLANS that change", _plans(review)), ("NEW", _titles(review.new)), ("REMOVED", _titles(review.gone))]
    return [[heading, *lines] for heading, lines in blocks if lines]


def _told(change: ToldChange) -> list[str]:
    if change.rule:
        return _row(change.rule, change.text, change.where)
    return _wrapped(change.text, "  ", "      ")


def _fleet(rollout: FleetRollout) -> list[list[str]]:
    heading = _wrapped(f"FLEET, {rollout_words.headline(rollout)}")
    blocks = [[*heading, *(line for one in rollout.classes for line in _indented(rollout_words.engines(one)))]]
    for one in rollout.models:
        pairs = [line for p in one.pairs for line in _indented(rollout_words.pair(p, rollout.classes), "    ")]
        table = [f"    {line}" for line in rollout_words.steps(one)]
        blocks.append([*_indented(rollout_words.advice(one)), *pairs, *table])
    return blocks


def _indented(said: str, indent: str = "  ") -> list[str]:
    return _wrapped(said, indent, f"{indent}    ")


def _plans(review: Review) -> list[str]:
    said = [f"{folder}: {names}" if folder else names for folder, names in listed_plans(review)]
    # A number stays with its name.
    joined = [re.sub(r"(\d) (?=\w)", "\\1\xa0", one) for one in said]
    return [line.replace("\xa0", " ") for one in joined for line in _wrapped(one, "  ", "    ")]


def _row(rule: str, said: str, where: str = "") -> list[str]:
    return _wrapped(said + (f"  [{where}]" if where else ""), f"  {rule:{COLUMN}}  ", " " * (COLUMN + 6))


def _details(pair: PairReview) -> list[str]:
    return [line for change in pair.changes for line in _row(change.rule, in_full(change))]


def _titles(pairs: Iterable[PairReview]) -> list[str]:
    return [line for pair in pairs for line in _wrapped(pair.pair.title, "  ")]


def _exceptions(judgement: Judgement) -> list[str]:
    lines = [f"accepted: {one.word} of {one.pair}: {one.reason}" for one in judgement.used]
    lines += [
        f"{one.place.path}:{one.place.line}: accepts {one.word} of {one.pair}, which does not change: remove it"
        for one in judgement.unused
    ]
    return [line for said in lines for line in _wrapped(said, "", "    ")]


def _to_accept(review: Review, judgement: Judgement) -> list[str]:
    """Entries are not wrapped: a reader pastes them."""
    entries = how_to_accept(review, judgement)
    said = f"If this is intended, add to {judgement.file} below `accept:`, with your reason:"
    return [*_wrapped(said), *(f"  {entry}" for entry in entries)] if entries else []


def _wrapped(said: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of WIDTH at most. A word that is longer, a path for example, is broken."""
    indent = first if rest is None else rest
    room = min(WIDTH, width())
    return wrap(said, room, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False) if said else []
