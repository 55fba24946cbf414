"""One client's request, sent to two engines, and their answer.

Prefill and decode are two tasks. The first one that fails ends the other: its connection is closed, and its engine
aborts the request. A client that disconnects ends both.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from kvplan.integrations.router.bodies import event_with_first_token, wants_logprobs, with_first_token
from kvplan.integrations.router.engines import RoutedEngine
from kvplan.integrations.router.errors import RoutingError, UnreachableError
from kvplan.integrations.shared.legs import Body, EngineLegs, PairedRequest, WorkerAddress

# The bits of a room: a number that is unique to a request and fits a signed integer of 64 bits.
ROOM_BITS = 63


class RouterReply(Protocol):
    """The client's end."""

    async def whole(self, answer: Body) -> None:
        """Answer in one piece."""

    async def event(self, data: bytes) -> None:
        """Send a server-sent event."""


@dataclass(frozen=True, slots=True)
class PairedLegs:
    """The legs of a request's two engines, and whether decode lacks the logprob of the first token."""

    prefill: EngineLegs
    decode: EngineLegs
    request: PairedRequest
    lacking: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """A client's request `body` for `path`, with the `headers` for both engines."""

    prefill: RoutedEngine
    decode: RoutedEngine
    path: str
    body: Body
    headers: Mapping[str, str]

    async def carry_out(self, reply: RouterReply) -> None:
        """Ask both engines, and pass on decode's answer. Raises RoutingError, unless all of it was passed on before."""
        pair = await self._pair()
        asked = pair.prefill.prefill(self.body, pair.request)
        try:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(self.prefill.whole(self.path, asked, self.headers))
                second = group.create_task(self._decode(pair, first, reply))
        except* RoutingError as errors:
            if second.cancelled() or second.exception() is not None:
                raise errors.exceptions[0] from None

    async def _pair(self) -> PairedLegs:
        """Find both engines' legs. Raises RoutingError."""
        prefill, decode = await self.prefill.legs(self.headers), await self.decode.legs(self.headers)
        request = PairedRequest(secrets.randbits(ROOM_BITS), not decode.computes_last)
        known = decode.computes_last or prefill.tells_logprob
        return PairedLegs(prefill, decode, request, wants_logprobs(self.body) and not known)

    async def _decode(self, pair: PairedLegs, first: asyncio.Task[Body], reply: RouterReply) -> None:
        asked = pair.decode.decode(self.body, pair.request, await self._address(pair.prefill, first))
        async with self.decode.answering(self.path, asked, self.headers) as response:
            hand_on = self._stream if self.body.get("stream") else self._whole
            await hand_on(response, first if pair.lacking else None, reply)

    async def _whole(
        self, response: aiohttp.ClientResponse, known: asyncio.Task[Body] | None, reply: RouterReply
    ) -> None:
        """Pass on an answer, with the first token's logprobs from the `known` answer."""
        answer = await self.decode.read(response)
        if known is not None:
            with_first_token(answer, await known)
        await reply.whole(answer)

    async def _stream(
        self, response: aiohttp.ClientResponse, known: asyncio.Task[Body] | None, reply: RouterReply
    ) -> None:
        """Pass on an answer like `_whole`, in events."""
        event = b""
        async for event in self.decode.events(response):
            changed = event_with_first_token(event, await known) if known is not None else None
            known = known if changed is None else None
            await reply.event(changed or event)
        if not event:
            raise UnreachableError(f"{self.decode.name} ended its answer before it began")

    async def _address(self, legs: EngineLegs, first: asyncio.Task[Body]) -> WorkerAddress:
        """Return the address of prefill's workers. Raises RoutingError."""
        address = await self.prefill.recorded(legs, self.headers) or legs.address(await first)
        if address is None:
            raise UnreachableError(f"{self.prefill.name} kept nothing of the request: is it started to prefill?")
        return address
