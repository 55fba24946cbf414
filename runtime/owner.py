"""Owner: one thread at a time touches a worker's sockets, transport and tables.

With `start`, that is a thread of the worker's own until `stop`: a call from another thread is queued, and the caller
waits for its answer. Without it, the caller owns the worker for the length of the call. A signal's handler cannot
interrupt a worker's own thread, since Python runs handlers in the main thread.

The caller's code (events, callbacks) never runs within somebody's turn, so it may call any worker. A log handler runs
within one, and calls no worker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kvplan.runtime import process
from kvplan.runtime.errors import HandleError
from kvplan.runtime.ops import logs
from kvplan.runtime.wakeup import LONGEST, QUIET, SHORTEST, Look, Sleep

T = TypeVar("T")
# Seconds after which a step that has not ended is taken for one that never will.
STUCK = 30.0
# Seconds that a step has to end in when its thread is told to.
STOP = 10.0
# Seconds that a thread which asks for something gives the thread that carries it out.
HAND_OVER = 2e-3
# Seconds after which a caller that waits looks again whether anybody is at work.
LOOK = 0.01


def _nothing() -> None:
    """What a worker need not have."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What a worker has its owner do.

    `step` carries one out, and says whether bytes move. `look` says which descriptors to wait for until the next
    one, and for how many seconds at most. `say`, at the end of each turn, says what is to be said to peers. `after`
    it comes what belongs to the caller, which may call any worker. `ending`, when the program ends, ends the threads
    that the worker began.
    """

    step: Callable[[], bool]
    look: Look
    say: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing
    ending: Callable[[], None] = _nothing


class OwnThread:
    """The thread that a worker has of its own, once it is begun, until it is told that it is `over`.

    Its last step `began` then. While it is `away`, it runs the caller's code: who waits for it may do its work.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.over = self.away = False
        self.began = time.monotonic()

    def begin(self, name: str, run: Callable[[], None]) -> None:
        self.began = time.monotonic()
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended. Raises HandleError if it hangs."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(STOP)
        if thread.is_alive():
            # What it is in may still use the memory and the transport: they are left to it.
            raise HandleError(f"{thread.name} is stuck in a step for more than {STOP:g} s: end the process")

    @property
    def works(self) -> bool:
        """Whether it is, or was to be, the owner."""
        return self._thread is not None and not self.over

    @property
    def here(self) -> bool:
        """Whether this is it."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    @property
    def elsewhere(self) -> bool:
        """Whether what this thread wants done is that one's to do."""
        return self._thread is not None and not self.over and self._thread.ident != threading.get_ident()

    @property
    def dead(self) -> bool:
        """Whether it has ended, and nobody told it to."""
        return self.works and self._thread is not None and not self._thread.is_alive()

    def check_alive(self, name: str) -> None:
        """Raises HandleError where the thread of the worker called `name` is dead."""
        if self.dead:
            raise HandleError(f"the thread that polls {name} has ended: close it, make a new one")

    @property
    def fault(self) -> str:
        """What is wrong with it, in words that follow a worker's name; empty if nothing is."""
        if self.dead:
            return "is polled by a thread that has ended"
        seconds = time.monotonic() - self.began
        stuck = f"is polled by a thread that has been stuck for {seconds:.0f} s"
        return stuck if self.works and seconds > STUCK else ""


class Turns:
    """Whose turn it is with the worker called `name`. Each begins with what was `asked`, and ends with `say`."""

    def __init__(self, name: str, say: Callable[[], None], thread: OwnThread) -> None:
        self._name, self._say, self._thread = name, say, thread
        self.lock, self.commands = threading.Lock(), deque[Callable[[], object]]()
        # The ident of the thread whose turn it is, 0 for none.
        self._holder = 0

    @property
    def mine(self) -> bool:
        """Whether it is this thread's turn."""
        return self._holder == threading.get_ident()

    def carry_out(self, command: Callable[[], T]) -> T:
        """Carry out a command in a turn of this thread's. Raises what it raises, HandleError."""
        me = threading.get_ident()
        if self._holder == me:
            raise HandleError(f"{self._name} was called from within one of its own steps: call it from a callback")
        if not self.lock.acquire(timeout=STUCK):
            raise HandleError(f"{self._name} was not free for {STUCK:g} s: a step of it hangs in another thread")
        self._holder = me
        try:
            while self.commands:
                self.commands.popleft()()
            return command()
        finally:
            try:
                self._say()
            finally:
                self._holder = 0
                self.lock.release()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Within a turn: the caller's code, such as an event, runs outside of it."""
        self._holder, self._thread.away = 0, self._thread.away or self._thread.here
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()
            self._holder, self._thread.away = threading.get_ident(), False


