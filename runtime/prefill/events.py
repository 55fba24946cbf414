"""Compute events: objects that this worker polls to learn when a request, or a chunk of one, is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kvplan.plan.block_tables import Tables, whole
from kvplan.plan.errors import BadRequestError
from kvplan.plan.request import checked_range
from kvplan.runtime.control.messages import LONGEST_NOTE
from kvplan.runtime.errors import WithdrawnError, cause_text
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.transfer.chunks import Chunk


class ComputeEvent(Protocol):
    """An event, such as a CUDA event: `query` says whether all work before it has completed."""

    def query(self) -> bool: ...


@dataclass(slots=True, eq=False)
class WatchedRequest:
    """The events of a request's chunks in order, one for a whole request. The first `passed` have completed.

    None stands for a chunk that is computed already.
    """

    request: str
    events: list[ComputeEvent | None] = field(default_factory=list)
    passed: int = 0

    @property
    def pending(self) -> bool:
        return self.passed < len(self.events)

    def completed(self) -> int | BaseException:
        """Return how many events have completed, in order, or what one raised.

        Events are the caller's code: do not call this within a turn. Chunks that are offered meanwhile count next time.
        """
        count = self.passed
        try:
            while count < len(self.events) and ((event := self.events[count]) is None or event.query()):
                count += 1
        except BaseException as error:  # An event may follow a task that was cancelled.
            return error
        return count


# Requests, and how many of their events have completed, or what one raised.
Completed = list[tuple[WatchedRequest, int | BaseException]]


class WatchedRequests:
    """The requests whose events are polled, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: dict[str, WatchedRequest] = {}

    def add(self, request: str, event: ComputeEvent | None) -> None:
        """Watch one more event of a request."""
        self._all.setdefault(request, WatchedRequest(request)).events.append(event)

    def end(self, request: str) -> None:
        self._all.pop(request, None)

    def pending(self) -> list[WatchedRequest]:
        """Return the requests with events that have not completed."""
        return [one for one in self._all.values() if one.pending]

    def tell(self, core: PrefillCore, completed: Completed) -> None:
        """Report completed events of requests to a core. A request whose event failed is withdrawn."""
        for one, what in completed:
            # A request that ended meanwhile may have been held again, with other events.
            if self._all.get(one.request) is not one:
                continue
            if not isinstance(what, BaseException):
                one.passed = what
                core.computed(one.request, what)
                continue
            text = f"its event failed: {cause_text(what)}"
            logs.event(logs.WARNING, "request withdrawn", request=one.request, error=text)
            core.withdraw(one.request, WithdrawnError(text))


def check_event(request: str, after: object) -> None:
    """Check that `after` is None or an event with a `query`. Raises BadRequestError."""
    if after is not None and not callable(getattr(after, "query", None)):
        raise BadRequestError(f"request {request}: an event has a query(), as CUDA events have; given is {after!r}")


def checked_note(request: str, note: object) -> bytes:
    """Return the note. Raises BadRequestError if it is not bytes, or is longer than LONGEST_NOTE."""
    if not isinstance(note, bytes):
        raise BadRequestError(f"request {request}: a note is bytes, not {type(note).__name__}")
    if len(note) > LONGEST_NOTE:
        raise BadRequestError(f"request {request}: a note has {len(note)} bytes, at most {LONGEST_NOTE}")
    return note


def interval(tokens: object, what: str) -> tuple[int, int]:
    """Return `tokens` as two ints, first <= end. Raises BadRequestError with a text that begins with `what`."""
    try:
        return checked_range(tokens)
    except BadRequestError as error:
        raise BadRequestError(f"{what}: {error}") from error


def chunk(request: str, tokens: object, tables: Tables, layers: Iterable[int] | None, last: object) -> Chunk:
    """Return the chunk that a caller offers. Raises BadRequestError if its tokens or layers are invalid."""
    what = f"request {request}"
    numbers = None if layers is None else frozenset(whole(layer, what) for layer in layers)
    return Chunk(interval(tokens, what), bool(last), numbers, tables)
