"""Hazards of both transports, and the page that states kvplan's answer to every known hazard."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.paths import ROOT
from tests.runtime.helpers.agents import LENGTH, UNIT, Two, has_nixl, index, pattern, progressed, region, units
from tests.runtime.helpers.plans import Model, Shape, plan

import kvplan.fleet.errors
import kvplan.store.errors
from kvplan.plan.request import Request, check
from kvplan.runtime import Blocks, errors

KINDS = ["memory", pytest.param("nixl", marks=pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed"))]
NO_SPAN = (errors.AddressError, errors.TransportError)


@pytest.fixture(params=KINDS)
def two(request: pytest.FixtureRequest) -> Iterator[Two]:
    made = Two(request.param)
    yield made
    made.close()


def unharmed(two: Two) -> None:
    """Nothing moved, and the next read gives the right bytes."""
    assert not two.mine.any()
    assert two.works()
    two.mine[:] = 0


WRAPS = [
    (0, 64, 0, 64, 1),
    (8, 0, 0, 64, 1),
    (8, -4, 0, 64, 1),
    (8, (1 << 63) - 4, 0, 64, 1),
    (-10, 100, 0, 64, 2),
    ((1 << 63) - 10, 100, 0, 64, 2),
    (8, 64, 0, 0, 2),
    (8, 64, 0, -64, 2),
    (8, 64, -1, 64, 1),
    (8, 64, 0, 64, 0),
    *((8, 64, 0, 1 << power, 100) for power in (57, 60, 61, 62)),
]


def test_rows_that_wrap_or_are_empty_never_reach_the_transport(two: Two) -> None:
    for row, peer in product(WRAPS, (None, two.peer)):
        with pytest.raises(errors.AddressError):
            two.reader.prepare(peer, np.array([row]), "DRAM")
        unharmed(two)


def test_spans_that_wrap_or_are_empty_never_reach_the_transport(two: Two) -> None:
    good = region(two.mine[:64])
    for span in ((0, 64, 0), (8, 0, 0), (8, -4, 0), (-10, 100, 0), ((1 << 63) - 10, 100, 0)):
        bad = np.array([span])
        for local, remote in ((good, bad), (bad, good)):
            with pytest.raises(errors.AddressError):
                two.reader.post_spans("READ", two.peer, local, "DRAM", remote, "DRAM")
        unharmed(two)


def test_unsigned_rows_that_wrap_are_refused(two: Two) -> None:
    for row in ((2**64 - 10, 100, 0, 64, 2), (8, 2**64 - 4, 0, 64, 1), (2**63, 64, 0, 64, 100)):
        rows, spans = np.array([row], np.uint64), np.array([row[:3]], np.uint64)
        with pytest.raises(errors.AddressError):
            two.reader.prepare(None, rows, "DRAM")
        with pytest.raises(errors.AddressError):
            two.reader.post_spans("READ", two.peer, spans, "DRAM", spans, "DRAM")
        unharmed(two)


def test_rows_are_never_cut_to_whole_numbers(two: Two) -> None:
    with pytest.raises(errors.AddressError):
        two.reader.prepare(None, units(two.mine) + 0.7, "DRAM")


def test_memory_that_cannot_be_is_not_registered(two: Two) -> None:
    other = two.agent("nixl" if hasattr(two.reader, "agent") else "memory", "other")
    for span in ((0, 64, 0), (4096, 0, 0), (-10, 100, 0), ((1 << 63) - 10, 100, 0)):
        with pytest.raises(errors.KvplanError):
            other.register(np.array([span]), "DRAM")
        unharmed(two)
    other.close()


def test_memory_outside_every_registration(two: Two) -> None:
    other = np.zeros(LENGTH, np.uint8)
    past = units(two.theirs)
    past[0, 4] += 1
    for rows in (units(other), past):
        for peer in (None, two.peer):
            with pytest.raises(NO_SPAN):
                two.reader.prepare(peer, rows, "DRAM")
    with pytest.raises(NO_SPAN):
        two.reader.post_spans("READ", two.peer, region(two.mine), "DRAM", region(other), "DRAM")
    unharmed(two)


def test_an_agent_that_nobody_met(two: Two) -> None:
    local, _ = two.lists()
    with pytest.raises(errors.TransportError):
        two.reader.prepare("nobody", units(two.theirs), "DRAM")
    with pytest.raises(errors.TransportError):
        two.reader.post("READ", "nobody", local, index(0), local, index(0))
    with pytest.raises(errors.TransportError):
        two.reader.post_spans("READ", "nobody", region(two.mine), "DRAM", region(two.theirs), "DRAM")
    unharmed(two)


NO_INDEX = {
    "counts differ": (index(0, 1), index(0)),
    "out of range": (index(0), index(LENGTH // UNIT)),
    "far out of range": (index((1 << 31) - 1), index(0)),
    "negative": (index(0), index(-1)),
    "empty": (index(), index()),
    "int64": (np.array([0]), np.array([0])),
    "int64 that an int32 cuts to 0": (np.array([1 << 32]), np.array([1 << 32])),
    "float": (np.array([1.7]), np.array([1.7])),
    "uint32": (np.array([0], np.uint32), np.array([0], np.uint32)),
}


def test_indices_that_do_not_fit_begin_nothing(two: Two) -> None:
    local, remote = two.lists()
    for mine, theirs in NO_INDEX.values():
        with pytest.raises(errors.NotBegunError):
            two.reader.post("READ", two.peer, local, mine, remote, theirs)
        unharmed(two)


def test_lengths_that_differ_begin_nothing(two: Two) -> None:
    local, longer = two.lists()[0], two.reader.prepare(two.peer, units(two.theirs, 2 * UNIT), "DRAM")
    with pytest.raises(errors.NotBegunError):
        two.reader.post("READ", two.peer, local, index(0), longer, index(0))
    for theirs in (region(two.theirs[:128]), np.concatenate([region(two.theirs[:64])] * 2)):
        with pytest.raises(errors.NotBegunError):
            two.reader.post_spans("READ", two.peer, region(two.mine[:64]), "DRAM", theirs, "DRAM")
    unharmed(two)


def test_sides_that_are_swapped_are_refused(two: Two) -> None:
    local, remote = two.lists()
    for mine, theirs in ((remote, local), (local, local), (remote, remote)):
        with pytest.raises(errors.HandleError):
            two.reader.post("READ", two.peer, mine, index(0), theirs, index(0))
    unharmed(two)


def test_lists_of_another_agent_are_refused(two: Two) -> None:
    local, remote = two.lists()
    back = two.owner.add_peer(two.reader.metadata())
    for peer in (two.peer, back):
        with pytest.raises(errors.TransportError):
            two.owner.post("READ", peer, local, index(0), remote, index(0))
    unharmed(two)


def test_lists_are_refused_after_their_release_and_may_go_while_they_are_read_by(two: Two) -> None:
    local, remote = two.lists()
    handle = two.reader.post("READ", two.peer, local, index(9), remote, index(9))
    for one in (local, remote, local):
        one.release()
    two.finish(handle)
    handle.release()
    assert np.array_equal(two.mine[9 * UNIT : 10 * UNIT], two.theirs[9 * UNIT : 10 * UNIT])
    again = two.lists()
    for one, other in ((local, again[1]), (again[0], remote)):
        with pytest.raises(errors.HandleError):
            two.reader.post("READ", two.peer, one, index(0), other, index(0))


def test_a_handle_is_released_once_and_not_used_again(two: Two) -> None:
    handle = two.post(1)
    two.finish(handle)
    handle.release()
    handle.release()
    with pytest.raises(errors.HandleError):
        handle.poll()
    assert two.works()


def test_a_restarted_agent_has_another_name_and_old_lists_are_not_its(two: Two) -> None:
    kind = "nixl" if hasattr(two.reader, "agent") else "memory"
    old = two.lists()
    two.owner.close()
    two.owner = two.agent(kind, "owner")
    two.owner.register(region(two.theirs), "DRAM")
    peer = two.reader.add_peer(two.owner.metadata())
    assert peer != two.peer
    with pytest.raises(errors.HandleError):
        two.reader.post("READ", peer, old[0], index(0), old[1], index(0))
    two.reader.remove_peer(two.peer)
    two.peer = peer
    unharmed(two)


def test_both_directions_are_the_same_bytes(two: Two) -> None:
    wanted = two.theirs.copy()
    assert two.works()
    two.mine[:] = pattern(LENGTH)[::-1]
    wanted[4 * UNIT : 5 * UNIT] = two.mine[4 * UNIT : 5 * UNIT]
    handle = two.post(4, op="WRITE")
    two.finish(handle)
    handle.release()
    assert np.array_equal(two.theirs, wanted)


def test_the_same_metadata_twice_is_one_peer(two: Two) -> None:
    assert two.reader.add_peer(two.owner.metadata()) == two.peer
    unharmed(two)


def test_metadata_that_is_none(two: Two) -> None:
    for metadata in (b"", b"\0", b"x" * 1000, bytes(range(256))):
        with pytest.raises(errors.TransportError):
            two.reader.add_peer(metadata)
        unharmed(two)


def test_giving_memory_back_cuts_what_is_under_way(two: Two) -> None:
    """Nothing of it lands later, wherever it had come to, and neither side's old lists are any good."""
    two.hub.frozen.add(two.owner.name)
    handle = two.post(*range(LENGTH // UNIT))
    done = handle.poll()
    two.reader.deregister()
    before = two.mine.copy()
    two.hub.frozen.clear()
    for _ in range(50):
        two.reader.progress()
        two.owner.progress()
    assert np.array_equal(two.mine, before)
    if not done:
        with pytest.raises(errors.PeerLostError):
            handle.poll()
    two.mine[:] = 0
    two.reader.register(region(two.mine), "DRAM")
    two.peer = two.reader.add_peer(two.owner.metadata())
    unharmed(two)


def test_an_owner_that_gave_its_memory_back_is_lost(two: Two) -> None:
    """NIXL over shared memory would go on to read it."""
    local, remote = two.lists()
    assert two.works()
    two.mine[:] = 0
    two.owner.deregister()

    def refused() -> bool:
        try:
            handle = two.reader.post("READ", two.peer, local, index(0), remote, index(0))
            progressed(handle.poll, two.reader, two.owner)
        except errors.PeerLostError:
            return True
        return False

    progressed(refused, two.reader, two.owner)


def ask(ids: list[int]) -> Request:
    sides = {"kv": Blocks(0, np.array([1, 2, 3]))}, {"kv": Blocks(0, np.array(ids))}
    return Request("r", (0, 12), *sides)


def test_a_destination_is_written_once() -> None:
    """NIXL takes the same destination twice, and the later bytes win."""
    made = plan(Shape(1), Shape(1), Model(state=False))
    with pytest.raises(errors.BadRequestError, match="block 5 is named twice"):
        check(made, ask([5, 6, 5]), {"kv": 40}, {"kv": 40})
    assert check(made, ask([5, 6, 7]), {"kv": 40}, {"kv": 40}).id == "r"


PAGE = ROOT / "docs" / "hazards.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """The rows of every table of the page that names tests, cell by cell, without the heads."""
    tables = re.findall(r"^\|.*\| test \|\n(?:\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not set("".join(row)) <= set("-") and row[0] != "hazard"]


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_hazard_has_a_behaviour_and_a_test() -> None:
    assert len(rows()) >= 55
    for row in rows():
        assert len(row) == 3, row
        assert all(row), row
        assert NAMED.search(row[2]) or row[2].startswith("none: "), row


@pytest.mark.parametrize("page", [PAGE, PAGE.with_name("design.md")], ids=lambda page: page.stem)
def test_every_test_that_the_page_names_exists(page: Path) -> None:
    found = NAMED.findall(page.read_text())
    assert found
    missing = [f"{file}::{name}" for file, name in found if name not in functions(ROOT / "tests" / file)]
    assert not missing


def test_every_error_that_the_page_names_has_that_code() -> None:
    named = re.findall(r"`(\w+Error)` \((R\d{3})\)", PAGE.read_text())
    assert len(named) > 20
    known = vars(errors) | vars(kvplan.store.errors) | vars(kvplan.fleet.errors)
    assert [(name, known[name].code) for name, _ in named] == named


def test_every_numbered_entry_is_there_once() -> None:
    numbers = [match[1] for row in rows() if (match := re.match(r"(\d+)\. ", row[0]))]
    assert numbers == [str(number) for number in range(1, 25)]


@pytest.mark.parametrize("wrong", ["runtime/transport/test_hazards.py::test_absent", "runtime/absent.py::test_x"])
def test_the_search_for_tests_can_fail(wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "hazards.md"
    page.write_text(f"| a | b | `{wrong}` |\n")
    with pytest.raises((AssertionError, OSError)):
        test_every_test_that_the_page_names_exists(page)


def test_the_lists_that_nixl_leaves_unchecked_are_not_used() -> None:
    """Lists made empty and filled by number are read out of bounds; arrays are checked before they are handed over."""
    for path in sorted(path for room in ("runtime", "store") for path in (ROOT / room).rglob("*.py")):
        assert not re.search(r"nixl\w*DList\(|get_reg_descs|get_xfer_descs\(\[", path.read_text()), path.name
