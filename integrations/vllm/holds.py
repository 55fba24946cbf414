"""Prefill's side of a worker: it holds requests for decode engines, and says whose blocks are free again."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.integrations.vllm.metadata import HoldOrder, StepOrders
from kvplan.integrations.vllm.offers import PromptOffers
from kvplan.integrations.vllm.tables import BlockTables
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.events import ComputeEvent
from kvplan.runtime.prefill.worker import PrefillWorker

# Makes an event after all work that the device was given, or none if the device has done it.
Mark = Callable[[], ComputeEvent | None]


def unmarked() -> None:
    """Return no event: a step that is over has done all its work."""


class PrefillSide:
    """This worker's holds for other engines. Each begins once the device has reached the event of `mark`."""

    def __init__(
        self, worker: PrefillWorker, tables: BlockTables, offers: PromptOffers | None = None, mark: Mark = unmarked
    ) -> None:
        self.worker, self._tables, self._mark = worker, tables, mark
        self.offers = offers or PromptOffers(worker, tables)
        self._held: dict[str, HoldOrder] = {}
        self._refused: set[str] = set()
        self.expired = 0

    @property
    def held(self) -> int:
        """How many requests have blocks that are not free again."""
        return len(self._held)

    @property
    def busy(self) -> bool:
        """Whether the runtime may release something."""
        return bool(self._held or self._refused or self.offers.unreleased)

    def begin(self, orders: StepOrders) -> None:
        if orders.addresses:
            self.worker.announce(orders.addresses)
        after = self._mark() if orders.holds else None
        for order in orders.holds:
            self._hold(order, after)
        for name in orders.withdrawals:
            # If a router gave a name twice, another request may be held by it.
            if name not in self._held:
                self.offers.withdraw(name)
        self.offers.begin(orders.chunks)

    def sent(self) -> set[str]:
        """Return the requests whose blocks are free again, each once."""
        if not self.busy:
            return set()
        free, self._refused = self._refused, set()
        for one in self.worker.released():
            self.offers.released(one.request)
            if one.request not in self._held:
                continue
            order = self._held.pop(one.request)
            free.add(order.request)
            if one.why == "finished" or order.next_turn:
                logs.event(logs.DEBUG, "request freed", request=one.request, why=one.why)
            else:
                logs.event(logs.WARNING, "blocks freed early", request=one.request, why=one.why)
                self.expired += one.why == "expired"
        return free

    def _hold(self, order: HoldOrder, after: ComputeEvent | None) -> None:
        """Hold a request, or have its blocks freed: decode then waits in vain, and computes it itself or fails."""
        name = order.held_name
        try:
            if not self.offers.finish(order, after):
                tables = self._tables.of(order.blocks, order.tokens)
                self.worker.hold(name, tables, tokens=(0, order.tokens), after=after, note=order.note)
        except Exception as error:  # Data from another engine or a client must not end this one.
            logs.event(logs.WARNING, "hold refused", request=name, error=error)
            # Decode may still read what was offered by this name.
            if name in self._held or name not in self.offers.unreleased:
                self._refused.add(order.request)
                return
        self._held[name] = order
        logs.event(logs.DEBUG, "request held", request=name, tokens=order.tokens)
