"""Tables, auxiliary rows and buffers of SGLang's, without SGLang."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.dsl.library import load
from kvplan.integrations.sglang.aux import AuxRows
from kvplan.integrations.sglang.layout import Buffers, EngineBuffers, memory_of
from kvplan.integrations.sglang.tables import RequestTables
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.note import PrefillNote
from kvplan.plan.planes import Plane, planes
from kvplan.plan.types import Blocks, Side
from kvplan.runtime import Slot
from kvplan.runtime.errors import NoteError


def side(model: str, text: str) -> Side:
    return side_of(bind(load(), load().model(model), f"engine=sglang,{text}"))[0]


HYBRID = side("nemotron-h-8b", "tp=1,block=64")
WINDOWS = side("gemma-3-27b", "tp=1,block=16")


def ids(table: object) -> list[int]:
    assert isinstance(table, Blocks)
    return [int(number) for number in table.ids]


def test_a_chunk_has_the_pages_of_its_tokens() -> None:
    tables = RequestTables(HYBRID, ("mamba",)).chunk((64, 150), [7, 3])
    assert set(tables) == {"attention"}
    assert tables["attention"].first == 1  # type: ignore[union-attr]
    assert ids(tables["attention"]) == [7, 3]


def test_pages_behind_the_last_token_are_left_out() -> None:
    assert ids(RequestTables(HYBRID, ()).chunk((0, 65), [7, 3, 9])["attention"]) == [7, 3]


def test_layers_with_windows_share_the_pages_of_the_others() -> None:
    tables = RequestTables(WINDOWS, ()).chunk((0, 20), [5, 6])
    assert {name: ids(table) for name, table in tables.items()} == {"full": [5, 6], "sliding": [5, 6]}


def test_a_state_is_the_slot_that_its_component_names() -> None:
    tables = RequestTables(HYBRID, ("mamba",))
    assert tables.states([np.array([4])], 150) == {"mamba": Slot(4, 150)}
    assert tables.states(None, 150) == {}
    assert RequestTables(WINDOWS, ()).states([], 20) == {}


def rows(*shapes: tuple[int, int]) -> tuple[AuxRows, list[np.ndarray]]:
    arrays = [np.zeros(shape, np.uint8) for shape in shapes]
    places, sizes = (tuple(values) for values in zip(*((one.ctypes.data, one.shape[1]) for one in arrays), strict=True))
    return AuxRows(places, sizes, len(arrays) - 1), arrays


def test_auxiliary_rows_go_from_one_row_to_another() -> None:
    ours, arrays = rows((4, 8), (4, 64))
    theirs, filled = rows((9, 8), (9, 64))
    filled[0][7], filled[1][7] = 3, 5
    ours.write(2, theirs.read(7), 1)
    assert [int(array.sum()) for array in arrays] == [3 * 8, 5 * 64]
    assert arrays[0][2].all()
    assert arrays[1][2].all()


def test_auxiliary_rows_of_another_size_are_refused_whole() -> None:
    ours, arrays = rows((4, 8), (4, 64))
    for other in ((b"",), (bytes(64), bytes(8)), (bytes(8), bytes(64), b"")):
        with pytest.raises(NoteError, match="bytes came with the request, ours have 72"):
            ours.write(2, PrefillNote(5, rows=other), 1)
    assert not any(array.any() for array in arrays)


def registered(of: Side, pages: int = 5) -> EngineBuffers:
    """The buffers that SGLang lists for this side: all layers of K, then of V; convolutions, then recurrences."""
    every = planes(of.workers[0])
    states = {group.name for group in of.groups if group.store == "state"}

    def listed(chosen: Sequence[Plane], base: int) -> Buffers:
        parts = {plane.part: None for plane in chosen}
        order = [one for part in parts for one in chosen if one.part == part]
        order.sort(key=lambda one: (list(parts).index(one.part), one.layer))
        places = tuple(base + number * (1 << 32) for number in range(len(order)))
        layers = tuple(one.layer or 0 for one in order)
        return Buffers(places, tuple(pages * one.stride for one in order), tuple(one.stride for one in order), layers)

    paged = listed([one for one in every if one.group not in states], 1 << 40)
    return EngineBuffers(paged, {"mamba": listed([one for one in every if one.group in states], 1 << 50)})


@pytest.mark.parametrize("of", [HYBRID, WINDOWS], ids=["hybrid", "windows"])
def test_every_plane_lies_in_the_buffer_of_its_layer_and_part(of: Side) -> None:
    given = registered(of)
    found = memory_of(of, 0, given)
    every = planes(of.workers[0])
    assert set(found) == {plane.name for plane in every}
    keys = sorted((one for one in every if one.part == "0"), key=lambda one: one.layer or 0)
    assert [found[one.name].base for one in keys] == list(given.pages.addresses[: len(keys)])
    assert {memory.blocks for memory in found.values()} == {5}


def changed(given: Buffers, items: int) -> Buffers:
    return Buffers(given.addresses, given.sizes, (items, *given.items[1:]), given.layers)


@pytest.mark.parametrize(
    ("states", "items", "text"),
    [
        (False, 4096, r"attention\.7\.0: it has 4096 bytes a page, the layout 131072"),
        (True, 12, r"mamba\.0\.conv: it has 12 bytes a page, the layout \d+"),
    ],
)
def test_a_page_of_another_size_is_an_error_with_both_values(states: bool, items: int, text: str) -> None:
    given = registered(HYBRID)
    pages = given.pages if states else changed(given.pages, items)
    kept = {"mamba": changed(given.states["mamba"], items)} if states else given.states
    with pytest.raises(ConnectorError, match=text) as error:
        memory_of(HYBRID, 0, EngineBuffers(pages, kept))
    assert error.value.code == "I005"


def test_a_state_that_is_missing_and_other_layers_are_errors() -> None:
    given = registered(HYBRID)
    with pytest.raises(ConnectorError, match="it has 0 buffers, the layout 48"):
        memory_of(HYBRID, 0, EngineBuffers(given.pages, {}))
    wrong = Buffers(given.pages.addresses, given.pages.sizes, given.pages.items, tuple(range(8)))
    with pytest.raises(ConnectorError, match=re.escape("its buffers are of layers [0, 1, 2, 3, 4, 5, 6, 7], the")):
        memory_of(HYBRID, 0, EngineBuffers(wrong, given.states))


def test_convolutions_of_another_type_than_sglang_s_are_refused() -> None:
    """SGLang keeps them in bf16 unless SGLANG_MAMBA_CONV_DTYPE says otherwise."""
    sizes = {
        plane.part: plane.page for plane in planes(HYBRID.workers[0]) if plane.cache == "mamba" and plane.layer == 0
    }
    assert sizes["conv"] * 64 < sizes["ssm"]
    with pytest.raises(
        Exception, match="states are bf16, and this side keeps f32: give it convolution=bf16 if the engine"
    ):
        side("nemotron-h-8b", "tp=1,convolution=f32")


def test_states_of_another_type_than_sglang_s_are_refused_with_both_ways_out() -> None:
    """It happened: half a remedy, and a variable beside the flag that doctor prints."""
    flag = "--mamba-ssm-dtype or SGLANG_MAMBA_SSM_DTYPE"
    file = "else, where both sides keep that, ssm_dtype: f32 in the model's file"
    with pytest.raises(Exception, match=f"give it recurrent=bf16 if the engine has {flag}, {file}"):
        side("qwen3-next-80b", "tp=1")
