"""The committed plans and digests are those that the compiler makes now. `make goldens` writes them again."""

from __future__ import annotations

from click.testing import CliRunner
from tests.golden.digests import FILE
from tests.golden.figures import PICTURES, figures
from tests.golden.readme import fresh
from tests.layouts.sweep import library
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.deploy.jobs import opened

EXAMPLES = ROOT / "examples"


def test_gallery_is_fresh() -> None:
    run = CliRunner().invoke(
        main, ["compile", str(EXAMPLES / "gallery.yaml"), "-o", str(EXAMPLES / "plans"), "--check"]
    )
    assert run.exit_code == 0, f"make goldens, and read the diff\n{run.output}"


def test_gallery_stays_small() -> None:
    assert 18 <= len(list((EXAMPLES / "plans").glob("*/*.py"))) <= 46


def test_every_kind_has_a_plan() -> None:
    known, jobs = opened([EXAMPLES / "gallery.yaml"], {})
    shown = {cache.kind for job in jobs for cache in known.model(job.model).caches.values()}
    assert shown == set(known.kinds)


def test_digests_are_of_the_shipped_models() -> None:
    """That they are fresh is found where every pair is compiled, in tests/layouts."""
    named = {line.split()[0] for line in FILE.read_text().splitlines()[1:]}
    assert named == set(library().models)


def test_pictures_are_fresh() -> None:
    found = {path.name: path.read_text() for path in PICTURES.iterdir()}
    assert found == figures(), "make goldens, and look at them"


def test_readme_shows_files_as_they_are() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert fresh(readme) == readme, "make goldens"
