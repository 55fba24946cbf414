"""HTTP as a client of an OpenAI server speaks it: JSON to a port of this machine, an answer, whole or in events."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

Body = dict[str, Any]
TIMEOUT_S = 60.0
# vLLM's toy proxy sends this header if no key is set.
AUTHORIZATION = {"Authorization": "Bearer None"}


class HttpError(Exception):
    """A server answered, and not with 200."""


def get(port: int, path: str) -> str:
    """Raises OSError, HttpError."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", path)
        return _read(connection.getresponse())


def answers(port: int, path: str) -> bool:
    """Whether a server answers a path, and not with an error."""
    try:
        get(port, path)
    except (OSError, HttpError):
        return False
    return True


def post(port: int, path: str, body: Body, headers: Mapping[str, str] = AUTHORIZATION) -> Body:
    """An answer that comes whole. Raises OSError, HttpError."""
    with closing(_asked(port, path, body, headers)) as connection:
        return dict(json.loads(_read(connection.getresponse())))


def stream(port: int, path: str, body: Body, headers: Mapping[str, str] = AUTHORIZATION) -> Iterator[Body]:
    """Server-sent events; who stops asking for them has disconnected. Raises OSError, HttpError."""
    with closing(_asked(port, path, body, headers)) as connection:
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise HttpError(_read(response))
        for line in response:
            data = line.decode().strip().removeprefix("data: ")
            if data and data != "[DONE]":
                yield json.loads(data)


def leave(port: int, path: str, body: Body, seconds: float = 0.0) -> None:
    """Ask, and leave after `seconds` or before the answer."""
    connection = _asked(port, path, body, AUTHORIZATION)
    time.sleep(seconds)
    connection.close()


def _asked(port: int, path: str, body: Body, headers: Mapping[str, str]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    return connection


def _read(response: http.client.HTTPResponse) -> str:
    text = response.read().decode()
    if response.status != http.client.OK:
        raise HttpError(f"{response.status}: {text[:300]}")
    return text
