"""Reports of a review by the name of their format."""

from __future__ import annotations

from kvplan.review.judge import Judgement
from kvplan.review.machine import as_json, github, junit
from kvplan.review.markdown import markdown
from kvplan.review.review import Review
from kvplan.review.rollout import FleetRollout
from kvplan.review.text import text

FORMATS = ("text", "json", "markdown", "github", "junit")


def report(
    form: str,
    review: Review,
    judgement: Judgement,
    folder: str,
    verbose: bool,
    rollout: FleetRollout | None,
    width: int,
) -> str:
    """The report in one of FORMATS: `text` has lines of `width`, annotations of `github` point to files in `folder`."""
    if form == "json":
        return as_json(review, judgement, rollout)
    if form == "markdown":
        return markdown(review, judgement, rollout)
    if form == "github":
        return github(review, judgement, folder, rollout)
    return junit(review, judgement, rollout) if form == "junit" else text(review, judgement, verbose, rollout, width)
