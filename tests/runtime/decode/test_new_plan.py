"""Another plan for a pair that has met, compiled while both run: taken by the next meeting, and no byte goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.decode.test_worker import freed, submitted
from tests.runtime.helpers.plan_texts import module_text
from tests.runtime.helpers.plans import Shape, with_ranges
from tests.runtime.helpers.requests import ask, check, clear, filled, looked_at, move
from tests.runtime.helpers.steered import Clock
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.plan import digest
from kvplan.plan.files import index
from kvplan.plan.files.loader import load_plan
from kvplan.runtime import Catalog, DecodeWorker, PrefillWorker
from kvplan.runtime.inspection import PrefillEngineState
from kvplan.runtime.plans.catalog import FixedPlans
from kvplan.runtime.protocol.phases import Phase


def replan(made: World) -> str:
    """Give both sides another plan for the pair, of the same meaning; its digest."""
    plan = digest.sealed(replace(made.plan, options=(("elect", "spread"), ("strategy", "direct"))))
    assert plan.digest != made.plan.digest
    workers: list[PrefillWorker | DecodeWorker] = [*made.prefill, *made.decode]
    for worker in workers:
        worker.plans = FixedPlans((plan,))
    return plan.digest


@pytest.mark.parametrize("replanned", [False, True])
def test_blocks_that_are_written_by_the_plan_before_stay_in_quarantine(replanned: bool) -> None:
    """Prefill reports that it stopped all writes for a decode worker, by any plan."""
    made = world(Shape(1), Shape(1), mode="push")
    worker = made.decode[0]
    made.hub.frozen.add(worker.inspect().transport)
    submitted(made, ask(made, (0, 12)))
    until(lambda: any(write.under_way for write in made.prefill[0].inspect().writes))
    if replanned:
        replan(made)
    worker.drop("prefill")
    worker.connect(made.prefill[0].address, 10, mode="push")
    for _ in range(200):
        assert not freed(worker), "prefill still writes them"
        worker.rest(0.001)
    made.hub.frozen.clear()
    until(lambda: freed(worker))


def test_a_plan_by_which_prefill_packs_takes_the_place_of_one_by_which_it_does_not() -> None:
    """Its stage is registered by then only, so that what leads to its memory is more than before."""
    made = world(Shape(2), Shape(1), nixl=True)
    move(made, ask(made, (0, 40), name="before"))
    plan = with_ranges(made.plan, "pack")
    workers: list[PrefillWorker | DecodeWorker] = [*made.prefill, *made.decode]
    for worker in workers:
        worker.plans = FixedPlans((plan,))
    made.decode[0].connect(made.prefill[0].address, 10)
    assert len(replanned(made.decode[0])) == 1
    clear(made)
    move(made, ask(made, (0, 40), name="after"))
    assert all(source.inspect().stage.open for source in made.prefill)


def replanned(worker: DecodeWorker) -> list[PrefillEngineState]:
    return [engine for engine in worker.inspect().engines if engine.status == "replanned"]


def renewed(made: World, request: str, clock: Clock) -> bool:
    """Whether every prefill worker has been told now that a request is still needed."""
    holds = [hold for source in made.prefill for hold in source.inspect().holds if hold.request == request]
    return [hold.until for hold in holds] == [clock.time + 10] * len(made.prefill)


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_what_is_under_way_ends_by_the_plan_that_it_began_with(mode: str) -> None:
    clock = Clock()
    made = world(Shape(2), Shape(1), mode=mode, lease=10, clock=clock, d_clock=clock)
    worker, request = made.decode[0], ask(made, (0, 12), name="before")
    made.hub.frozen |= {made.prefill[0].inspect().transport, worker.inspect().transport}
    filled(made, request)
    running = submitted(made, request, 500)
    new = replan(made)
    assert worker.connect(made.prefill[0].address, 10, mode=mode).plan.digest == new
    assert [peer.plan.digest for peer in worker.peers()] == [new]
    for _ in range(10):
        clock.time += 2
        # A round of a prefill worker's thread that began before would renew from the time before.
        for source in made.prefill:
            source.run_once()
        until(lambda: not running.poll() and renewed(made, "before", clock))
    made.hub.frozen.clear()
    assert running.wait().engine.pair.plan.digest == made.plan.digest
    check(made, 0, request)
    assert made.released() == {("before", "finished")}
    until(lambda: not worker.run_once() and not replanned(worker))
    clear(made)
    move(made, ask(made, (0, 12), name="after"))
    assert [[client.plan for client in source.inspect().readers] for source in made.prefill] == [[new]] * 2


def test_both_sides_take_a_plan_from_a_changed_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The plans change like a mounted volume: a link to the files is replaced."""
    caplog.set_level("INFO", "kvplan.runtime")
    made = world(Shape(1), Shape(1))
    texts = [module_text(replace(made.plan, options=(("elect", name), ("strategy", "direct")))) for name in ("a", "b")]
    plans = [volume(tmp_path, number, text) for number, text in enumerate(texts)]
    made.prefill[0].plans, made.decode[0].plans = Catalog(tmp_path / "plans"), Catalog(tmp_path / "plans")
    for number, plan in enumerate(plans):
        turn(tmp_path, number)
        assert made.decode[0].connect(made.prefill[0].address, 10).plan.digest == plan
        clear(made)
        move(made, ask(made, (0, 12), name=str(number)))
    assert sum(record.getMessage().startswith("plans changed") for record in caplog.records) == 2


def volume(folder: Path, number: int, text: str) -> str:
    """A generation of a plans directory with this plan; its digest."""
    files = folder / f"generation-{number}"
    files.mkdir()
    (files / "plan.py").write_text(text)
    plan = load_plan(files / "plan.py")
    entry = index.entry("plan.py", text.encode(), plan)
    (files / index.NAME).write_text(index.render([entry]))
    return plan.digest


def turn(folder: Path, number: int) -> None:
    (folder / "next").symlink_to(f"generation-{number}")
    (folder / "next").rename(folder / "plans")


def test_what_was_confirmed_by_the_plan_before_is_done_where_the_line_breaks() -> None:
    """The engine that is live falls first, and takes with it those of before, which are heard before it."""
    made = world(Shape(1), Shape(1))
    worker, request, source = made.decode[0], ask(made, (0, 12), name="before"), made.prefill[0]
    filled(made, request)
    source.hold(request.id, request.prefill)
    made.hub.frozen |= {source.inspect().transport, worker.inspect().transport}
    moved = looked_at(worker.submit(request, 50))
    until(lambda: moved.parts[0].phase is Phase.MOVING, worker.run_once)
    replan(made)
    worker.connect(source.address, 10)
    made.hub.frozen.clear()
    source.drain(60)
    while not moved.ended and moved.parts[0].phase is not Phase.TOLD:
        worker.run_once()
    until(source.drained)
    source.close()
    until(moved.poll)
    assert (moved.state, moved.error) == ("done", None)
    check(made, 0, request)
    worker.close()
