"""Engines from a router's view: each one's kind, its workers' address, and its answers to requests."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any

import aiohttp

from kvplan import integrations
from kvplan.integrations.router.errors import EngineAnswerError, RoutingError, SilentError, UnreachableError
from kvplan.integrations.shared.legs import Body, EngineLegs, WorkerAddress

MODELS, HEALTH = "/v1/models", "/health"
EVENT_END = b"\n\n"
# The most bytes of an engine's error that are passed on, and the most that a message shows.
LONGEST_ERROR = 1 << 16
SHOWN = 300


@cache
def known_legs() -> Mapping[str, EngineLegs]:
    """Return the legs of every connector that has some, by the owner of its engines' models."""
    names = [f"{integrations.__name__}.{found.name}.legs" for found in pkgutil.iter_modules(integrations.__path__)]
    modules = [importlib.import_module(name) for name in names if find_spec(name)]
    every = [module.LEGS for module in modules if hasattr(module, "LEGS")]
    return {legs.owner: legs for legs in every}


class RoutedEngine:
    """One engine at a URL. Calls wait no longer than the session's time-outs, and raise RoutingError."""

    def __init__(self, role: str, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self.name = f"the {role} engine at {self.url}"
        self._session = session
        self._legs: EngineLegs | None = None
        self._record = ""

    async def legs(self, headers: Mapping[str, str]) -> EngineLegs:
        """Return the engine's legs, by the owner of its models. Raises RoutingError."""
        if self._legs is None:
            owner = owner_of(await self.get(MODELS, headers))
            if owner not in known_legs():
                have = " or ".join(sorted(known_legs()))
                raise UnreachableError(f"{self.name} says that its models belong to {owner!r}, not to {have}")
            self._legs = known_legs()[owner]
        return self._legs

    async def recorded(self, legs: EngineLegs, headers: Mapping[str, str]) -> WorkerAddress | None:
        """Return its workers' address by its record; None if only its answers have it. Raises RoutingError."""
        if legs.record is None:
            return None
        if not self._record:
            try:
                self._record = await legs.record(self.url, partial(self._get, headers=headers))
            except (KeyError, TypeError) as error:
                raise UnreachableError(f"{self.name} does not say where its workers are recorded") from error
        address = legs.address(await self._get(self._record))
        if address is None:
            raise UnreachableError(f"{self.name} has no record of a worker at {self._record}: does it run kvplan?")
        return address

    async def get(self, path: str, headers: Mapping[str, str]) -> Any:
        """Return the JSON of a path. Raises RoutingError."""
        return await self._get(self.url + path, headers)

    async def healthy(self) -> bool:
        """Whether the engine reports that it is healthy, within the time allowed for a connection."""
        soon = aiohttp.ClientTimeout(total=self._session.timeout.sock_connect)
        try:
            async with self._response("GET", self.url + HEALTH, timeout=soon):
                return True
        except RoutingError:
            return False

    async def whole(self, path: str, body: Body, headers: Mapping[str, str]) -> Body:
        """Return an answer that comes in one piece. Raises RoutingError."""
        async with self.answering(path, body, headers) as response:
            said = await self.read(response)
        if not isinstance(said, dict):
            raise UnreachableError(f"{self.name} answers {path} with no object")
        return said

    @asynccontextmanager
    async def answering(
        self, path: str, body: Body, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield an answer as it comes. Leaving early ends the connection and the request. Raises RoutingError."""
        async with self._response("POST", self.url + path, json=body, headers=headers) as response:
            yield response

    async def read(self, response: aiohttp.ClientResponse) -> Any:
        """Return the JSON of an answer. Raises RoutingError."""
        with naming(self.name):
            data = await response.read()
        try:
            return json.loads(data)
        except ValueError as error:
            raise UnreachableError(f"{self.name} answers with no JSON: {error}") from error

    async def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Yield the server-sent events of an answer, each with the empty line that ends it. Raises RoutingError."""
        rest = b""
        while data := await self._next_data(response):
            *whole, rest = (rest + data).split(EVENT_END)
            for event in whole:
                yield event + EVENT_END
        if rest:
            yield rest

    async def _next_data(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes of an answer, empty at its end."""
        with naming(self.name):
            return await response.content.readany()

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> Any:
        async with self._response("GET", url, headers=headers) as response:
            return await self.read(response)

    @asynccontextmanager
    async def _response(self, method: str, url: str, **given: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        with naming(self.name):
            response = await self._session.request(method, url, **given)
        async with response:
            if response.status != HTTPStatus.OK:
                raise await self._refused(response)
            yield response

    async def _refused(self, response: aiohttp.ClientResponse) -> EngineAnswerError:
        with naming(self.name):
            data = await response.content.read(LONGEST_ERROR)
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        text = data.decode(errors="replace")[:SHOWN]
        return EngineAnswerError(response.status, f"{self.name} answers {response.status}: {text}", body)


def owner_of(models: Any) -> str:
    """Return the owner of the first model that `/v1/models` lists; empty if it lists none."""
    try:
        return str(models["data"][0]["owned_by"])
    except (IndexError, KeyError, TypeError):
        return ""


@contextmanager
def naming(engine: str) -> Iterator[None]:
    """Name the engine in errors of aiohttp. Raises SilentError, UnreachableError."""
    try:
        yield
    except TimeoutError as error:
        raise SilentError(f"{engine} did not answer in time") from error
    except aiohttp.ClientError as error:
        raise UnreachableError(f"{engine} cannot be reached: {error or type(error).__name__}") from error
