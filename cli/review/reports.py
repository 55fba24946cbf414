"""Reports of a review by the name of their format."""

from __future__ import annotations

from kvplan.cli.review.judge import Judgement
from kvplan.cli.review.machine import as_json, github, junit
from kvplan.cli.review.markdown import markdown
from kvplan.cli.review.text import text
from kvplan.compiler.explain.diff.review import Review

FORMATS = ("text", "json", "markdown", "github", "junit")


def report(form: str, review: Review, judgement: Judgement, folder: str, verbose: bool) -> str:
    """The report in one of FORMATS; annotations are of files in `folder`."""
    if form == "json":
        return as_json(review, judgement)
    if form == "markdown":
        return markdown(review, judgement)
    if form == "github":
        return github(review, judgement, folder)
    return junit(review, judgement) if form == "junit" else text(review, judgement, verbose)
