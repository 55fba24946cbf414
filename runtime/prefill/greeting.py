"""Greeting: what a decode worker that says hello is answered, and met as."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import Hello, Refusal, WorkerCard
from kvplan.runtime.control.handshake_server import PrefillFace, answer_hello, served_plan
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError, LeaseError
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.prefill.peers import ReaderPeers
from kvplan.runtime.protocol.reader_table import ReaderTable


class Greeter:
    """Answers hellos to the prefill role of `identity` over an endpoint, by what `plans` returns now.

    `carry_out` does what the core's `readers` want done because of one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        plans: Callable[[], PlanSource],
        peers: ReaderPeers,
        packs: PagePacks,
        readers: ReaderTable,
        carry_out: Callable[[], None],
    ) -> None:
        self._endpoint, self._identity, self._plans = endpoint, identity, plans
        self._peers, self._packs, self._readers, self._carry_out = peers, packs, readers, carry_out

    def greet(self, identity: bytes, hello: Hello) -> msgspec.Struct:
        """The card that was asked for, or why there is none. Raises nothing."""
        name = f"prefill worker {self._endpoint.worker}"
        if self._endpoint.asleep:
            return Refusal(HandshakeError.code, f"{name} is suspended", True, hello.nonce)
        if self._peers.full():
            text = f"{name} has {len(self._peers)} connections, the most that it takes"
            return Refusal(LeaseError.code, text, True, hello.nonce)
        face = self._face()
        answer = answer_hello(hello, face)
        if isinstance(answer, WorkerCard):
            answer = self._welcome(identity, hello, face, answer)
        if isinstance(answer, Refusal):
            logs.event(logs.INFO, "peer refused", engine=hello.name, run=hello.run, error=answer.message)
        return answer

    def _face(self) -> PrefillFace:
        endpoint = self._endpoint
        return PrefillFace(
            identity=self._identity,
            side=endpoint.pool.side,
            worker=endpoint.worker,
            plans=self._plans(),
            generation=endpoint.generation,
            addresses=endpoint.addresses,
            geometry=endpoint.pool.geometry,
            metadata=endpoint.metadata,
            fabrics=endpoint.transport.fabrics,
        )

    def _welcome(self, identity: bytes, hello: Hello, face: PrefillFace, card: WorkerCard) -> WorkerCard | Refusal:
        self._readers.introduce(identity, hello.name, hello.run)
        self._carry_out()
        try:
            reader = self._peers.add(identity, hello, served_plan(hello, face))
            self._readers.meet(reader)
            return self._packs.serve(reader, card)
        except KvplanError as error:
            if (met := self._peers.get(identity)) is not None:
                self._readers.drop(met, "nothing can be packed for it")
                self._carry_out()
            return Refusal(error.code, str(error), False, hello.nonce)
