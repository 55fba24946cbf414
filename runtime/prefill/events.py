"""Compute events: what is asked until it says that a request, or a chunk of one, is computed."""

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
    """The events of a request's chunks, or the one of a whole request, in order. The first `passed` have completed.

    None stands for a chunk that waits for nothing.
    """

    request: str
    events: list[ComputeEvent | None] = field(default_factory=list)
    passed: int = 0

    @property
    def pending(self) -> bool:
        return self.passed < len(self.events)

    def completed(self) -> int | BaseException:
        """How many have completed, or what one raised. Later ones count when the earlier ones have.

        Events are the caller's code: not within a turn. Chunks that are offered meanwhile count next time.
        """
        count = self.passed
        try:
            while count < len(self.events) and _past(self.events[count]):
                count += 1
        except BaseException as error:  # An event may follow a task that was cancelled.
            return error
        return count


# Requests, and how many of their events have completed, or how one failed.
Completed = list[tuple[WatchedRequest, int | BaseException]]


def ask_events(watched: Iterable[WatchedRequest]) -> Completed:
    """Ask the events of these requests."""
    return [(one, one.completed()) for one in watched]


class WatchedRequests:
    """The requests whose events are to be asked, in the order in which that began."""

    def __init__(self) -> None:
        self._all: dict[str, WatchedRequest] = {}

    def add(self, request: str, event: ComputeEvent | None) -> None:
        """Watch one event more of a request."""
        self._all.setdefault(request, WatchedRequest(request)).events.append(event)

    def end(self, request: str) -> None:
        self._all.pop(request, None)

    def pending(self) -> list[WatchedRequest]:
        """The requests whose event has not completed."""
        return [one for one in self._all.values() if one.pending]

    def tell(self, core: PrefillCore, completed: Completed) -> None:
        """Tell a core what events have said of requests that are still there; one whose event failed is withdrawn."""
        for one, what in completed:
            # One that ended meanwhile may be held again.
            if self._all.get(one.request) is not one:
                continue
            if not isinstance(what, BaseException):
                one.passed = what
                core.computed(one.request, what)
                continue
            text = f"its event failed: {cause_text(what)}"
            logs.event(logs.WARNING, "request withdrawn", request=one.request, error=text)
            core.withdraw(one.request, WithdrawnError(text))


def _past(event: ComputeEvent | None) -> bool:
    return event is None or bool(event.query())


def check_event(request: str, after: object) -> None:
    """Raises BadRequestError where `after` cannot be asked whether it has completed."""
    if after is not None and not callable(getattr(after, "query", None)):
        raise BadRequestError(f"request {request}: an event has a query(), as CUDA events have; given is {after!r}")


def checked_note(request: str, note: object) -> bytes:
    """A note as it is sent. Raises BadRequestError if it is no bytes, or longer than LONGEST_NOTE."""
    if not isinstance(note, bytes):
        raise BadRequestError(f"request {request}: a note is bytes, not {type(note).__name__}")
    if len(note) > LONGEST_NOTE:
        raise BadRequestError(f"request {request}: a note has {len(note)} bytes, at most {LONGEST_NOTE}")
    return note


def interval(tokens: object, what: str) -> tuple[int, int]:
    """`tokens` as two ints, first <= end. Raises BadRequestError that begins with `what`."""
    try:
        return checked_range(tokens)
    except BadRequestError as error:
        raise BadRequestError(f"{what}: {error}") from error


def chunk(request: str, tokens: object, tables: Tables, layers: Iterable[int] | None, last: object) -> Chunk:
    """A chunk that a caller offers. Raises BadRequestError where its numbers are none."""
    what = f"request {request}"
    numbers = None if layers is None else frozenset(whole(layer, what) for layer in layers)
    return Chunk(interval(tokens, what), bool(last), numbers, tables)
