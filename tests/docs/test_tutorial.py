"""docs/add-a-model.md, followed literally: its files, its changes, its commands and what they print."""

from __future__ import annotations

import os
import re

import pytest
from tests.docs.tutorial import Block, Step, agrees, blocks, followed, path_of, renewed
from tests.paths import ROOT

from kvplan.dsl.library import load

PAGE = ROOT / "docs" / "add-a-model.md"
TEXT = PAGE.read_text()
BLOCKS = blocks(TEXT)
COMMANDS = [block for block in BLOCKS if block.language == "console"]
FILES = [block.text for block in BLOCKS if block.language == "yaml"]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[Block, Step]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("tutorial"))
        return {step.block: step for step in followed(TEXT)}


@pytest.mark.parametrize("block", [pytest.param(block, id=block.command) for block in COMMANDS])
def test_a_command_prints_what_the_page_shows(block: Block, steps: dict[Block, Step]) -> None:
    step = steps[block]
    assert step.code == block.code, "\n".join(step.printed)
    if os.environ.get("KVPLAN_REGOLD") and not agrees(block.shown, step.printed):
        rewrite(block, renewed(block.shown, step.printed))
        pytest.fail("rewrote docs/add-a-model.md")
    assert agrees(block.shown, step.printed), "\n".join(step.printed)


def rewrite(block: Block, lines: list[str]) -> None:
    """Put other lines below a block's command, in the page as it is now."""
    fresh = "".join(f"{line}\n" for line in (f"$ {block.command}", *lines))
    fence = TEXT[TEXT.rindex("```", 0, block.start) : block.start]
    PAGE.write_text(PAGE.read_text().replace(fence + block.text, fence + fresh, 1))


def test_every_command_of_the_way_is_on_the_page() -> None:
    verbs = {block.command.split()[1] for block in COMMANDS}
    assert verbs >= {"check", "explain", "simulate", "compile", "diff", "matrix"}


def test_the_files_are_short_and_named_in_the_text() -> None:
    assert sum(len(text.splitlines()) for text in FILES) < 60
    assert [path for text in FILES if f"`{(path := path_of(text))}`" not in TEXT] == []


def test_what_the_page_adds_is_not_shipped() -> None:
    names = {path_of(text).stem for text in FILES}
    library = load()
    assert not names & {*library.kinds, *library.models, *library.engines}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_links_lead_somewhere(link: str) -> None:
    name, _, anchor = link.partition("#")
    page = PAGE.parent / name if name else PAGE
    assert page.is_file()
    assert not anchor or anchor in anchors(page.read_text())


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a", "c"], False),
        (["a"], ["a", "b"], False),
        (["a", "[…]", "d"], ["a", "b", "c", "d"], True),
        (["a", "[…]", "d"], ["a", "d"], False),
        (["a", "  […]"], ["a", "b", ""], True),
        (["[…]", "b"], ["a", "b", "c"], False),
        (["a […]"], ["a b"], False),
        ([], [], True),
        ([], ["a"], False),
    ],
)
def test_gaps_stand_for_lines_and_nothing_else(shown: list[str], printed: list[str], same: bool) -> None:
    assert agrees(shown, printed) is same


@pytest.mark.parametrize(
    ("shown", "printed", "fresh"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a", "b"], ["a", "c"], ["a", "c"]),
        (["a", "[…]", "d"], ["a", "x", "y", "d"], ["a", "[…]", "d"]),
        (["a", "b", "[…]", "d"], ["a", "B", "x", "y", "d"], ["a", "B", "[…]", "d"]),
        (["a", "[…]", "d", "e"], ["a", "x", "y", "D", "e"], ["a", "[…]", "D", "e"]),
        (["a", "[…]", "d"], ["a", "d"], ["a", "d"]),
    ],
)
def test_a_page_written_again_is_cut_where_it_was(shown: list[str], printed: list[str], fresh: list[str]) -> None:
    assert renewed(shown, printed) == fresh
    assert agrees(fresh, printed)
