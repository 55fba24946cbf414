"""Drain: a worker takes nothing new any more, so that what is under way can end before it is stopped."""

from __future__ import annotations

from kvplan.runtime.clock import seconds
from kvplan.runtime.errors import BadRequestError, DrainingError


class Drain:
    """Whether a worker drains, and until when. Times are seconds of its clock; not safe from threads."""

    def __init__(self, worker: str) -> None:
        """`worker` is its name in what is refused."""
        self._worker, self._deadline, self._past = worker, float("inf"), False
        self.begun = False

    def begin(self, timeout: object, now: float) -> None:
        """Take nothing new from now on; once more only moves the deadline. Raises BadRequestError for no timeout."""
        self._deadline, self._past = now + seconds(timeout, BadRequestError), False
        self.begun = True

    def check(self) -> None:
        """Raises DrainingError once it has begun."""
        if self.begun:
            raise DrainingError(f"{self._worker} drains and takes nothing new: ask another engine")

    def past_deadline(self, now: float) -> bool:
        """Whether what is still under way has to end now: once for each deadline."""
        past = not self._past and now >= self._deadline
        self._past = self._past or past
        return past
