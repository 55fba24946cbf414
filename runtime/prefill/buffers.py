"""Buffer messages: readers ask for buffers of the stage here, return them, and lend those of their own."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import AskBuffer, Lent, ReturnBuffer
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.prefill.peers import ReaderPeers
from kvplan.runtime.protocol.effects import Input
from kvplan.runtime.protocol.prefill_effects import Pass, RequestRefused, Unheard
from kvplan.runtime.protocol.prefill_inbox import UNFORESEEN, unforeseen
from kvplan.runtime.protocol.readers import Reader


class BufferMessages:
    """Acts upon messages about buffers, which the core passes on. `tell` takes what is to be said against one."""

    def __init__(self, packs: PagePacks, peers: ReaderPeers, counters: Counters, tell: Callable[[Input], None]) -> None:
        self._packs, self._peers, self._counters, self._tell = packs, peers, counters, tell

    def act(self, passed: Pass) -> None:
        reader, message = passed.reader, passed.message
        try:
            kind = self._act(reader, message)
        except KvplanError as error:
            kind = MessageKind.UNEXPECTED
            self._tell(RequestRefused(reader, message.request, error))
        except UNFORESEEN as error:
            self._tell(Unheard(reader, unforeseen(message, error), malformed=True))
            return
        self._counters.add("messages", kind=kind)

    def _act(self, reader: Reader, message: AskBuffer | ReturnBuffer | Lent) -> MessageKind:
        if isinstance(message, AskBuffer):
            self._packs.want(reader, message)
            return MessageKind.BUFFER_ASKED
        if isinstance(message, ReturnBuffer):
            return MessageKind.BUFFER_RETURNED if self._packs.give_back(reader, message) else MessageKind.DUPLICATE
        stage = self._peers.stage(reader)
        known = stage is not None and stage.lent(message.request, message.number, message.address)
        return MessageKind.LENT if known else MessageKind.DUPLICATE