class Owner:
    """The owner of the worker called `name`: it does the `duties`.

    It is `over` when the program ends and in a forked child: then nothing is done, and nothing has to be closed. Its
    `thread` may do it all. It may `sleep` between two steps.
    """

    def __init__(self, name: str, duties: Duties) -> None:
        self.name, self._duties = name, duties
        self.thread, self.over = OwnThread(), False
        self.turns = Turns(name, duties.say, self.thread)
        self.sleep = Sleep(name, self.turns.lock, duties.look)
        # The threads that will ask for more before anybody is to begin.
        self._together = set[int]()
        # Released when the thread has begun what was asked of it.
        self._begun = threading.Lock()
        self._begun.acquire()
        process.add(self)

    @property
    def driven(self) -> bool:
        """Whether somebody carries out steps without being asked: its thread, or a loop that has its descriptor."""
        return self.thread.works or self.sleep.watched

    def call(self, command: Callable[[], T]) -> T:
        """What a command returns that the owner carries out. Raises what it raises, HandleError.

        It is a HandleError within one of the worker's own steps, when it is `over`, and if the owner hangs.
        """
        self._check_here()
        if self.thread.elsewhere:
            future = Future[T]()
            self.turns.commands.append(lambda: _answer(future, command))
            self.sleep.wake()
            self._await(future)
            return future.result()
        try:
            return self.turns.carry_out(command)
        finally:
            # What was said may have taken the hint that something came.
            self.sleep.stir()
            self._duties.after()

    def ask(self, command: Callable[[], object]) -> None:
        """Have a command which raises nothing carried out in the next turn. Raises HandleError when it is `over`.

        A thread of the worker's own is given a moment for that: as the caller waits, that thread has Python's lock.
        """
        self._check_here()
        self.turns.commands.append(command)
        if self.thread.over:
            # Nobody has to come by any more.
            self.call(_nothing)
        elif threading.get_ident() not in self._together:
            self.hand_over()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What this thread asks for within is begun together, when it is left or when this thread waits."""
        me = threading.get_ident()
        if me in self._together:
            yield
            return
        self._together.add(me)
        try:
            yield
        finally:
            self._together.discard(me)
            self.hand_over()

    def run_once(self) -> bool:
        """Carry out one step. Whether bytes move."""
        if self.thread.elsewhere:
            return self.call(self._duties.step)
        self._check_here()
        try:
            return self._step(self._duties.after)
        finally:
            self.sleep.polled()

    def wait(self, future: Future[Any], over: Callable[[], bool]) -> None:
        """Until something is `over`, and its future is done. Without a thread, the caller carries out the steps."""
        self.hand_over()
        while not (future.done() or (over() and not self.thread.elsewhere)):
            self.pause(LONGEST, over, future)

    def pause(self, seconds: float, over: Callable[[], bool], future: Future[Any] | None = None) -> None:
        """A moment for something to be `over`, at most `seconds`. Without a thread, the caller carries out a step."""
        if self.thread.elsewhere:
            self._check_here()
            self.thread.check_alive(self.name)
            time.sleep(min(seconds, LONGEST)) if future is None else _done(future, LOOK)
            return
        self.run_once()
        if not over():
            self.sleep.rest(min(seconds, LOOK))

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to do, until `stop`. Raises HandleError."""
        self._check_here()
        if self.thread.works:
            raise HandleError(f"{self.name} has a thread of its own: use fileno() with a worker that was not started")
        descriptor = self.turns.carry_out(self.sleep.fileno)
        if self.thread.over:
            self.sleep.unwatch()
            raise HandleError(f"{self.name} is closed: make a new one")
        return descriptor

    def start(self, enter: Callable[[], object] = _nothing) -> None:
        """Have a thread of the worker's own be the owner, until `stop`. It calls `enter` first. Raises HandleError."""
        self._check_here()

        def run() -> None:
            enter()
            pause = SHORTEST
            while not self.thread.over:
                pause = self._step_and_pause(pause)

        self.thread.begin(f"kvplan-{self.name.replace(' worker ', '-')}", run)

    def stop(self) -> None:
        """End the thread, and wait until it has ended; from within it, only tell it to. Raises HandleError if it hangs.

        Afterwards each caller carries out its own calls.
        """
        self.thread.over = True
        self.sleep.unwatch()
        self.sleep.wake()
        self.thread.join()
        self._serve()

    def end(self) -> None:
        """The program ends: no thread, not even a caller's, is to be in a call of C++ from here when it does."""
        with suppress(HandleError):
            self.stop()
        self.over = True
        # Never given back.
        if self.turns.lock.acquire(timeout=STOP):
            self._duties.ending()

    def forget(self) -> None:
        """This is a forked child: the worker is its parent's, and nothing of it is touched here."""
        self.over = self.thread.over = True
        self.sleep.forget()

    def _check_here(self) -> None:
        if self.over:
            raise HandleError(f"{self.name} does nothing any more: the program ends, or is a fork of the one it is of")

    def hand_over(self) -> None:
        """Let the owner begin the requests."""
        if not self.turns.commands:
            return
        elsewhere = self.thread.elsewhere
        # Requests from before.
        _ = elsewhere and self._begun.acquire(blocking=False)
        self.sleep.wake()
        _ = elsewhere and self._begun.acquire(timeout=HAND_OVER)

    def _step(self, after: Callable[[], None]) -> bool:
        """Carry out one step, and what comes after it. Whether bytes move."""
        self.sleep.begin()
        try:
            return self.turns.carry_out(self._duties.step)
        finally:
            after()

    def _await(self, future: Future[Any]) -> None:
        """Until a command of ours is carried out: by the thread, or here if the thread has stopped or is away.

        Raises HandleError if that takes too long.
        """
        began = time.monotonic()
        while not future.done():
            self._check_here()
            self.thread.check_alive(self.name)
            _done(future, LOOK)
            if self.thread.away or not self.thread.works:
                self._serve()
            if time.monotonic() - began > STUCK and future.cancel():
                raise HandleError(f"{self.name} did not carry a call out for {STUCK:g} s: a step hangs")

    def _serve(self) -> None:
        """Carry out what other threads wait for."""
        if self.turns.commands:
            self.turns.carry_out(_nothing)
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        """What is the caller's, run for somebody else: it ends nobody's thread."""
        if self._begun.locked():
            self._begun.release()
        self.thread.away = self.thread.here
        try:
            self._duties.after()
        except BaseException:
            logs.failure("callback failed", worker=self.name)
        finally:
            self.thread.away = False

    def _step_and_pause(self, pause: float) -> float:
        """A step and a pause; the next pause. A failure ends neither the thread nor the answers to other peers.

        Nor does what ends programs, a SystemExit of somebody's callback: this is not their thread.
        """
        self.thread.began = time.monotonic()
        try:
            moving = self._step(self._run_callbacks)
            pause = SHORTEST if moving else min(2 * pause, LONGEST)
            self.sleep.rest(pause if moving else QUIET)
            return pause
        except BaseException:
            if not self.thread.over:
                logs.failure("poll failed", thread=threading.current_thread().name)
            time.sleep(LONGEST)
            return LONGEST


def _answer(future: Future[T], command: Callable[[], T]) -> None:
    """Carry out a command that somebody waits for, unless nobody does any more. What ends programs is raised, too."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = command()
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise
    else:
        future.set_result(result)


def _done(future: Future[Any], seconds: float) -> None:
    """Wait until a future is done, and no longer than that."""
    with suppress(TimeoutError, CancelledError):
        future.exception(seconds)
