"""The committed plans and digests are those that the compiler makes now. `make goldens` writes them again."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from kvplan.cli.main import main
from tests.golden.digests import table
from tests.golden.readme import fresh

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_gallery_is_fresh() -> None:
    run = CliRunner().invoke(
        main, ["compile", str(EXAMPLES / "gallery.yaml"), "-o", str(EXAMPLES / "plans"), "--check"]
    )
    assert run.exit_code == 0, f"make goldens, and read the diff\n{run.output}"


def test_gallery_stays_small() -> None:
    assert 18 <= len(list((EXAMPLES / "plans").glob("*/*.py"))) <= 30


def test_digests_are_fresh() -> None:
    assert table() == (EXAMPLES / "digests.txt").read_text(), "make goldens, and read the diff"


def test_readme_shows_files_as_they_are() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert fresh(readme) == readme, "make goldens"
