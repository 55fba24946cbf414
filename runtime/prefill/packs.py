"""Page packs, where a pair pulls: what decode workers ask to have packed, by connection.

Nothing that is read of a buffer after its connection is lost is ever confirmed.
"""

from __future__ import annotations

from functools import partial

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import WorkerCard
from kvplan.runtime.control.messages import AskBuffer, Failed, ReturnBuffer
from kvplan.runtime.errors import TransferError, cause_text
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.peers import Send
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.staging.asked import AskedImages, asked_reads, lending
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.transport.base import Transport


class PagePacks:
    """All packs of one prefill worker. A connection may ask for a few pieces at once, which bounds what is kept."""

    def __init__(self, pool: Pool, stage: Stage, transport: Transport, send: Send) -> None:
        self._pool, self._stage, self._transport, self._send = pool, stage, transport, send
        self._readers: dict[Reader, LentPieces] = {}
        # Packs of lost connections that are still being copied.
        self._gone: list[LentPieces] = []

    def __len__(self) -> int:
        return sum(map(len, (*self._readers.values(), *self._gone)))

    @property
    def stuck(self) -> bool:
        """Whether nobody is lent a buffer now: all may still be read for requests that were given up."""
        return self._stage.exhausted

    def serve(self, reader: Reader, card: WorkerCard) -> WorkerCard:
        """The card for a decode worker, by which it reaches the stage where its plan has this worker pack.

        Raises what opening the stage raises, TransportError, RegisterError.
        """
        if reader.target is not None:
            return card
        reads = asked_reads(reader.plan, reader.claimant.worker, push=False, prefill_worker=self._pool.worker)
        return lending(card, self._stage, self._transport, reads)

    def want(self, reader: Reader, asked: AskBuffer) -> None:
        """Begin to pack a piece. Raises BadRequestError, LimitedError, CardError, AddressError."""
        if reader not in self._readers:
            self._readers[reader] = self._pieces(reader)
        pieces = self._readers[reader]
        pieces.add(asked, pieces.wanted(asked))

    def give_back(self, reader: Reader, returned: ReturnBuffer) -> bool:
        """A piece is read, or wanted no more; False where it was not asked for."""
        pieces = self._readers.get(reader)
        return pieces is not None and pieces.give_back(returned.number, moved=returned.moved)

    def leave(self, reader: Reader, request: str) -> None:
        """A decode worker gives a request up."""
        if reader in self._readers:
            self._readers[reader].leave(request)

    def drop(self, reader: Reader) -> None:
        """A decode worker is lost, by this connection: what it reads now is never confirmed."""
        if (pieces := self._readers.pop(reader, None)) is not None:
            pieces.leave()
            self._gone.append(pieces)
            self._settle()

    def end(self, request: str) -> None:
        """A request is not there any more: nothing more of it is packed."""
        for pieces in self._readers.values():
            pieces.leave(request)

    def borrowers(self) -> set[Reader]:
        """The connections that were lent a buffer."""
        return {reader for reader, pieces in self._readers.items() if pieces.lent}

    def step(self) -> None:
        """Pack what there are buffers for, and say what is packed."""
        for pieces in list(self._readers.values()):
            pieces.step()
        self._settle()

    def _settle(self) -> None:
        for pieces in self._gone:
            pieces.settle(touched=False)
        self._gone = [pieces for pieces in self._gone if len(pieces)]

    def _pieces(self, reader: Reader) -> LentPieces:
        """Those of a reader, with the images of all reads that are packed for it, as its own links have them."""
        images = AskedImages(reader.plan, self._pool, self._stage, reader.claimant.worker, push=False)
        say, failed = partial(self._send, reader), partial(self._broken, reader)
        return LentPieces(self._stage, images, reader.key, packed=True, say=say, failed=failed)

    def _broken(self, reader: Reader, request: str, cause: Exception) -> None:
        """What cannot be packed fails its request; its piece is given back by who asked for it."""
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        logs.event(logs.WARNING, "pack failed", request=request, client=reader.key, error=error)
        self._send(reader, Failed(request, error.code, str(error)))
