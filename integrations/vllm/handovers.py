"""Hand-overs: requests that run here, and that another engine will continue.

A router calls each request by a `transfer_id`. To move one, it names it in `hand_over` of any other request to the
same engine: the request then ends with its next token, as if it had reached its length, and its caches are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvplan.integrations.vllm.metadata import transfer_id
from kvplan.runtime.ops import logs

# The most requests that one message may hand over.
MOST = 4096


class RunningRequest(Protocol):
    """The fields of vLLM's request that are read and changed."""

    request_id: str
    max_tokens: int

    @property
    def output_token_ids(self) -> Sequence[int]:
        """The generated tokens."""


@dataclass(slots=True)
class HandOvers:
    """The running requests by their router's names, and for those that end soon the length that they asked for."""

    _running: dict[str, RunningRequest] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)

    def arrived(self, request: RunningRequest, params: Mapping[str, object], keeps: bool) -> None:
        """Remember a new request's name, and end the requests that it hands over, if this engine `keeps` caches.

        A request that is only prefilled here has its next engine anyway. If two have one name, the later one keeps it.
        """
        if (name := transfer_id(params)) and not params.get("do_remote_decode"):
            self._running[name] = request
        for other in _handed_over(params):
            if not keeps:
                logs.event(logs.WARNING, "hand-over refused", request=other, why="bidirectional_kv_xfer is not set")
            elif other not in self._running:
                logs.event(logs.INFO, "hand-over refused", request=other, why="no request of this name runs here")
            else:
                self._end(self._running[other])

    def ended(self, request: RunningRequest, params: Mapping[str, object]) -> bool:
        """Note the end of a request. Return whether a hand-over ended it before it had all its tokens."""
        name = transfer_id(params)
        if self._running.get(name) is request:
            del self._running[name]
        return len(request.output_token_ids) < self._asked.pop(request.request_id, 0)

    def _end(self, request: RunningRequest) -> None:
        """Make a request end with its next token, after those that a step already computes."""
        self._asked.setdefault(request.request_id, request.max_tokens)
        computing = int(getattr(request, "num_output_placeholders", 0))
        request.max_tokens = min(request.max_tokens, len(request.output_token_ids) + computing + 1)


def _handed_over(params: Mapping[str, object]) -> list[str]:
    """Return the requests that `kv_transfer_params` hand over; none if they are no list of texts."""
    given = params.get("hand_over")
    return [one for one in given if isinstance(one, str)] if isinstance(given, list) and len(given) <= MOST else []
