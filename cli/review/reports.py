"""Reports of a review by the name of their format."""

from __future__ import annotations

from kvplan.cli.review.judge import Judgement
from kvplan.cli.review.machine import as_json, github, junit
from kvplan.cli.review.markdown import markdown
from kvplan.cli.review.rollout import FleetRollout
from kvplan.cli.review.text import text
from kvplan.compiler.explain.diff.review import Review

FORMATS = ("text", "json", "markdown", "github", "junit")


def report(
    form: str, review: Review, judgement: Judgement, folder: str, verbose: bool, rollout: FleetRollout | None = None
) -> str:
    """The report in one of FORMATS; annotations are of files in `folder`. `rollout`: what it means to a fleet."""
    if form == "json":
        return as_json(review, judgement, rollout)
    if form == "markdown":
        return markdown(review, judgement, rollout)
    if form == "github":
        return github(review, judgement, folder, rollout)
    return junit(review, judgement, rollout) if form == "junit" else text(review, judgement, verbose, rollout)
