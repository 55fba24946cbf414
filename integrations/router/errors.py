"""A router's answers to errors of an engine or a client."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class RoutingError(Exception):
    """A request ends with this HTTP status, and this body in the form of OpenAI's errors."""

    def __init__(self, status: int, message: str, kind: str = "engine_error") -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "code": status}}


class BadBodyError(RoutingError):
    """A client's request that the router refuses."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, message, "invalid_request_error")


class EngineAnswerError(RoutingError):
    """An engine answered with an error: its status, and its body if it has one."""

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(status, message)
        if isinstance(body, dict):
            self.body = body


class UnreachableError(RoutingError):
    """An engine does not answer at all, or not as it should."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.BAD_GATEWAY, message, "engine_unreachable")


class SlowClientError(RoutingError):
    """A client does not send its request, or does not read its answer."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.REQUEST_TIMEOUT, message, "client_timeout")


class SilentError(RoutingError):
    """An engine was silent for longer than allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.GATEWAY_TIMEOUT, message, "engine_timeout")
