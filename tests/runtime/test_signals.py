"""A signal's handler that raises, as Ctrl-C and alarms do, wherever it comes in a call of a worker.

Afterwards every lock is free, what was under way ends in time, done with all its bytes or failed, and others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.signals import Handler, Signal, Timeout, free
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Transfer
from kvplan.runtime.ops import logs

TOKENS = (0, 8)
# Rounds in which a request ends. Between two of them who waits for messages does.
ROUNDS = 400


class Trial:
    """Engines by a clock of their own, and requests between them, one after the other."""

    def __init__(self, mode: str, staged: tuple[str, ...]) -> None:
        self._now, self._names, self.told = 1e6, iter(range(1 << 20)), list[Transfer]()
        clock: dict[str, Any] = {"clock": lambda: self._now, "d_clock": lambda: self._now}
        self.made: World = world(Shape(1), Shape(1), mode=mode, staged=staged, **clock)
        self.decode, self.prefill = self.made.decode[0], self.made.prefill[0]
        self.prefill._end_thread()
        assert self.good(self.request(Handler()))

    def request(self, handler: Handler) -> Transfer:
        """A request, with a callback, from its hold to its end, where the handler may come in any call of a worker."""
        request = ask(self.made, TOKENS, name=f"r{next(self._names)}")
        filled(self.made, request)
        handler.run(lambda: self.prefill.hold(request.id, request.prefill))
        self.asked = handler.run(lambda: self.decode.submit(request, 5))
        handler.run(lambda: self.asked.on_end(self.told.append))
        self.finish(handler)
        return self.asked

    def finish(self, handler: Handler) -> None:
        for _ in range(ROUNDS):
            if self.asked.ended and self.asked in self.told:
                break
            handler.run(self.decode.poll)
            handler.run(self.prefill.poll)
            self.decode.rest(1e-3)

    def end(self) -> None:
        """What was interrupted is out of time."""
        self._now += 6.0
        self.decode.poll()
        self.prefill.poll()
        self.finish(Handler())

    def good(self, transfer: Transfer) -> bool:
        """Whether it is done; then every byte is there."""
        if transfer.state == "done":
            check(self.made, 0, transfer.request)
        return transfer.state == "done"

    def close(self) -> None:
        self.made.close()


# A generator that a signal ends as it is closed says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("mode", "staged"), [("pull", ()), ("push", ()), ("pull", ("unpack",))])
@pytest.mark.parametrize(("error", "first"), [(Signal, 0), (Timeout, 5)])
def test_wherever_a_signal_comes_the_worker_goes_on(
    mode: str, staged: tuple[str, ...], error: type[BaseException], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The handlers of `logging` have locks of their own, which a signal leaves taken.
    monkeypatch.setattr(logs.LOG, "handle", lambda _: None)
    trial = Trial(mode, staged)
    counted = Handler()
    assert trial.good(trial.request(counted))
    for number in range(first, counted.count, STEP):
        trial = interrupted(trial, number, error, lambda: Trial(mode, staged))
    trial.close()


# Of the thousands of places each is met by one of the cases; a prime meets all calls of a poll in its rounds.
STEP = 53


def interrupted(trial: Trial, number: int, error: type[BaseException], anew: Callable[[], Trial]) -> Trial:
    """A handler comes at the place of this number. The engines for the next one: the same, if nothing is kept there."""
    before = trial.asked
    with suppress(error):
        trial.request(Handler(number, error))
    assert free(trial.decode._lock)
    assert free(trial.prefill._lock)
    if trial.asked is not before:
        trial.end()
        assert trial.asked.ended, number
        trial.good(trial.asked)
    for _ in range(3):
        trial.end()
    if trial.decode.quarantined() or trial.decode.running():
        trial.close()
        return anew()
    assert trial.good(trial.request(Handler())), number
    return trial
