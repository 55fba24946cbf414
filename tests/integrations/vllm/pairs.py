"""Workers of the runtime behind the connector's, and the orders that a step would give them."""

from __future__ import annotations

from tests.integrations.vllm.requests import STATE, TOKENS
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World

from kvplan.integrations.vllm.holds import PrefillSide
from kvplan.integrations.vllm.loads import DecodeSide, LoadTimes, StepResults
from kvplan.integrations.vllm.metadata import BlockIds, HoldOrder, LoadOrder, RemotePrefill, StepOrders
from kvplan.integrations.vllm.tables import BlockTables, spans
from kvplan.integrations.vllm.worker import ConnectorWorker
from kvplan.plan.block_tables import blocks
from kvplan.plan.request import Request
from kvplan.plan.types import Side

GROUPS = (TOKENS, STATE)
TOKENS_ASKED = (0, 45)


class Pair:
    """Two prefill workers and a decode worker, each behind a connector's worker."""

    def __init__(self, made: World, times: LoadTimes) -> None:
        self.made = made
        self.prefill = [
            ConnectorWorker(PrefillSide(worker, tables(made.plan.prefill)), None) for worker in made.prefill
        ]
        made.decode[0].start()
        side = DecodeSide(made.decode[0], tables(made.plan.decode), times, made.mode)
        self.decode = ConnectorWorker(None, side)

    def hold(self, request: Request) -> None:
        orders = StepOrders(holds=(HoldOrder(request.id, request.tokens[1], ids(request.prefill)),))
        for worker in self.prefill:
            worker.hold(orders)

    def load(self, order: LoadOrder) -> None:
        self.decode.load(StepOrders(loads=(order,)))

    def loaded(self) -> StepResults:
        """Wait until something has ended, and return it."""
        results = StepResults()

        def any_ended() -> bool:
            more = self.decode.ended(idle=True)
            results.received |= more.received
            results.failed |= more.failed
            return bool(results.received)

        until(any_ended)
        return results

    def sent(self) -> list[set[str]]:
        """By prefill worker, once all have something."""
        found: list[set[str]] = [set() for _ in self.prefill]

        def all_sent() -> bool:
            for worker, names in zip(self.prefill, found, strict=True):
                names |= worker.ended(idle=True).sent
            return all(found)

        until(all_sent)
        return found


def tables(side: Side) -> BlockTables:
    return BlockTables(GROUPS, spans(side))


def ids(named: object) -> BlockIds:
    assert isinstance(named, dict)
    return tuple(tuple(blocks(named[group.name]).ids.tolist()) for group in GROUPS)


def order(made: World, request: Request) -> LoadOrder:
    host, _, port = made.prefill[0].address.removeprefix("tcp://").rpartition(":")
    remote = RemotePrefill("prefill", request.id, host, int(port), request.tokens[1], GROUPS, ids(request.prefill))
    return LoadOrder(f"{request.id}-here", request.tokens, ids(request.decode), remote)
