"""docs/review.md: its example is what the command prints, its table has every rule, its deployments can be read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.docs.test_codes_page import put
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.fleet.file import read_fleet
from kvplan.review.rules import MEANINGS, TABLE, RolloutVerdict
from kvplan.review.verdict import GUIDE
from kvplan.runtime.plans.catalog import Catalog

PAGE = ROOT / "docs" / "review.md"
# The issue of many reviews: one number of a hybrid model, of which nobody knows what it moves.
FAMILY, MODEL = "nemotron-h", "nemotron-3-nano-30b"
DEPLOYMENT = f"""kvplan: 1
deployment: deploy
title: What we run
plans:
  - {{models: [mine/{MODEL}-ours.yaml], prefill: [tp=1/2], decode: [tp=1/2]}}
  - {{models: [qwen3-0.6b], prefill: [tp=1], decode: [tp=1/2]}}
"""
ONE_SIDE = 'prefill: ["tp=1,block=32"], decode: [tp=1/2]'
STAR = r" \*"
COMMAND = "kvplan diff git:HEAD:plans deploy.yaml"
FLEET = f"{COMMAND} --fleet engines.yaml"


def rules() -> str:
    lines = [""]
    for category, meaning in MEANINGS.items():
        every = [one for one in TABLE if one.category is category]
        rows = [f"| `{one.id}`{STAR if one.detail else ''} | {one.sentence} |" for one in every]
        lines += [f"**{category}**: {meaning.text}.", "", "| rule | |", "|---|---|", *rows, ""]
    return "\n".join([*lines, ""])


def own_model() -> str:
    """One of a family's models as a file of its own."""
    family = yaml.safe_load((ROOT / f"layouts/models/{FAMILY}.yaml").read_text())
    own = family["variants"][MODEL]
    caches = {name: {**cache, **own["caches"].get(name, {})} for name, cache in family["caches"].items()}
    head = {"kvplan": 1, "model": f"{MODEL}-ours", "title": own["title"], "dtype": family["dtype"]}
    numbers = {"query_heads": family["query_heads"], "layers": own["layers"]}
    return yaml.safe_dump({**head, **numbers, "caches": caches}, sort_keys=False)


def engines(plans: Path) -> str:
    """Two prefill engines and four decode engines of that model, as a file has them."""
    entry = next(one for one in Catalog(plans).entries() if (one.prefill[1], one.decode[1]) == ("tp=2", "tp=1"))
    about = {"model": entry.model, "model_digest": entry.model_digest}
    sides = {"prefill": (*entry.prefill, 2), "decode": (*entry.decode, 4)}
    records = [
        {"name": f"{role}-{number}", "role": role, **about, "side": digest, "side_key": key}
        for role, (digest, key, count) in sides.items()
        for number in range(count)
    ]
    return yaml.safe_dump({"engines": records}, sort_keys=False)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """The command's output, its output for a fleet, and the start of its output if one side changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("review"))
        model = Path("mine") / f"{MODEL}-ours.yaml"
        model.parent.mkdir()
        model.write_text(own_model())
        Path("deploy.yaml").write_text(DEPLOYMENT)
        done = CliRunner().invoke(main, ["compile", "deploy.yaml"])
        assert done.exit_code == 0, done.output
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "plans"]):
            subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)
        Path("engines.yaml").write_text(engines(Path("plans")))
        model.write_text(own_model().replace("state: 128", "state: 64"))
        said, of_fleet = (CliRunner().invoke(main, command.split()[1:]).stdout for command in (COMMAND, FLEET))
        model.write_text(own_model())
        Path("deploy.yaml").write_text(DEPLOYMENT.replace("prefill: [tp=1], decode: [tp=1/2]", ONE_SIDE))
        one_side = CliRunner().invoke(main, COMMAND.split()[1:]).stdout.partition("PLANS that change")[0]
        return said, of_fleet[of_fleet.index("FLEET,") :].partition("\n\nFails in ")[0], one_side


@pytest.fixture(scope="module")
def example(answers: tuple[str, str, str]) -> str:
    return answers[0]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_page_is_fresh(answers: tuple[str, str, str]) -> None:
    example, of_fleet, one_side = answers
    page = PAGE.read_text()
    fresh = put(page, "example", "end of example", f"\n```console\n$ {COMMAND}\n{example}```\n\n")
    fresh = put(fresh, "fleet", "end of fleet", f"\n```console\n$ {FLEET}\n…\n{of_fleet}\n```\n\n")
    fresh = put(fresh, "one side", "end of one side", f"\n```console\n$ {COMMAND}\n{one_side}…\n```\n\n")
    fresh = put(fresh, "rules", "end of rules", rules())
    if os.environ.get("KVPLAN_REGOLD") and fresh != page:
        PAGE.write_text(fresh)
        pytest.fail("rewrote docs/review.md")
    assert fresh == page


def test_every_verdict_has_its_steps() -> None:
    """The section that a verdict names is there, with every verdict that asks for something."""
    title = GUIDE.rpartition("#")[2].replace("-", " ").capitalize()
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| [^|]* \| `([\w-]+)` \|", section, re.M)
    assert told == [str(verdict) for verdict in RolloutVerdict if verdict is not RolloutVerdict.SAME]


def test_the_engines_of_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(engines:.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "engines.yaml"
    path.write_text(text)
    assert [one.role for one in read_fleet(path).engines().values()] == ["prefill", "decode"]


def test_the_example_is_a_screenful(example: str) -> None:
    assert len(example.splitlines()) <= 48
    assert max(map(len, example.splitlines())) <= 100


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE.read_text()))))
def test_links_lead_somewhere(link: str) -> None:
    assert (PAGE.parent / link).is_file()
