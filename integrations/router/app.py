"""The router as an HTTP service: OpenAI's completions and chats, the models, and the health of all engines."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from aiohttp import web

from kvplan.integrations.router.bodies import client_body, event_of
from kvplan.integrations.router.engines import MODELS, RoutedEngine, known_legs
from kvplan.integrations.router.errors import RoutingError, SlowClientError
from kvplan.integrations.router.exchange import Exchange
from kvplan.integrations.shared.legs import Body

PATHS = ("/v1/completions", "/v1/chat/completions")
# The client's headers that both engines get.
HEADERS = ("Authorization", "X-Request-Id")
LARGEST = 64 << 20
DONE = b"data: [DONE]\n\n"
EVENTS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """URLs of prefill and of decode engines, which take turns. Times are seconds.

    `connect` bounds the time of a connection to an engine, `silence` the time in which an engine does not answer, or a
    client neither sends nor reads.
    """

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    connect: float = 5.0
    silence: float = 600.0


def application(config: RouterConfig) -> web.Application:
    """Return the service. Run it with `handler_cancellation=True`, so that a client's disconnect ends its request."""
    app = web.Application(client_max_size=LARGEST)
    router = Router(config)
    app.cleanup_ctx.append(router.running)
    app.router.add_get("/health", router.health)
    app.router.add_get(MODELS, router.models)
    for path in PATHS:
        app.router.add_post(path, router.generate)
    return app


def run(config: RouterConfig, host: str, port: int, began: Callable[[], None]) -> None:
    """Serve until a signal ends the process. Call `began` once it serves. Raises OSError if the port is taken."""
    web.run_app(application(config), host=host, port=port, handler_cancellation=True, print=lambda _: began())


class Router:
    """The engines in turn, and the answer at each path."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self._prefills: Sequence[RoutedEngine] = ()
        self._decodes: Sequence[RoutedEngine] = ()
        self._turns = itertools.count()
        self._routing = frozenset[str]().union(*(legs.fields for legs in known_legs().values()))

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Make the engines. Connections are used once, so that closing one ends the request at the engine."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._config.connect, sock_read=self._config.silence)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._prefills = [RoutedEngine("prefill", url, session) for url in self._config.prefill]
            self._decodes = [RoutedEngine("decode", url, session) for url in self._config.decode]
            yield

    async def health(self, request: web.Request) -> web.Response:
        """Answer 200 if all engines are healthy, or 503 with those that are not."""
        engines = [*self._prefills, *self._decodes]
        healthy = await asyncio.gather(*(engine.healthy() for engine in engines))
        ill = [engine.name for engine, well in zip(engines, healthy, strict=True) if not well]
        status = HTTPStatus.SERVICE_UNAVAILABLE if ill else HTTPStatus.OK
        return web.json_response({"unhealthy": ill}, status=status)

    async def models(self, request: web.Request) -> web.Response:
        """Answer with the models of the first decode engine."""
        try:
            return web.json_response(await self._decodes[0].get(MODELS, told_headers(request)))
        except RoutingError as error:
            return web.json_response(error.body, status=error.status)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion or a chat by a prefill and a decode engine."""
        reply, turn = ClientReply(request, self._config.silence), next(self._turns)
        try:
            body = client_body(await reply.request_body(), self._routing)
            prefill = self._prefills[turn % len(self._prefills)]
            decode = self._decodes[turn % len(self._decodes)]
            await Exchange(prefill, decode, request.path, body, told_headers(request)).carry_out(reply)
        except RoutingError as error:
            await reply.fail(error)
        return await reply.end()


class ClientReply:
    """The answer to a client: in one piece, or in events once the first one is sent."""

    def __init__(self, request: web.Request, patience: float) -> None:
        self._request, self._patience = request, patience
        self._response: web.StreamResponse = web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def request_body(self) -> bytes:
        """Read the request's body. Raises SlowClientError."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._request.read()
        except TimeoutError as error:
            raise SlowClientError("the request's body did not come in time") from error

    async def whole(self, answer: Body) -> None:
        self._response = web.json_response(answer)

    async def event(self, data: bytes) -> None:
        if not self._response.prepared:
            self._response = web.StreamResponse(headers=EVENTS)
            await self._response.prepare(self._request)
        try:
            async with asyncio.timeout(self._patience):
                await self._response.write(data)
        except TimeoutError as error:
            raise SlowClientError("the client does not read its answer") from error

    async def fail(self, error: RoutingError) -> None:
        """Report an error: by the status, or if events have begun by the last one. Drop a client that does not read."""
        if self._response.prepared and isinstance(error, SlowClientError):
            if self._request.transport is not None:
                self._request.transport.abort()
        elif self._response.prepared:
            await self._response.write(event_of(error.body) + DONE)
        else:
            self._response = web.json_response(error.body, status=error.status)

    async def end(self) -> web.StreamResponse:
        if self._response.prepared:
            await self._response.write_eof()
        return self._response


def told_headers(request: web.Request) -> dict[str, str]:
    return {name: request.headers[name] for name in HEADERS if name in request.headers}
