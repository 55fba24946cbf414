"""Page packs, where a pair pulls: what decode workers ask to have packed, and which buffers they read it from.

Each is a copy into a buffer of this worker's stage, in the order of decode's pages. A buffer that was lent is the
reader's until it gives it back, or its connection is gone: nothing that it reads after that is ever confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.control.card import WorkerCard
from kvplan.runtime.control.messages import AskBuffer, Failed, Lent, ReturnBuffer
from kvplan.runtime.errors import TransferError, cause_text
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.peers import Send
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.staging.asked import AskedImages, asked_reads, lending
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.staged import StagedMove
from kvplan.runtime.transport.base import Transport


@dataclass(slots=True, eq=False)
class PagePack:
    """One piece that was asked for. It was `lent` once the reader was told where it is; `left`, nobody wants it."""

    reader: Reader
    request: str
    move: StagedMove
    lent: bool = False
    left: bool = False

    def leave(self) -> None:
        """It is not packed any more; a buffer that was lent is the reader's until it is given back."""
        self.move.leave()
        self.left = not self.lent


@dataclass(slots=True)
class ReaderPacks:
    """What is packed for one connection: the images of its reads, and the pieces by number."""

    images: AskedImages
    pieces: dict[int, PagePack] = field(default_factory=dict)


class PagePacks:
    """All packs of one prefill worker. A connection may ask for a few pieces at once, which bounds what is kept."""

    def __init__(self, pool: Pool, stage: Stage | None, transport: Transport, send: Send) -> None:
        self._pool, self._stage, self._transport, self._send = pool, stage, transport, send
        self._readers: dict[Reader, ReaderPacks] = {}
        # Of connections that are gone, and still being copied.
        self._orphans: list[PagePack] = []

    def __len__(self) -> int:
        return sum(len(of.pieces) for of in self._readers.values()) + len(self._orphans)

    @property
    def stuck(self) -> bool:
        """Whether nobody is lent a buffer now: all may still be read for requests that were given up."""
        return self._stage is not None and self._stage.exhausted

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
        if (stage := self._stage) is None:
            raise BadRequestError(f"request {asked.request}: this worker packs nothing")
        of = self._readers.get(reader)
        if of is None:
            of = self._readers[reader] = ReaderPacks(self._images(reader, stage.buffer_bytes))
        piece = of.images.piece(asked, of.pieces)
        pack = PagePack(reader, asked.request, StagedMove(stage.of(piece.memory), piece, reader.key, True))
        of.pieces[asked.number] = pack
        # At once, that it is copied while the next one is asked for; what may come next gives a buffer back.
        if not stage.stuck(reader.key):
            self._pack(asked.number, pack)

    def give_back(self, reader: Reader, returned: ReturnBuffer) -> bool:
        """A piece is read, or wanted no more; False where it was not asked for."""
        of = self._readers.get(reader)
        pack = None if of is None else of.pieces.pop(returned.number, None)
        if pack is not None:
            self._end(pack)
        return pack is not None

    def leave(self, reader: Reader, request: str) -> None:
        """A decode worker gives a request up."""
        for pack in self._of(reader):
            if pack.request == request:
                pack.leave()

    def drop(self, reader: Reader) -> None:
        """A decode worker is gone, by this connection: what it reads now it will not be told that it is right."""
        for pack in self._of(reader):
            self._end(pack)
        self._readers.pop(reader, None)

    def end(self, request: str) -> None:
        """A request is not there any more: nothing more of it is packed."""
        for reader in list(self._readers):
            self.leave(reader, request)

    def borrowers(self) -> set[Reader]:
        """The connections that were lent a buffer."""
        return {reader for reader, of in self._readers.items() if any(pack.lent for pack in of.pieces.values())}

    def step(self) -> None:
        """Pack what there are buffers for, and say what is packed."""
        for reader in list(self._readers):
            for number, pack in list(self._readers[reader].pieces.items() if reader in self._readers else ()):
                # Who could not be told of the one before is gone, with all the others.
                if not pack.lent and not pack.left:
                    self._pack(number, pack)
        for pack in [pack for pack in self._orphans if not pack.move.copying]:
            self._orphans.remove(pack)
            pack.move.release()

    def _of(self, reader: Reader) -> list[PagePack]:
        return list(self._readers[reader].pieces.values()) if reader in self._readers else []

    def _end(self, pack: PagePack) -> None:
        """Nobody reads a pack any more: its buffer is free, as soon as nothing copies into it."""
        if not pack.lent:
            pack.leave()
        if pack.move.copying:
            self._orphans.append(pack)
        else:
            pack.move.release()

    def _pack(self, number: int, pack: PagePack) -> None:
        try:
            if not pack.move.ready():
                return
        except Exception as error:
            self._broken(pack, error)
            return
        pack.lent = True
        self._send(pack.reader, Lent(pack.request, number, pack.move.address))

    def _broken(self, pack: PagePack, cause: Exception) -> None:
        """What cannot be packed fails its request; its piece is given back by who asked for it."""
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        logs.event(logs.WARNING, "pack failed", request=pack.request, client=pack.reader.key, error=error)
        pack.leave()
        self._send(pack.reader, Failed(pack.request, error.code, str(error)))

    def _images(self, reader: Reader, most: int) -> AskedImages:
        """The images of all reads that are packed for a reader, as its own links have them."""
        return AskedImages(
            reader.plan,
            decode_worker=reader.claimant.worker,
            prefill_worker=self._pool.worker,
            push=False,
            pool=self._pool.geometry,
            most=most,
        )
