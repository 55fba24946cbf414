"""Workers that store nothing, because the shares listed for them are empty, take part and move nothing."""

from __future__ import annotations

from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.dimensions import plain
from tests.end_to_end.worlds import World, move, runtime_request, world

from kvplan.plan.request import Request

CASE = plain(
    heads="2", prefill_mesh="4", decode_mesh="3", prefill_shares="listed", decode_shares="listed"
)  # fmt: skip


def empty(made: World) -> tuple[list[int], list[int]]:
    """The workers of either side without a plane."""
    return (
        [worker.worker for worker, memory in made.prefill if not memory.planes],
        [reader.worker for reader, memory in made.decode if not memory.planes],
    )


def asked_of(made: World, request: Request, number: int) -> int:
    """How many requests decode worker `number` posts."""
    return made.decode[number][0].submit(request, 5).wait().descriptors or 0


def test_workers_that_store_nothing() -> None:
    asked = requests(CASE)
    with world(compiled(CASE), sides(CASE), list(asked.values())) as made:
        assert empty(made) == ([0, 1], [2])
        move(made, asked["cold"], "cold")
        assert made.finished() == {("cold",)}
        request = runtime_request(asked["prefix hit"], "again")
        for worker, _ in made.prefill:
            worker.hold("again")
        assert asked_of(made, request, 2) == 0
        assert asked_of(made, request, 0) > 0
        assert made.decode[2][0].submit(request, 5).parts == ()
