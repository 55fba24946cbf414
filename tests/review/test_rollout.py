"""In which order engines are rolled, compared with a count of every single engine after every step."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from tests.fleet.test_records import record
from tests.runtime.helpers.plans import Shape, plan

from kvplan.fleet.pairs import fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.types import Plan
from kvplan.review import rollout_words
from kvplan.review.pairing import FilePair, PlanFile
from kvplan.review.review import PairReview, Review
from kvplan.review.rollout import AFTER, NOW, FleetRollout, RolloutOrder, fleet_rollout
from kvplan.review.rules import RolloutVerdict

HAND_MADE = plan(Shape(1), Shape(1))
Three = tuple[str, str, str]  # digests of the model's layout, the prefill and the decode side


def planned(of: Three, digest: str = "") -> Plan:
    model_digest, prefill, decode = of
    sides = (
        replace(getattr(HAND_MADE, role), digest=name, key=name)
        for role, name in (("prefill", prefill), ("decode", decode))
    )
    both = dict(zip(("prefill", "decode"), sides, strict=True))
    return replace(HAND_MADE, model="m", model_digest=model_digest, digest=digest or "".join(of), **both)


def entry(one: Plan) -> IndexEntry:
    prefill, decode = ((side.digest, side.key) for side in (one.prefill, one.decode))
    return IndexEntry(f"{one.digest}.py", "s", one.digest, "m", one.model_digest, prefill, decode, (), ())


def rolled(
    engines: Iterable[EngineRecord],
    changes: Mapping[Three, Three | None],
    same: Sequence[Three] = (),
    verdict: RolloutVerdict = RolloutVerdict.TOGETHER,
    digests: tuple[str, str] = ("", ""),
) -> FleetRollout:
    """The rollout of a review in which some plans change or go, and others stay."""
    pairs = []
    for old, new in changes.items():
        files = [
            PlanFile("p", "", planned(three, name)) if three else None
            for three, name in zip((old, new), digests, strict=True)
        ]
        pairs.append(PairReview(FilePair(*files), (), verdict))
    review = Review(
        tuple(one for one in pairs if one.pair.after), (), tuple(one for one in pairs if not one.pair.after), len(same)
    )
    kept = [entry(planned(three)) for three in same]
    before, after = (
        [entry(file.plan) for one in pairs if (file := getattr(one.pair, when)) and file.plan]
        for when in ("before", "after")
    )
    return fleet_rollout({one.name: one for one in engines}, review, [*before, *kept], [*after, *kept])


def engine(name: str, side: str, model_digest: str = "m", **more: object) -> EngineRecord:
    return record(name, side=side, side_key=side, model_digest=model_digest, **more)


def some(prefill: int, decode: int) -> list[EngineRecord]:
    return [*(engine(f"p{n}", "P") for n in range(prefill)), *(engine(f"d{n}", "D") for n in range(decode))]


def best(found: FleetRollout) -> RolloutOrder:
    [model] = found.models
    return model.best


def steps(order: RolloutOrder) -> list[tuple[str, int, int]]:
    return [(step.what, step.pairs, step.alone) for step in order.steps]


def test_one_side_changes() -> None:
    """The other one finds both plans in the index, and is left as it is."""
    found = rolled(some(2, 4), {("m", "P", "D"): ("m", "P", "D2")})
    assert best(found).name == "decode"
    assert steps(best(found)) == [(NOW, 8, 0), ("decode rolled", 8, 0), (AFTER, 8, 0)]
    [pair] = found.models[0].pairs
    assert (pair.prefill_first.plan, pair.decode_first.plan, pair.verdict) == ("mPD", "mPD2", "together")
    assert rollout_words.sentences(found) == [
        "4 decode engines of m, D (D), become D2 (D2)  [plan 1]",
        "2 prefill engines of m, P (P), stay as they are  [plan 1]",
        "m: roll decode; prefill stays as it is.",
        "P → D, 8 engine pairs: old and new can talk meanwhile",
    ]


@pytest.mark.parametrize("new", [("m", "P2", "D2"), ("m2", "P", "D"), ("m2", "P2", "D2")])
def test_both_sides_change(new: Three) -> None:
    found = rolled(some(2, 4), {("m", "P", "D"): new})
    orders = {order.name: order for order in found.models[0].orders}
    assert steps(best(found))[1:] == [("half of both sides rolled", 4, 0), ("all rolled", 8, 0), (AFTER, 8, 0)]
    for first in ("prefill first", "decode first"):
        assert (orders[first].cut, orders[first].alone) == (8, 6)
    assert rollout_words.advice(found.models[0]) == "m: roll both sides together, half of each first."
    assert rollout_words.sentences(found)[-1] == (
        "P → D, 8 engine pairs: can talk now and afterwards, "
        "but not with prefill or decode rolled first: old and new have no plan for each other"
    )


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (1, 2), (4, 1)])
@pytest.mark.parametrize("new", [("m2", "P", "D"), ("m", "P2", "D2")])
def test_who_is_alone_on_its_side_cannot_be_rolled_by_halves(prefill: int, decode: int, new: Three) -> None:
    """Half of one engine is none: the second half would be all of that side."""
    found = rolled(some(prefill, decode), {("m", "P", "D"): new})
    assert {order.name for order in found.models[0].orders} == {"prefill first", "decode first"}
    assert best(found).alone == prefill + decode
    assert rollout_words.advice(found.models[0]) == (
        "m: no order keeps a pair talking: start engines of NEW beside the old ones, or stop both sides."
    )


def test_who_is_alone_on_its_side_is_rolled_by_halves_beside_one_that_stays() -> None:
    """If that one can talk to somebody."""
    changes: dict[Three, Three | None] = {("m", "P", "D"): ("m2", "P", "D")}
    beside = [engine("p7", "P", "m2"), engine("d7", "D", "m2")]
    assert best(rolled([*some(1, 1), *beside], changes)).name == "together"
    lonely = [engine("p7", "P", "m3"), engine("d7", "D", "m3")]
    assert best(rolled([*some(1, 1), *lonely], changes)).name == "prefill first"


def test_either_side_first() -> None:
    """Every mixture has a plan."""
    kept = [("m", "P", "D2"), ("m", "P2", "D")]
    found = rolled(some(2, 2), {("m", "P", "D"): ("m", "P2", "D2")}, kept)
    # A side that NEW has a plan for is not rolled: here both stay, and the reader decides.
    assert best(found).name == "nothing"
    decode, prefill, model, *_ = rollout_words.sentences(found)
    assert decode == "2 decode engines of m, D (D), stay as they are for other pairs, or become D2 (D2)  [plan 1]"
    assert prefill == "2 prefill engines of m, P (P), stay as they are for other pairs, or become P2 (P2)  [plan 1]"
    assert model.startswith("m: choose which engines change and which stay for other pairs. What follows is of these")
    orders = rolled(some(2, 2), {("m", "P", "D"): ("m2", "P", "D"), ("m", "X", "D"): ("m2", "P", "D")}).models[0].orders
    assert [order.name for order in orders] == ["together", "prefill first", "decode first"]


def test_only_reads_change() -> None:
    """No engine is rolled; of two plans for one pair an index takes the lower digest."""
    three = ("m", "P", "D")
    found = rolled(some(2, 2), {three: three}, verdict=RolloutVerdict.RELOAD, digests=("1", "2"))
    assert best(found).name == "nothing"
    assert rollout_words.sentences(found)[-1] == (
        "P → D, 4 engine pairs: old and new can talk meanwhile; the new plan is used once OLD is removed from the index"
    )
    found = rolled(some(2, 2), {three: three}, verdict=RolloutVerdict.RELOAD, digests=("2", "1"))
    assert rollout_words.sentences(found)[-1] == "P → D, 4 engine pairs: old and new can talk meanwhile"


def test_a_pair_that_is_gone_talks_as_long_as_the_plans_of_before_are_there() -> None:
    found = rolled([*some(1, 1), engine("d9", "E")], {("m", "P", "D"): None}, [("m", "P", "E")])
    assert steps(best(found)) == [(NOW, 2, 0), (AFTER, 1, 1)]
    only = "P → D, 1 engine pair: old and new can talk, only as long as OLD is in the index"
    assert only in rollout_words.sentences(found)
    assert rollout_words.engines(found.classes[0]) == "1 decode engine of m, D (D), in no plan of NEW"
    assert (
        rollout_words.advice(found.models[0])
        == "m: no engine has to be rolled. Once OLD is removed from the index 1 engine cannot talk to anyone."
    )


def test_an_engine_that_would_become_two_things_becomes_none() -> None:
    found = rolled(some(1, 1), {("m", "P", "D"): ("m", "P2", "D"), ("m", "P", "E"): ("m", "P3", "E")})
    assert [one.then is None for one in found.classes] == [False, True]
    assert "not known what they become" in rollout_words.engines(found.classes[1])


def test_engines_that_were_rolled_already_stay_and_those_that_drain_do_not_count() -> None:
    """Asked again half-way through."""
    fleet = [
        *some(2, 1),
        engine("p7", "P", "m2"),
        engine("d7", "D", "m2"),
        engine("d8", "D", state=EngineState.DRAINING),
    ]
    found = rolled(fleet, {("m", "P", "D"): ("m2", "P", "D")})
    assert (found.engines, found.draining) == (5, ("d8",))
    assert rollout_words.headline(found).endswith("; 1 engine that drains left out")
    assert {one.names: one.rolls for one in found.classes} == {
        ("d0",): True, ("d7",): False, ("p0", "p1"): True, ("p7",): False,
    }  # fmt: skip
    assert max(step.alone for step in best(found).steps) == 0


def test_engines_of_models_that_have_no_plans_here_are_left_out() -> None:
    found = rolled([*some(1, 1), engine("p8", "P", model="x")], {("m", "P", "D"): ("m", "P", "D2")})
    assert (found.engines, found.others, [one.model for one in found.models]) == (2, ("p8",), ["m"])
    assert rollout_words.headline(found).endswith("; 1 engine of other models left out")


def test_an_engine_that_is_both_is_rolled_once_and_is_no_pair_of_its_own() -> None:
    both = [engine(f"b{n}", "B", role=EngineRole.BOTH) for n in range(3)]
    found = rolled(both, {("m", "B", "B"): ("m2", "B", "B")})
    assert steps(best(found))[0] == (NOW, 6, 0)
    assert best(found).name == "both sides"
    [lonely] = rolled(both[:1], {("m", "B", "B"): ("m2", "B", "B")}).models
    assert (lonely.pairs, lonely.best.steps[0].alone) == ((), 1)


@pytest.mark.parametrize("old", [[("B", "B"), ("B", "D")], [("B", "B"), ("P", "B")]])
def test_engines_that_are_both_are_rolled_on_both_sides(old: Sequence[tuple[str, str]]) -> None:
    """Other engines on either side are rolled with them, so that no new engine meets an old one."""
    both = [engine(f"b{n}", "B", role=EngineRole.BOTH) for n in range(2)]
    changes: dict[Three, Three | None] = {("m", *sides): ("m2", *sides) for sides in old}
    found = rolled([*both, engine("p0", "P"), engine("d0", "D")], changes)
    assert (best(found).name, best(found).cut) == ("both sides", 0)
    assert rollout_words.advice(found.models[0]).startswith("m: roll the engines.")


def test_engines_that_are_both_are_rolled_with_either_side() -> None:
    """So their own pairs are not cut by that, but those with the side that waits are."""
    fleet = [*(engine(f"b{n}", "B", role=EngineRole.BOTH) for n in range(2)), *some(3, 5)]
    sides = [("B", "B"), ("B", "D"), ("P", "B")]
    [model] = rolled(fleet, {("m", *pair): ("m2", *pair) for pair in sides}).models
    cut = {order.name: order.cut for order in model.orders}
    assert cut == {"together": 0, "prefill first": 2 * 5, "decode first": 3 * 2}


def talking(engines: Sequence[EngineRecord], index: Sequence[IndexEntry]) -> set[tuple[str, str]]:
    """Names of engines that can talk, pair by pair."""
    pairs = fleet_pairs({one.name: one for one in engines}, index)
    return {(pair.prefill.name, pair.decode.name) for pair in pairs if pair.plan}


def counted(engines: Sequence[EngineRecord], index: Sequence[IndexEntry]) -> tuple[int, int]:
    """Pairs of engines that can talk, and engines without anybody: engine by engine."""
    pairs = talking(engines, index)
    return len(pairs), len({one.name for one in engines} - {name for pair in pairs for name in pair})


def halves_serve(found: FleetRollout, engines: Mapping[str, EngineRecord], index: Sequence[IndexEntry]) -> bool:
    """Whether both sides are rolled by halves: each side has engines of its own, and those who run always can talk."""
    rolls = [one for one in found.classes if one.rolls]
    if {EngineRole.PREFILL, EngineRole.DECODE} - {one.now.role for one in rolls}:
        return False
    first = {name: one.then for one in rolls if one.then for name in one.names[: len(one.names) // 2]}
    second = {name for one in rolls for name in one.names} - set(first)
    begun = [one for name, one in engines.items() if name not in first]
    ended = [changed(first.get(name, one), name=name) for name, one in engines.items() if name not in second]
    return bool(talking(begun, index) and talking(ended, index))


@pytest.mark.parametrize("seed", range(60))
def test_steps_are_what_is_counted_engine_by_engine(seed: int) -> None:
    chance = random.Random(seed)
    digests = ["m", "m2"]
    old = {(chance.choice(digests), f"P{chance.randrange(3)}", f"D{chance.randrange(3)}") for _ in range(3)}
    changes = {
        three: (chance.choice(digests), f"P{chance.randrange(4)}", f"D{chance.randrange(4)}") for three in sorted(old)
    }
    roles = {"p": EngineRole.PREFILL, "d": EngineRole.DECODE, "b": EngineRole.BOTH}
    engines = []
    for number in range(chance.randrange(1, 12)):
        role = chance.choice("ppdddb")
        side = f"{chance.choice('PD') if role == 'b' else role.upper()}{chance.randrange(3)}"
        engines.append(engine(f"{role}{number}", side, chance.choice(digests), role=roles[role]))
    found = rolled(engines, changes)
    before, after = [[entry(planned(three)) for three in some] for some in (changes, changes.values())]
    by_name = {one.name: one for one in engines}
    for model in found.models:
        assert ("together" in {order.name for order in model.orders}) == halves_serve(found, by_name, [*before, *after])
        for order in model.orders:
            states = expected(found, order, by_name)
            indices = [*([[*before, *after]] * (len(states) - 1)), after]
            assert [(step.pairs, step.alone) for step in order.steps] == [
                counted(state, index) for state, index in zip(states, indices, strict=True)
            ], (seed, order.name)
            if order.name not in ("nothing", "together"):
                assert order.cut == len(talking(states[0], [*before, *after]) - talking(states[1], [*before, *after]))
    assert model.best.alone == min(order.alone for order in model.orders)


def expected(found: FleetRollout, order: RolloutOrder, engines: Mapping[str, EngineRecord]) -> list[list[EngineRecord]]:
    """The engines after each step of an order, one by one."""
    states = [list(engines.values())]
    for what in [step.what for step in order.steps[1:-1]]:
        now = {one.name: one for one in states[-1]}
        for one in found.classes:
            names = one.names if not what.startswith("half") else one.names[: len(one.names) // 2]
            played = {"prefill rolled": one.now.prefills, "decode rolled": one.now.decodes}.get(what, True)
            if one.rolls and one.then and played:
                news = one.then
                now |= {name: changed(news, name=name) for name in names}
        states.append(list(now.values()))
    return [*states, states[-1]]
