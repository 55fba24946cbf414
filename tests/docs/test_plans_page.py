"""docs/plans.md quotes plans, word for word."""

from __future__ import annotations

import re

from tests.paths import DOCS

PAGE = (DOCS / "plans.md").read_text()
QUOTED = re.findall(r"^```(?:python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PLANS = [DOCS / path for path in re.findall(r"\]\((\.\./examples/plans/[^)]+\.py)\)", PAGE)]


def test_what_it_quotes_stands_in_a_plan_that_it_names() -> None:
    texts = [path.read_text() for path in PLANS]
    assert len(QUOTED) >= 6
    assert [block for block in QUOTED if not any(block in text for text in texts)] == []
