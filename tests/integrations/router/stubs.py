"""Engines of two kinds as a router sees them, without any model: what they were asked, and what they answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from kvplan.integrations.router.app import RouterConfig, application

Body = dict[str, Any]
PATHS = ("/v1/completions", "/v1/chat/completions")
HELD = {"remote_host": "10.0.0.1", "remote_port": 7600, "remote_key": "key"}
RECORD = {"address": "tcp://10.0.0.2:7700", "key": "key"}


@dataclass
class StubEngine:
    """An engine of the kind of `owner`. `asked` are the bodies of requests, `left` counts those whose client left.

    It answers `choice` once `ready` is set, in as many events as `events` says if a stream is asked for. `extra` is
    beside the choices of an answer.
    """

    owner: str
    choice: Body = field(default_factory=dict)
    extra: Body = field(default_factory=dict)
    events: int = 3
    status: int = 200
    error: Any = None
    health: int = 200
    health_s: float = 0.0
    models: Any = None
    info: Any = None
    record: Any = field(default_factory=lambda: dict(RECORD))
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Body] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    left: int = 0
    url: str = ""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/server_info", self._info)
        app.router.add_get("/kvplan", self._record)
        for path in PATHS:
            app.router.add_post(path, self._generate)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.health_s)
        return web.Response(status=self.health)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(self.models or {"data": [{"id": "small", "owned_by": self.owner}]})

    async def _info(self, request: web.Request) -> web.Response:
        self.told.append(request.headers.get("Authorization", ""))
        return web.json_response(self.info or {"disaggregation_bootstrap_port": int(self.url.rpartition(":")[2])})

    async def _record(self, request: web.Request) -> web.Response:
        return web.json_response(self.record)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(request.headers)
        try:
            await self.ready.wait()
            return await self._answer(request, body)
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _answer(self, request: web.Request, body: Body) -> web.StreamResponse:
        if self.status != 200:
            return web.json_response(self.error, status=self.status)
        if not body.get("stream"):
            return web.json_response({"choices": [self.choice], **self.extra})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(self.events):
            said = {"choices": [{**self.choice, "number": number}]}
            await response.write(f"data: {json.dumps(said)}\n\n".encode())
            if number == 0:
                self.ready.clear()
                await self.ready.wait()
        if self.events:
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


@dataclass
class Routed:
    """A router, the two engines behind it, and a client."""

    prefill: StubEngine
    decode: StubEngine
    client: aiohttp.ClientSession
    url: str

    def ask(self, path: str = PATHS[0], **body: Any) -> Any:
        return self.client.post(self.url + path, json={"model": "small", "prompt": [1, 2, 3], **body})

    async def said(self, path: str = PATHS[0], **body: Any) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        async with self.ask(path, **body) as response:
            return response.status, await response.json()


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def routed(
    prefill: StubEngine, decode: StubEngine, scenario: Callable[[Routed], Awaitable[None]], **config: float
) -> None:
    """Play a scenario: both engines are ready, unless it says otherwise."""

    async def played() -> None:
        async with AsyncExitStack() as stack:
            for engine in (prefill, decode):
                engine.ready.set()
                engine.url = await stack.enter_async_context(serving(engine.application()))
            app = application(RouterConfig((prefill.url,), (decode.url,), **config))
            url = await stack.enter_async_context(serving(app))
            client = await stack.enter_async_context(aiohttp.ClientSession())
            await scenario(Routed(prefill, decode, client, url))

    asyncio.run(asyncio.wait_for(played(), 60))
