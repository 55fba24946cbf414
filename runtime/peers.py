"""The prefill workers that a decode worker has met: what is prepared for each."""

from __future__ import annotations

import logging

from kvplan.runtime import geometry as shape
from kvplan.runtime.card import WorkerCard, geometry
from kvplan.runtime.errors import KvplanError, TransportError
from kvplan.runtime.geometry import Geometry
from kvplan.runtime.handshake import Met
from kvplan.runtime.plan import Plan
from kvplan.runtime.prepare import Source, source
from kvplan.runtime.transport import Transport

LOG = logging.getLogger("kvplan.runtime")


class Peers:
    """`sources` by prefill worker number. `retired` are names of peers that were dropped and may still be read from."""

    def __init__(self, plan: Plan, worker: int, decode: Geometry, transport: Transport) -> None:
        self.sources: dict[int, Source] = {}
        self.retired: set[str] = set()
        self._cards: dict[int, WorkerCard] = {}
        self._plan, self._worker, self._decode, self._transport = plan, worker, decode, transport

    def keeps(self, card: WorkerCard) -> bool:
        """Whether a worker is connected and this is the card it was met with, generation and metadata included."""
        return card.worker in self.sources and self._cards.get(card.worker) == card

    def add(self, met: Met) -> None:
        """Prepare for all workers that were met, or for none of the new. Raises what any raises.

        What is prepared for a worker that is met again, unchanged, stays as it is.
        """
        new = [card for card in met.workers if not self.keeps(card)]
        lies = {card.worker: geometry(card) for card in new}
        for worker, lie in lies.items():
            shape.check(lie, self._plan.prefill, worker)
        try:
            for card in new:
                self.sources[card.worker] = self._source(card, lies[card.worker])
                self._cards[card.worker] = card
                self._log(met.engine.key, self.sources[card.worker])
        except KvplanError:
            for card in new:
                self.retire(card.worker)
            raise

    def retire(self, worker: int) -> None:
        """Forget a worker. The transport keeps it while reads from it are under way."""
        found = self.sources.pop(worker, None)
        self._cards.pop(worker, None)
        if found is None:
            return
        self.retired.add(found.peer)
        try:
            found.release()
        except TransportError as error:
            LOG.warning("peer=%s worker=%d release=%s", found.peer, worker, error)

    def remove_retired(self, busy: set[str]) -> None:
        """Remove retired peers from the transport, except those that reads are under way from."""
        self.retired -= {one.peer for one in self.sources.values()}
        for peer in sorted(self.retired - busy):
            self.retired.discard(peer)
            try:
                self._transport.remove_peer(peer)
            except TransportError as error:
                LOG.warning("peer=%s removal=%s", peer, error)

    def _source(self, card: WorkerCard, lie: Geometry) -> Source:
        peer = self._transport.add_peer(card.metadata)
        try:
            return source(self._plan, self._worker, card.worker, peer, self._transport, lie, self._decode)
        except KvplanError:
            self.retired.add(peer)
            raise

    def _log(self, key: str, one: Source) -> None:
        facts = {
            "engine": key,
            "worker": one.worker,
            "decode_worker": self._worker,
            "plan": self._plan.digest,
            "reads": len(one.entries),
            "rows": sum(len(entry.page) or sum(len(one.table) for one in entry.token) for entry in one.entries),
            "regions": len(one.prefill.regions),
        }
        LOG.info("peer %s", " ".join(f"{name}={value}" for name, value in facts.items()), extra=facts)
