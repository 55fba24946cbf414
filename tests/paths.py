"""Where things lie in the repository."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DOCS, EXAMPLES, FIXTURES = ROOT / "docs", ROOT / "examples", TESTS / "fixtures"
