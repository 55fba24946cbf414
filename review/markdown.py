"""A review as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.dsl.text.diagnostics import listed
from kvplan.review import rollout_words
from kvplan.review.fold import FoldedChange, places
from kvplan.review.judge import Judgement
from kvplan.review.review import PairReview, Review
from kvplan.review.rollout import FleetRollout
from kvplan.review.rules import RULES, Category
from kvplan.review.summary import (
    UNCOMPARED,
    cost_hints,
    headline,
    how_to_accept,
    lacks_layouts,
    listed_plans,
    new_names,
    option_notes,
    outcome,
    refusal,
    sections,
    warnings,
    without_effect,
)
from kvplan.review.verdict import VerdictPart, lost_names, verdict_parts


def markdown(review: Review, judgement: Judgement, rollout: FleetRollout | None = None) -> str:
    parts, fleet = [f"### Plans: {headline(review)}"], _fleet(rollout) if rollout is not None else ""
    warned = "\n".join(f"- {_cell(one)}" for one in warnings(review))
    if not review.pairs and not review.refused:
        return "\n\n".join(filter(None, [*parts, warned, fleet]))
    found = sections(review)
    refused = "\n".join(f"- {_cell(refusal(one))}" for one in review.refused)
    parts += [*map(_verdict, verdict_parts(review)), refused, warned, _plans(review), _layouts(review)]
    rows = _rows((*found.causes, *found.effects), len(review.changed)) + _rows(found.costs, len(review.costed))
    parts.append(_table(rows))
    parts.append("\n".join(f"- {_cell(note)}" for note in option_notes(review)))
    if found.left_out:
        parts.append(f"As a consequence also {listed([_also(rule) for rule in found.left_out], 'and')}.")
    parts += [UNCOMPARED[0].upper() + UNCOMPARED[1:] + "."] if lacks_layouts(review) else []
    parts += [without_effect(review), "\n".join(f"- {hint}" for hint in cost_hints(review))]
    parts += [*_lists(review), fleet, _exceptions(judgement), outcome(judgement)]
    parts += [_to_accept(judgement)]
    return "\n\n".join(part for part in parts if part)


def _verdict(part: VerdictPart) -> str:
    return "\n".join([f"**{part.sentence}**", *(["", *part.numbered] if part.steps else [])])


def _layouts(review: Review) -> str:
    lines = [
        f"- {_code(one.path)}: {_code(one.key)} {_code(one.before or 'none')} → {_code(one.after or 'none')}"
        for one in review.layouts
    ]
    return "\n".join(lines)


def _table(rows: Sequence[str]) -> str:
    return "\n".join(["| | rule | what changes | where |", "|---|---|---|---|", *rows]) if rows else ""


def _rows(changes: Sequence[FoldedChange], count: int) -> list[str]:
    return [
        f"| {_kind(one)} | {_code(one.rule)} | {_cell(one.text())} | {places(one.where, count)} |" for one in changes
    ]


def _also(rule: str) -> str:
    return f"{_code(rule)} ({RULES[rule].detail})"


def _kind(change: FoldedChange) -> str:
    """The category, or `cause` for a cause in TEXT: an option only matters through the changes that it causes."""
    return "cause" if change.category is Category.TEXT and RULES[change.rule].cause else change.category


def _fleet(rollout: FleetRollout) -> str:
    told = "\n".join(f"- {_cell(line)}" for line in rollout_words.sentences(rollout))
    tables = ["\n".join(["```text", *rollout_words.steps(one), "```"]) for one in rollout.models]
    return "\n\n".join([f"**Fleet**: {rollout_words.headline(rollout)}", told, *tables])


def _plans(review: Review) -> str:
    lines = [f"- {folder}: {names}" for folder, names in listed_plans(review)]
    if not lines:
        return ""
    return "\n".join(["<details><summary>Plans that change</summary>", "", *lines, "", "</details>"])


def _lists(review: Review) -> list[str]:
    groups = (
        ("New", new_names(review)),
        ("Removed", lost_names(review)),
        ("Kept until NEW is corrected", _titles(review.missing)),
        ("Renamed", _titles(review.renamed)),
    )
    return ["\n".join([f"{word}:", "", *(f"- {_code(name)}" for name in some)]) for word, some in groups if some]


def _titles(pairs: Sequence[PairReview]) -> list[str]:
    return [one.pair.full_title for one in pairs]


def _exceptions(judgement: Judgement) -> str:
    lines = [f"- accepted: {_code(one.word)} of {_code(one.pair)}: {one.reason}" for one in judgement.used]
    lines += [f"- {_cell(judgement.useless(one))}" for one in judgement.unused]
    return "\n".join(lines)


def _to_accept(judgement: Judgement) -> str:
    entries = how_to_accept(judgement)
    said = f"If this is intended, add to {_code(str(judgement.file))} below `accept:`, with your reason:\n\n```yaml"
    return "\n".join([said, *(f"  {entry}" for entry in entries), "```"]) if entries else ""


def _code(text: str) -> str:
    """The text as inline code, even if it has backticks or pipes."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{_cell(text)}{fence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
