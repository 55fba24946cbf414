"""Callbacks of transfers: who waits for one is told when it has ended, in the thread in which it did."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import EXITS
from kvplan.runtime.ops import logs


def call_back(ended: deque[Transfer]) -> None:
    """Tell those who wait for transfers that ended in this thread. They may ask for anything, of any worker: no lock.

    All are told, once, whatever some raise. What would end a program is raised when they were, anything else logged.
    A callback that asks a worker is called back for what ends in that, not for what is told after it: it may have a
    lock that others of its engine take. Where a signal ends this, the next call in this thread goes on.
    """
    exits = list[BaseException]()
    claimed = _claim(ended) if ended else []
    with _HERE.turn:
        for transfer in claimed:
            while transfer.callbacks:
                _tell_next(transfer, exits)
            with suppress(ValueError):
                ended.remove(transfer)
            _HERE.claimed.discard(transfer)
    if exits:
        raise exits[0]


class _Here(threading.local):
    """What this thread is about to tell, and a lock of its own that it has while it tells: no signal makes it wrong."""

    def __init__(self) -> None:
        self.claimed, self.turn = set[Transfer](), threading.RLock()


_HERE = _Here()


def _claim(ended: deque[Transfer]) -> list[Transfer]:
    """What ended in this thread, and no call further out is about to tell."""
    if not _HERE.turn._is_owned():  # type: ignore[attr-defined]  # not in its stub
        _HERE.claimed.clear()
    thread = threading.get_ident()
    found = [one for one in tuple(ended) if one.ended_in == thread and one not in _HERE.claimed]
    _HERE.claimed.update(found)
    return found


def _tell_next(transfer: Transfer, exits: list[BaseException]) -> None:
    try:
        # No call lies between: a signal, or another thread, comes before all of it, or once it is called.
        callbacks = transfer.callbacks[:1]
        del transfer.callbacks[:1]
        for callback in callbacks:
            callback(transfer)
    except EXITS as error:
        exits.append(error)
    except BaseException:
        logs.failure("callback failed", request=transfer.request.id)
