"""The page in a browser: what it says of bytes is what naive indexing says, and keys reach what a mouse reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.cli.page.browser import ShownPage, chromium, shown

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import paged
from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.dsl.library import load
from kvplan.plan.block_tables import Slot
from kvplan.plan.types import Blocks

pytestmark = pytest.mark.xdist_group("browser")
ROOT = Path(__file__).parents[3]
SMALL = ("llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2,order=nhd")
LARGE = ("deepseek-v3", "--prefill", "engine=custom,tp=64,dcp=64", "--decode", "engine=custom,tp=64")
# Orders, tiles, states and taps, turns of the tokens, blocks of different sizes, layers inside a block.
PAIRS = [
    ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
    ("llama-3.1-8b", "tp=1,pp=2", "engine=custom,tp=4,copies=round_robin,order=shuffled"),
    ("llama-3.1-8b", "tp=4", "tp=4,order=BLHNC"),
    ("nemotron-3-nano-30b", "tp=4", "tp=1"),
    ("qwen3-next-80b", "tp=2", "tp=1,conv=SD"),
    ("deepseek-v3", "engine=custom,tp=3,dcp=3,interleave=24", "tp=2,block=32"),
    ("deepseek-v3", "tp=8", "tp=8,dcp=8"),
    ("deepseek-v4-flash", "tp=2,order=BLHNC,block=256", "tp=1,order=BLNHC,block=256"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def small(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shown(tmp_path_factory.mktemp("small"), *SMALL)


def elements(side: BoundSide, worker: int, plane: OraclePlane) -> list[tuple[int, dict[str, Any]]]:
    """Some elements of kernel block 0 of a plane by naive indexing: its last byte, and its coordinate."""
    table = Slot(0, 8) if plane.group.store == "state" else Blocks(0, np.arange(4, dtype=np.int64))
    tokens = paged(side, side.workers[worker], plane.group, table).token[0]
    draw = np.random.default_rng(7)
    found = []
    for field in plane.fields:
        for flat in draw.integers(0, field.offset.size, 40).tolist():
            at = np.unravel_index(flat, field.offset.shape)
            index = {axis: int(numbers[i]) for (axis, numbers), i in zip(field.axes, at, strict=True)}
            if "token" in index:
                index["token"] = int(tokens[index["token"] * field.tensor.tokens_per_row])
            offset = int(field.offset.reshape(-1)[flat]) + field.tensor.size - 1
            found.append((offset, {"cache": plane.cache, "tensor": field.tensor.name, **index}))
    return found


def first_planes(side: BoundSide, worker: int) -> list[OraclePlane]:
    """One plane of every cache and part."""
    alike = {(plane.cache, plane.part): plane for plane in reversed(planes(side, side.workers[worker]).values())}
    return list(alike.values())


# The coordinate of a byte of a named plane, and where a decode worker reads it from: [worker, plane, coordinate].
COORDINATE = """([side, worker, name, bytes]) => {
  const owner = data.plan.sides[side].workers[worker];
  const number = data.plan.sides[side].plane_lists[owner.planes].findIndex((plane) => plane.name === name);
  const place = planeOf(data.plan, side, worker, number);
  return bytes.map((byte) => coordinate(place, byte));
}"""
PARTNERS = """([worker, name, bytes]) => {
  const owner = data.plan.sides[DECODE].workers[worker];
  const number = data.plan.sides[DECODE].plane_lists[owner.planes].findIndex((plane) => plane.name === name);
  const place = planeOf(data.plan, DECODE, worker, number);
  return bytes.map((byte) => partners(data.plan, worker, place, byte, byte + 1).map((each) => {
    const other = planeOf(data.plan, PREFILL, each.worker, each.number);
    return [each.hi - each.lo, each.worker, other.plane.name, each.lo, coordinate(other, each.lo, each.block)];
  }));
}"""


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_bytes_are_what_naive_indexing_says(pair: tuple[str, str, str], browser: Any, tmp_path: Path) -> None:
    """The coordinate of a byte, on either side; and of a decode byte the one byte that it comes from has the same."""
    model, prefill, decode = pair
    page = ShownPage(browser, shown(tmp_path, model, "--prefill", prefill, "--decode", decode))
    made = compile_pair(load(), *pair, {})
    for number, side in enumerate((made.prefill, made.decode)):
        for worker in {0, len(side.workers) - 1}:
            for plane in first_planes(side, worker):
                known = elements(side, worker, plane)
                said = page.run(COORDINATE, [number, worker, plane.name, [byte for byte, _ in known]])
                assert said == [coordinate for _, coordinate in known], plane.name
    for worker in {0, len(made.decode.workers) - 1}:
        for plane in first_planes(made.decode, worker):
            known = elements(made.decode, worker, plane)
            sources = page.run(PARTNERS, [worker, plane.name, [byte for byte, _ in known]])
            for (byte, coordinate), source in zip(known, sources, strict=True):
                assert [(each[0], each[4]) for each in source] == [(1, coordinate)], (plane.name, byte)
    assert page.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pointing_at_a_piece_lights_up_where_it_comes_from(browser: Any, small: Path, scheme: str) -> None:
    page = ShownPage(browser, small, scheme)
    box = page.tab.locator(".side").nth(1).locator(".map .hit").bounding_box()
    page.tab.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.4)
    left, right = page.tab.locator(".stage").locator("xpath=..").locator(".readout > div").all_inner_texts()
    assert right.startswith("v · layer 0 · token 6 · head 2 · dim 0–127")
    assert left.startswith("v · layer 0 · head 2 · token 6 · dim 0–127\nworker 1 · attention.0 · bytes 3,328–3,583")
    assert [bool(d) for d in page.run("[...document.querySelectorAll('.lit')].map((n) => n.getAttribute('d'))")] == [
        False,
        True,
        True,
    ]
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.faults == []


def test_keys_reach_all_of_it(browser: Any, small: Path) -> None:
    page = ShownPage(browser, small)
    page.tab.keyboard.press("Tab")
    reached = []
    for _ in range(12):
        reached.append(
            page.run("document.activeElement.name || document.activeElement.getAttribute('aria-label') || ''")
        )
        page.tab.keyboard.press("Tab")
    assert reached[:3] == ["pair", "reader", "layer"]
    maps = [name for name in reached if "page of attention.0" in name]
    assert [name.split(",")[0] for name in maps] == ["prefill worker 0", "prefill worker 1", "decode worker 0"]
    assert any(name.startswith("who reads whom") for name in reached)
    page.tab.locator(".map").nth(2).focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.tab.keyboard.press(key)
    said = page.tab.locator(".readout").first
    assert said.inner_text().count("k · layer 0 · ") == 2
    assert "head 1 · token 1 · dim 0–127" in said.inner_text(), "where it comes from, in the order of its side"
    page.tab.keyboard.press("Enter")
    page.tab.mouse.move(5, 5)
    assert "head 1" in said.inner_text(), "it was kept"
    page.tab.keyboard.press("Escape")
    assert "head 1" not in said.inner_text()
    assert page.faults == []


def test_a_square_of_who_reads_whom_chooses_the_worker(browser: Any, small: Path) -> None:
    page = ShownPage(browser, small)
    page.tab.locator(".grid").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.tab.keyboard.press(key)
    assert "decode 1 ← prefill 2: 33,554,432 B, 65,536 descriptors" in page.tab.locator(".reading").inner_text()
    page.tab.keyboard.press("Enter")
    assert page.tab.locator("input[name=reader]").input_value() == "1"
    assert "Spans of decode worker 1" in page.tab.locator("main").inner_text()
    assert "worker 2 · attention.0" in page.tab.locator(".side").first.inner_text()


def test_who_is_only_told_is_drawn_apart(browser: Any, tmp_path: Path) -> None:
    """Two of 16 prefill workers hold each head, so half of the workers are read and the others only notified."""
    page = ShownPage(browser, shown(tmp_path, "llama-3.1-8b", "--prefill", "tp=16", "--decode", "tp=2"))
    count = "(name) => document.querySelector(`.grid .${name}:not([d=''])`).getAttribute('d').split('M').length - 1"
    squares = [page.run(count, name) for name in ("heat", "told")]
    assert squares == [8, 8]
    page.tab.locator(".grid").focus()
    page.tab.keyboard.press("ArrowDown")
    assert "decode 0 ← prefill 1: told only that it is done" in page.tab.locator(".reading").inner_text()


def test_sixty_four_workers_are_few_nodes(browser: Any, tmp_path: Path) -> None:
    """4,096 reads: the page stays small whatever is pointed at, and what is pointed at is drawn."""
    page = ShownPage(browser, shown(tmp_path, *LARGE))
    count = "document.querySelectorAll('*').length"
    before = page.run(count)
    assert before < 2000
    page.tab.locator(".map").last.focus()
    for _ in range(40):
        page.tab.keyboard.press("ArrowRight")
    assert page.run(count) < before + 100
    page.tab.locator("input[name=reader]").fill("63")
    page.tab.locator("input[name=reader]").press("Enter")
    assert page.run(count) < before + 100
    assert page.faults == []


def test_a_page_prints_without_what_asks_for_a_mouse(browser: Any, small: Path) -> None:
    page = ShownPage(browser, small, "dark")
    page.tab.emulate_media(media="print")
    assert not page.tab.locator(".bar").first.is_visible()
    assert page.tab.locator(".map").first.is_visible()
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_change_marks_what_moves(browser: Any, tmp_path: Path) -> None:
    plans = ROOT / "examples/plans/llama_3_1_8b"
    page = ShownPage(
        browser, shown(tmp_path, str(plans / "p_tp4__d_tp2_lbnhc.py"), "--before", str(plans / "p_tp4__d_tp2.py"))
    )
    captions = page.tab.locator("figcaption").all_inner_texts()
    assert [text.endswith("32,768 B differ") for text in captions] == [False, False, True] * 2
    assert [text.endswith("as in the other plan") for text in captions] == [True, True, False] * 2
    assert page.tab.locator(".moved").count() == 2
    assert page.faults == []


def test_a_change_says_what_it_is_and_shows_the_group_that_differs(browser: Any, tmp_path: Path) -> None:
    """Only the states of a hybrid's groups move; a plan with the same meaning shows its pages once."""
    pair, plans = ["nemotron-3-nano-30b", "--prefill", "tp=1", "--decode", "tp=1"], tmp_path / "plans"
    assert CliRunner().invoke(main, ["compile", *pair, "-o", str(plans)]).exit_code == 0
    (before,) = map(str, plans.rglob("p_*.py"))
    page = ShownPage(browser, shown(tmp_path, *pair[:-1], "tp=1,conv=SD", "--before", before))
    headings = page.tab.locator("h2, h3").all_inner_texts()
    assert headings[:3] == ["What changes", "CAUSE", "WHAT FOLLOWS"]
    assert page.tab.locator("select[name=pair]").first.input_value() == "mamba.0"
    assert page.tab.locator(".moved").count() > 0
    same = ShownPage(browser, shown(tmp_path, *pair, "--before", before))
    assert "Nothing: both plans mean the same." in same.tab.locator("main").inner_text()
    assert same.tab.locator("select[name=pair]").count() == 1
    assert page.faults == same.faults == []


