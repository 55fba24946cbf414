"""A store beside an engine whose workers are processes is one more worker: it reads, and is read from."""

from __future__ import annotations

import numpy as np
from tests.end_to_end.memory import Memory, stamp, wrong
from tests.end_to_end.worlds import SECONDS, world
from tests.store.engines import REVISION, ROOM, compiled, keys_of, stored

from kvplan.compiler.check.labels import atlas
from kvplan.compiler.check.sample import sample_request
from kvplan.plan.block_tables import Tables, blocks
from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.store.layout import stored_layout, wanted
from kvplan.store.store import Store, StoredBlock, held

MODEL, LENGTH, END = "toy-mamba2", 5, 80


def in_memory(plan: Plan, role: str, memory: Memory, tables: Tables, keys: tuple[bytes, ...]) -> list[StoredBlock]:
    """The blocks of a request where a worker of the stored side has them."""
    layout, found = stored_layout(plan, role, REVISION), list[StoredBlock]()
    planes = [memory.planes[plane.name] for plane in layout.planes]
    for group, of_group in wanted(plan.group_pairs, role, layout, (0, END)).items():
        ids = blocks(tables[group]).ids
        for position, ranges in of_group.items():
            block = ids[0] if layout.is_state(group) else ids[position]
            pages = {number: planes[number][block] for part in layout.parts[group] for number in part.planes}
            found.append(StoredBlock(group, keys[position], (position + 1) * layout.tokens, ranges, held(pages)))
    return found


def test_a_store_reads_and_is_read_from() -> None:
    keys, store = keys_of(LENGTH), Store()
    saves, loads = compiled(MODEL, "tp=4", stored()), compiled(MODEL, stored(), "tp=2,order=nhd")
    first = sample_request(saves.prefill, saves.decode, (0, END), 3)
    with world(saves.plan, (saves.prefill, saves.decode), [first]) as here:
        for worker, memory in here.prefill:
            stamp(memory, atlas(memory.side, ROOM), first.prefill)
            worker.hold("saved", first.prefill)
        reader, memory = here.decode[0]
        asked = Request("saved", first.tokens, first.prefill, first.decode)
        assert reader.submit(asked, SECONDS).wait().state == "done"
        saved = in_memory(saves.plan, "decode", memory, first.decode, keys)
        store.write(stored_layout(saves.plan, "decode", REVISION), saved)
    second = sample_request(loads.prefill, loads.decode, (0, END), 4)
    with world(loads.plan, (loads.prefill, loads.decode), [second]) as here:
        holder, memory = here.prefill[0]
        asked_for = in_memory(loads.plan, "prefill", memory, second.prefill, keys)
        store.read(stored_layout(loads.plan, "prefill", REVISION), asked_for)
        holder.hold("loaded", second.prefill)
        for reader, memory in here.decode:
            asked = Request("loaded", second.tokens, second.prefill, second.decode)
            assert reader.submit(asked, SECONDS).wait().state == "done"
            assert not wrong(memory, atlas(memory.side, ROOM), second, loads.plan.skipped)


def test_pages_that_are_read_are_the_engine_s_own() -> None:
    """A read writes into the given memory, not into a copy."""
    keys, store = keys_of(1), Store()
    made = compiled("toy-heads", "tp=1", stored())
    layout = stored_layout(made.plan, "decode", REVISION)
    pages = {n: np.full(plane.page, 7, np.uint8) for n, plane in enumerate(layout.planes)}
    store.write(layout, [StoredBlock("attention", keys[0], 16, ((0, 16),), held(pages))])
    back = {number: np.zeros_like(page) for number, page in pages.items()}
    store.read(layout, [StoredBlock("attention", keys[0], 16, ((0, 16),), held(back))])
    assert all((page == 7).all() for page in back.values())
