"""docs/contributing.md: its changes fit the code as it is, and what it names is there."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.paths import DOCS, ROOT

PAGE = (DOCS / "contributing.md").read_text()
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TOPICS = (
    "A model",
    "An engine option",
    "A setting of a real engine",
    "A kind",
    "A rule of `diff`",
    "An error",
    "A command",
)


def refused(diff: str) -> str:
    """Why a change does not apply to the repository; empty if it does."""
    return subprocess.run(
        ["git", "apply", "--check", "-"], input=diff, cwd=ROOT, capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.parametrize("number", range(len(DIFFS)))
def test_a_change_applies(number: int) -> None:
    assert refused(DIFFS[number]) == ""


def test_a_change_of_other_code_does_not_apply() -> None:
    assert "patch does not apply" in refused(DIFFS[-1].replace('"list": ', '"lost": '))


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_has_a_test_that_fails_and_the_change(topic: str) -> None:
    section = PAGE.partition(f"\n## {topic}\n")[2].partition("\n## ")[0]
    first, second = re.findall(r"^```diff\n", section, re.MULTILINE), "FAILED tests/" in section
    assert (len(first), second) == (2, True)


def test_tests_and_pages_that_it_names_are_there() -> None:
    paths = [path for path in re.findall(r"\btests/[\w/.]+\b", PAGE) if not path.endswith((".json", "."))]
    links = [DOCS / link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE)]
    assert links
    assert paths
    assert [path for path in [*links, *(ROOT / path for path in paths)] if not path.exists()] == []