def test_a_box_is_drawn_for_every_owner(browser: Any, tmp_path: Path) -> None:
    """Two heads of a page with 544 tokens are four boxes: keys and values of each."""
    words = ("qwen3-next-80b", "--prefill", "tp=2", "--decode", "tp=1,order=nhd")
    page = ShownPage(browser, shown(tmp_path, *words))
    fills = page.run(
        "[...document.querySelectorAll('.side:last-of-type .cells path.edged')].map((n) => n.getAttribute('style'))"
    )
    assert fills == ["fill: var(--hue0)", "fill: var(--hue1)"] * 2
    assert page.faults == []


def test_all_pairs_are_a_heat_map(browser: Any, tmp_path: Path) -> None:
    page = ShownPage(
        browser, shown(tmp_path, "llama-3.1-8b", "--prefill", "tp=1/2", "--decode", "tp=1,block=16/24/1000000")
    )
    assert page.tab.locator("td.heat").count() == 6
    page.tab.locator("td.heat").first.focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("ArrowRight")
    assert page.tab.locator("p.readout").inner_text().startswith("tp=2 → tp=1,block=24: ")
    page.tab.get_by_role("button", name="bytes").click()
    assert "128 MiB" in page.tab.locator("td.heat").first.inner_text()
    assert page.faults == []
