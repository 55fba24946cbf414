"""Greeting: what a decode worker that says hello is answered, and met as."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import Hello, Refusal, WorkerCard
from kvplan.runtime.control.handshake_server import PrefillFace, answer_hello, served_plan
from kvplan.runtime.errors import HandshakeError, LeaseError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.prefill.peers import ReaderPeers
from kvplan.runtime.protocol.effects import Input
from kvplan.runtime.protocol.prefill_effects import Introduce, Met, Unheard


class Greeter:
    """Answers hellos as `face` says now. `turn` tells the core what happened, and carries out what comes of it."""

    def __init__(
        self,
        pool: Pool,
        peers: ReaderPeers,
        packs: PagePacks,
        turn: Callable[[Input], object],
        face: Callable[[], PrefillFace],
    ) -> None:
        self._pool, self._peers, self._packs, self._turn, self._face = pool, peers, packs, turn, face

    def greet(self, identity: bytes, hello: Hello) -> msgspec.Struct:
        """The card that was asked for, or why there is none. Raises nothing."""
        face, name = self._face(), f"prefill worker {self._pool.worker}"
        if face.asleep:
            return Refusal(HandshakeError.code, f"{name} is suspended", True, hello.nonce)
        if self._peers.full():
            text = f"{name} has {len(self._peers)} connections, the most that it takes"
            return Refusal(LeaseError.code, text, True, hello.nonce)
        answer = answer_hello(hello, face)
        if isinstance(answer, WorkerCard):
            answer = self._welcome(identity, hello, face, answer)
        if isinstance(answer, Refusal):
            logs.event(logs.INFO, "peer refused", engine=hello.name, run=hello.run, error=answer.message)
        return answer

    def _welcome(self, identity: bytes, hello: Hello, face: PrefillFace, card: WorkerCard) -> WorkerCard | Refusal:
        self._turn(Introduce(identity, hello.name, hello.run))
        try:
            reader = self._peers.add(identity, hello, served_plan(hello, face))
            self._turn(Met(reader))
            return self._packs.serve(reader, card)
        except KvplanError as error:
            if (met := self._peers.get(identity)) is not None:
                self._turn(Unheard(met, "nothing can be packed for it"))
            return Refusal(error.code, str(error), False, hello.nonce)
