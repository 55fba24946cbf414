"""Records that engines announce, and the pairs of engines that have a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kvplan.fleet.errors import FleetError
from kvplan.fleet.pairs import fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState, StaticFleet, decoded, encoded
from kvplan.plan.files.index import IndexEntry


def record(name: str, **more: Any) -> EngineRecord:
    """A decode engine if its name begins with d, else a prefill engine."""
    role = EngineRole.DECODE if name.startswith("d") else EngineRole.PREFILL
    given = {
        "run": f"{name}.1",
        "role": role,
        "model": "m",
        "model_digest": "0" * 32,
        "side": role,
        "side_key": "tp=1",
        "started": 0.0,
    }
    return EngineRecord(name=name, **{**given, "addresses": ("tcp://127.0.0.1:7600",), "started": 0.0, **more})


def entry(prefill: str = "prefill", decode: str = "decode", model: str = "0" * 32) -> IndexEntry:
    return IndexEntry("p.py", "s", "plan1", "m", model, (prefill, "tp=1"), (decode, "tp=1"), (), ())


def test_a_record_is_read_as_it_was_written() -> None:
    one = record("p0", free_blocks=3, state=EngineState.DRAINING, key="k", protocol=7)
    assert decoded(encoded(one), "it") == one


@pytest.mark.parametrize(
    "change", [{"free_blocks": -1}, {"run": 7}, {"name": "n" * 257}, {"side": ""}, {"key": "\ud800"}, {"key": object()}]
)
def test_what_others_would_not_read_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(FleetError, match=r"^what '(p0|n+)' says of itself"):
        encoded(record(**{"name": "p0", **change}))


def test_fields_of_later_versions_are_left_out() -> None:
    data = msgspec.json.encode({**msgspec.to_builtins(record("p0")), "rack": 7})
    assert decoded(data, "it") == record("p0")


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "n" * 257},
        {"name": None},
        {"role": "both ends"},
        {"addresses": ["tcp://x", 3]},
        {"free_blocks": -1},
        {"free_blocks": True},
        {"state": "gone"},
        {"format": 0},
        {"format": 2},
    ],
)
def test_what_is_no_record(change: dict[str, object]) -> None:
    data = msgspec.json.encode({**msgspec.to_builtins(record("p0")), **change})
    with pytest.raises(FleetError, match=r"^it (is no engine's record|has format 2)"):
        decoded(data, "it")


def test_records_that_are_too_long() -> None:
    with pytest.raises(FleetError, match="it is no engine's record"):
        decoded(b" " * (1 << 20), "it")


def test_a_static_fleet() -> None:
    assert StaticFleet([record("p0"), record("d0")]).engines() == {"p0": record("p0"), "d0": record("d0")}
    with pytest.raises(FleetError, match="two engines are named p0"):
        StaticFleet([record("p0"), record("p0")])


def test_pairs_are_answered_by_the_index() -> None:
    """Two releases side by side: each pair within one has a plan."""
    engines = {
        each.name: each
        for each in (
            record("p0"),
            record("p1", model_digest="1" * 32),
            record("d0"),
            record("d1", model_digest="1" * 32),
            record("d2", model="other"),
            record("d3", side="new", side_key="tp=2"),
            record("d4", protocol=1),
            record("p2", model="m2", revision="a1"),
            record("d5", model="m2", revision="b2"),
            record("d6", model="m2"),
        )
    }
    found = fleet_pairs(engines, [entry(), entry(model="1" * 32)])
    told = {(pair.prefill.name, pair.decode.name): pair.plan or pair.reason.partition(",")[0] for pair in found}
    assert told == {
        ("p0", "d0"): "plan1",
        ("p0", "d1"): "different layouts of the model",
        ("p0", "d3"): "no plan from tp=1 to tp=2",
        ("p0", "d4"): "different protocols",
        ("p1", "d0"): "different layouts of the model",
        ("p1", "d1"): "plan1",
        ("p1", "d3"): "different layouts of the model",
        ("p1", "d4"): "different layouts of the model",
        ("p2", "d5"): "different revisions of the weights",
        # It does not say which it has.
        ("p2", "d6"): "plan1",
    }


def test_a_plan_is_what_a_catalog_finds() -> None:
    """Without options, the index finds the usual plan, and the lowest digest among several."""
    engines = {name: record(name) for name in ("p0", "d0")}
    unusual = replace(entry(), plan="plan0", options=(("elect", "spread"),), unusual=("elect",))
    [pair] = fleet_pairs(engines, [unusual])
    said = 'a plan only with plan_options {"elect": "spread"} on both sides'
    assert (pair.plan, pair.reason) == ("", said)
    several = [replace(entry(), plan=plan) for plan in ("plan3", "plan2", "plan4")]
    [pair] = fleet_pairs(engines, [*several, unusual])
    assert pair.plan == "plan2"


def test_a_plan_for_sides_that_are_called_alike_is_said_to_be_another() -> None:
    engines = {"p0": record("p0"), "d0": record("d0", side="changed")}
    [pair] = fleet_pairs(engines, [entry()])
    told = "no plan from tp=1 to tp=1: the one of these names is for other sides, by digest; compile again"
    assert (pair.plan, pair.reason) == ("", told)


def test_an_engine_is_no_pair_of_its_own() -> None:
    both = {name: record(name, role=EngineRole.BOTH, side="prefill") for name in ("a", "b")}
    found = fleet_pairs(both, [entry(decode="prefill")])
    assert [(pair.prefill.name, pair.decode.name, pair.reason) for pair in found] == [("a", "b", ""), ("b", "a", "")]
