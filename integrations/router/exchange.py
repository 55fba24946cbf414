"""One client's request, asked of two engines, and what comes back of it.

Prefill and decode are two tasks. The first one that fails ends the other: its connection is closed, and its engine
aborts the request. So does a client that leaves.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvplan.integrations.router.bodies import event_with_first_token, prompt_tokens, wants_logprobs, with_first_token
from kvplan.integrations.router.engines import RoutedEngine
from kvplan.integrations.router.errors import RoutingError, UnreachableError
from kvplan.integrations.shared.legs import Body, EngineLegs, PairedRequest, WorkerAddress

# Bits of a room: a number that no two requests share, and that fits a signed integer of 64 bits.
ROOM_BITS = 63


class RouterReply(Protocol):
    """The client's end."""

    async def whole(self, answer: Body) -> None:
        """Answer in one piece."""

    async def event(self, data: bytes) -> None:
        """Send a server-sent event."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A client's request `body` for `path`, with the `headers` that both engines get."""

    prefill: RoutedEngine
    decode: RoutedEngine
    path: str
    body: Body
    headers: Mapping[str, str]

    async def carry_out(self, reply: RouterReply) -> None:
        """Ask both engines, and hand decode's answer on. Raises RoutingError, unless all of it was handed on before."""
        legs, other = await self.prefill.legs(self.headers), await self.decode.legs(self.headers)
        tokens = prompt_tokens(self.body)
        short = other.computes_last and not legs.stops_short and tokens > 1
        paired = PairedRequest(secrets.randbits(ROOM_BITS), not other.computes_last, short, tokens)
        # Decode has no logprob of a token that prefill computed and did not tell it of.
        lacking = wants_logprobs(self.body) and not (other.computes_last or legs.tells_logprob)
        asked = legs.prefill(self.body, paired)
        try:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(self.prefill.whole(self.path, asked, self.headers))
                second = group.create_task(self._decode(legs, other, paired, first, reply, lacking=lacking))
        except* RoutingError as errors:
            if second.cancelled() or second.exception() is not None:
                raise errors.exceptions[0] from None

    async def _decode(
        self,
        legs: EngineLegs,
        other: EngineLegs,
        paired: PairedRequest,
        first: asyncio.Task[Body],
        reply: RouterReply,
        *,
        lacking: bool,
    ) -> None:
        asked = other.decode(self.body, paired, await self._address(legs, first))
        async with self.decode.answering(self.path, asked, self.headers) as response:
            if not self.body.get("stream"):
                answer = await self.decode.read(response)
                if lacking:
                    with_first_token(answer, await first)
                await reply.whole(answer)
                return
            async for event in self.decode.events(response):
                changed = event_with_first_token(event, await first) if lacking else None
                lacking = lacking and changed is None
                await reply.event(changed or event)

    async def _address(self, legs: EngineLegs, first: asyncio.Task[Body]) -> WorkerAddress:
        """Where prefill's workers answer. Raises RoutingError."""
        address = await self.prefill.recorded(legs) or legs.address(await first)
        if address is None:
            raise UnreachableError(f"{self.prefill.name} kept nothing of the request: is it started to prefill?")
        return address
