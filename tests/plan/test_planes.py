from kvplan.plan import planes as names
from kvplan.plan.types import Planes, Worker

HEADS = Planes("kv", "g", "v", 4, (("head", (6, 7), 1), ("layer", (3, 9), 2)), 8, 16, ())
PLAIN = Planes("all", "h", None, 0, (), 8, 8, ())
LAYERS = Planes("st", "h", None, 1, (("layer", (0, 1, 5), 1),), 8, 8, ())


def test_layer_comes_first_then_the_other_axes_then_the_part() -> None:
    found = names.planes(Worker((HEADS, PLAIN, LAYERS)))
    assert [plane.name for plane in found] == [
        "all@h", "st.0", "st.1", "st.5", "kv.3.6.v", "kv.3.7.v", "kv.9.6.v", "kv.9.7.v",
    ]  # fmt: skip
    assert found[5] == names.Plane("kv.3.7.v", "kv", "g", 3, (("head", 7),), "v", 8, 16)
    assert found[0].layer is None


def test_strides_and_entries_go_by_number() -> None:
    worker = Worker((HEADS, PLAIN, LAYERS))
    assert names.strides(worker).tolist() == [8] * 4 + [16] * 4
    assert names.entries(worker)[4:] == (HEADS,) * 4


def test_blocks_in_two_memories_are_two_extents() -> None:
    """Every plane once by its number, in its first memory; then those with a second one, in their order, in that."""
    loops = (("layer", (4, 9), 1),)
    entries = (
        Planes("a", first=0, loops=loops, page_bytes=8, memory="host+device"),
        Planes("b", first=2, page_bytes=8),
        Planes("c", first=3, page_bytes=8, memory="host"),
        Planes("d", first=4, page_bytes=8, memory="device+host"),
    )
    worker = Worker(entries)
    assert [(plane.name, plane.memory) for plane in names.extents(worker)] == [
        ("a.4", "host"), ("a.9", "host"), ("b", ""), ("c", "host"), ("d", "device"),
        ("a.4", "device"), ("a.9", "device"), ("d", "host"),
    ]  # fmt: skip
    assert names.further(worker) == {0: 5, 1: 6, 4: 7}
    assert [plane.memory for plane in names.planes(worker)] == ["host+device"] * 2 + ["", "host", "device+host"]
