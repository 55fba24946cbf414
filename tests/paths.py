"""Paths of the repository's folders."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# The rooms whose code the laws are about.
CODE = (
    "dsl",
    "compiler",
    "plan",
    "runtime",
    "remote",
    "store",
    "fleet",
    "registry",
    "deploy",
    "review",
    "traffic",
    "demo",
    "doctor",
    "calibrate",
    "cli",
    "integrations",
)
DOCS, EXAMPLES, FIXTURES = ROOT / "docs", ROOT / "examples", TESTS / "fixtures"
