"""Owner: one thread at a time touches a worker's sockets, transport and tables.

With `start`, that is a thread of the worker's own until `stop`: a call from another thread is queued, and the caller
waits for its answer. Without it, it is whoever calls, for as long as the call lasts. A signal's handler cannot
interrupt a worker's own thread, since Python runs handlers in the main thread.

The caller's code (events, callbacks, log handlers) never runs within somebody's turn, so it may call any worker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kvplan.runtime import process
from kvplan.runtime.errors import HandleError
from kvplan.runtime.ops import logs
from kvplan.runtime.wakeup import LONGEST, MOVING, SHORTEST, Bell, Look, WakeupDescriptor, rest

T = TypeVar("T")
P = ParamSpec("P")
# Seconds after which a step that has not ended is taken for one that never will.
STUCK = 30.0
# Seconds that a step has to end in when its thread is told to.
STOP = 10.0
# Seconds that a call which needs no answer gives the thread that carries it out.
HAND_OVER = 2e-3
# Seconds after which a caller that waits looks again whether anybody is at work.
LOOK = 0.01


def _nothing() -> None:
    """What a worker need not have."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What a worker has its owner do.

    `step` is a round of work, and says whether bytes move. `look` says which descriptors to wait for until the next
    one, and for how many seconds at most. `settle`, at the end of each turn, says what is to be said to peers. `after`
    it comes what belongs to the caller, which may call any worker. `help` copies what a stage is behind with, after a
    step if it is `behind`. `ending`, when the program ends, ends the threads that the worker began.
    """

    step: Callable[[], bool]
    look: Look
    settle: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing
    behind: Callable[[], bool] = bool
    help: Callable[[], None] = _nothing
    ending: Callable[[], None] = _nothing


class Owner:
    """Who does the `duties` of the worker called `name`.

    It is `over` when the program ends and in a forked child: then nothing is done, and nothing has to be closed.
    """

    def __init__(self, name: str, duties: Duties) -> None:
        self.name, self._duties = name, duties
        # The ident of the thread whose turn it is, 0 for none.
        self._turn, self._holder = threading.Lock(), 0
        self._commands = deque[tuple[Future[Any], Callable[[], Any]]]()
        # Made when somebody first rests: a worker that is refused leaves no descriptors.
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        # Whether the thread runs the caller's code: then whoever waits for it may do its work.
        self._away = False
        self._descriptor: WakeupDescriptor | None = None
        self._stopping, self._began = False, time.monotonic()
        self.over = False
        process.add(self)

    def call(self, command: Callable[[], T]) -> T:
        """What a command returns that the owner carries out. Raises what it raises, HandleError.

        It is a HandleError within one of the worker's own steps, when it is `over`, and if the owner hangs.
        """
        self._check_here()
        if self._hands_over():
            future = self._queued(command)
            self._await(future)
            return future.result()
        try:
            return self._carry_out(command)
        finally:
            if (descriptor := self._descriptor) is not None:
                # What was said may have taken the hint that something came.
                descriptor.stir()
            self._duties.after()

    def within(self, command: Callable[[], T]) -> T:
        """`call`, also from within one of the worker's own steps."""
        return command() if self._holder == threading.get_ident() else self.call(command)

    def ask(self, command: Callable[[], object]) -> None:
        """Have the owner carry out a command which raises nothing, and do not wait for it for long.

        A thread of the worker's own is given a moment: as the caller waits, that thread has Python's lock.
        """
        self._check_here()
        if not self._hands_over():
            self.call(command)
            return
        future = self._queued(command)
        _done(future, HAND_OVER)
        if not self.threaded:
            self._await(future)

    def run_once(self) -> bool:
        """Carry out one step. Whether bytes move."""
        if self._hands_over():
            return self.call(self._duties.step)
        self._check_here()
        try:
            return self._carry_out(self._duties.step)
        finally:
            self._duties.after()
            self._help()
            if (descriptor := self._descriptor) is not None:
                descriptor.polled()

    def wait(self, future: Future[Any], over: Callable[[], bool]) -> None:
        """Until something is `over`, and its future is done. Without a thread, the caller carries out the steps."""
        while not (future.done() or (over() and not self._hands_over())):
            if self._hands_over():
                self._check_alive()
                _done(future, LOOK)
            else:
                self.run_once()
                if not over():
                    self.rest(LONGEST)

    def pause(self, seconds: float, over: Callable[[], bool]) -> None:
        """Until something is `over`, at most `seconds`. Without a thread, the caller carries out the steps."""
        until = time.monotonic() + seconds
        while not over() and (left := until - time.monotonic()) > 0:
            if self._hands_over():
                self._check_alive()
                time.sleep(min(left, LONGEST))
            else:
                self.run_once()
                if not over():
                    self.rest(min(left, LOOK))

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to do, and no longer than `seconds`."""
        wakers, most, bell = self._seen()
        rest([*wakers, bell.fileno()], min(seconds, most))
        bell.drain()

    def wake(self) -> None:
        """There may be something to do now. Any thread may say so."""
        if (bell := self._bell) is not None:
            bell.ring()
        if (descriptor := self._descriptor) is not None:
            descriptor.stir()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Within a step: the caller's code, such as an event, runs outside of the turn."""
        self._holder, own = 0, threading.current_thread() is self._thread
        self._turn.release()
        self._away = self._away or own
        try:
            yield
        finally:
            self._turn.acquire()
            self._holder = threading.get_ident()
            self._away = False

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to do, until `stop`. Raises HandleError."""
        self._check_here()
        if self.threaded:
            raise HandleError(f"{self.name} has a thread of its own: use fileno() with a worker that was not started")
        descriptor = self._carry_out(self._described)
        if self._stopping:
            self._end_descriptor()
            raise HandleError(f"{self.name} is closed: make a new one")
        return descriptor.fileno()

    def start(self, enter: Callable[[], object] = lambda: None) -> None:
        """Have a thread of the worker's own be the owner, until `stop`. It calls `enter` first. Raises HandleError."""
        self._check_here()
        name = f"kvplan-{self.name.replace(' worker ', '-')}"
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(enter,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait until it has ended; from within it, only tell it to. Raises HandleError if it hangs.

        Afterwards each caller carries out its own calls.
        """
        self._stopping = True
        self._end_descriptor()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self.wake()
            thread.join(STOP)
            if thread.is_alive():
                # What it is in may still use the memory and the transport: they are left to it.
                raise HandleError(f"{thread.name} is stuck in a step for more than {STOP:g} s: end the process")
        self._serve()

    def close(self) -> None:
        """After `stop`, and the last call: nobody is woken any more."""
        if self._bell is not None:
            self._bell.close()

    def end(self) -> None:
        """The program ends: no thread, not even a caller's, is to be in a call of C++ from here when it does."""
        with suppress(HandleError):
            self.stop()
        self.over = True
        # Never given back.
        if self._turn.acquire(timeout=STOP):
            self._duties.ending()

    def forget(self) -> None:
        """This is a forked child: the worker is its parent's, and nothing of it is touched here."""
        self.over = self._stopping = True
        self._descriptor = None

    @property
    def threaded(self) -> bool:
        """Whether a thread of its own is, or was to be, the owner."""
        return self._thread is not None and not self._stopping

    @property
    def driven(self) -> bool:
        """Whether somebody carries out steps without being asked: its thread, or a loop that has its descriptor."""
        return self.threaded or self._descriptor is not None

    @property
    def dead(self) -> bool:
        """Whether its thread has ended, and nobody told it to."""
        return self.threaded and self._thread is not None and not self._thread.is_alive()

    @property
    def fault(self) -> str:
        """What is wrong with its thread, in words that follow a worker's name; empty if nothing is."""
        if self.dead:
            return "is polled by a thread that has ended"
        seconds = time.monotonic() - self._began
        stuck = self.threaded and seconds > STUCK
        return f"is polled by a thread that has been stuck for {seconds:.0f} s" if stuck else ""

    def _hands_over(self) -> bool:
        """Whether what this thread asks for is another thread's to do."""
        return self.threaded and threading.current_thread() is not self._thread

    def _check_here(self) -> None:
        if self.over:
            raise HandleError(f"{self.name} does nothing any more: the program ends, or is a fork of the one it is of")

    def _check_alive(self) -> None:
        self._check_here()
        if self.dead:
            raise HandleError(f"the thread that polls {self.name} has ended: close it, make a new one")

    def _carry_out(self, command: Callable[[], T]) -> T:
        """Carry out a command in a turn of this thread's."""
        if self._holder == threading.get_ident():
            raise HandleError(f"{self.name} was called from within one of its own steps: call it from a callback")
        with logs.later():
            if not self._turn.acquire(timeout=STUCK):
                raise HandleError(f"{self.name} was not free for {STUCK:g} s: a step of it hangs in another thread")
            try:
                self._holder = threading.get_ident()
                return command()
            finally:
                try:
                    self._duties.settle()
                finally:
                    self._holder = 0
                    self._turn.release()

    def _help(self) -> None:
        if self._duties.behind():
            self._carry_out(self._duties.help)

    def _queued(self, command: Callable[[], T]) -> Future[T]:
        future = Future[T]()
        self._commands.append((future, command))
        self.wake()
        return future

    def _await(self, future: Future[Any]) -> None:
        """Until a command of ours is carried out: by the thread, or here if the thread has stopped or is away.

        Raises HandleError if that takes too long.
        """
        began = time.monotonic()
        while not future.done():
            self._check_alive()
            _done(future, LOOK)
            if self._away or not self.threaded:
                self._serve()
            if time.monotonic() - began > STUCK and future.cancel():
                raise HandleError(f"{self.name} did not carry a call out for {STUCK:g} s: a step hangs")

    def _serve(self) -> None:
        """Carry out what is queued."""
        served = False
        while True:
            try:
                future, command = self._commands.popleft()
            except IndexError:
                break
            if future.set_running_or_notify_cancel():
                served = True
                self._answer(future, command)
        if served:
            self._told()

    def _answer(self, future: Future[Any], command: Callable[[], Any]) -> None:
        try:
            result = self._carry_out(command)
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception) and threading.current_thread() is not self._thread:
                raise
        else:
            future.set_result(result)

    def _told(self) -> None:
        """What is the caller's, run for somebody else: it ends nobody's thread."""
        self._away = threading.current_thread() is self._thread
        try:
            self._duties.after()
        except BaseException:
            logs.failure("callback failed", worker=self.name)
        finally:
            self._away = False

    def _run(self, enter: Callable[[], object]) -> None:
        enter()
        pause = SHORTEST
        while not self._stopping:
            pause = self._round(pause)

    def _round(self, pause: float) -> float:
        """A step and a pause; the next pause. A failure ends neither the thread nor the answers to other peers.

        Nor does what ends programs, a SystemExit of somebody's callback: this is not their thread.
        """
        self._began = time.monotonic()
        try:
            self._serve()
            moving = self._carry_out(self._duties.step)
            self._told()
            self._help()
            pause = SHORTEST if moving else min(2 * pause, LONGEST)
            self._pause(pause)
            return pause
        except BaseException:
            if not self._stopping:
                logs.failure("poll failed", thread=threading.current_thread().name)
            time.sleep(LONGEST)
            return LONGEST

    def _pause(self, pause: float) -> None:
        """Wait until there may be something to do: for `pause` seconds at most while bytes move."""
        wakers, most, bell = self._seen()
        if not self._commands and not self._stopping:
            rest([*wakers, bell.fileno()], min(pause, most) if most <= MOVING else most)
        bell.drain()

    def _end_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def _described(self) -> WakeupDescriptor:
        if self._descriptor is None:
            self._descriptor = WakeupDescriptor(f"kvplan-wakeup-{self.name}", self._looked)
        return self._descriptor

    def _seen(self) -> tuple[list[int], float, Bell]:
        """What to wait for until the next step, and the bell that ends a rest."""
        with self._turn:
            self._bell = self._bell or Bell()
            return (*self._duties.look(), self._bell)

    def _looked(self) -> tuple[list[int], float]:
        """What to wait for, for the descriptor's thread. During somebody's turn it is asked again."""
        if not self._turn.acquire(blocking=False):
            return [], MOVING
        try:
            return self._duties.look()
        finally:
            self._turn.release()


def _done(future: Future[Any], seconds: float) -> None:
    """Wait until a future is done, and no longer than that."""
    with suppress(TimeoutError, CancelledError):
        future.exception(seconds)


class Owned(Protocol):
    """A worker with an owner."""

    @property
    def _owner(self) -> Owner: ...


W = TypeVar("W", bound=Owned)


def owned(method: Callable[Concatenate[W, P], T]) -> Callable[Concatenate[W, P], T]:
    """Have a worker's owner carry out this method, whoever calls it."""

    def carried_out(worker: W, /, *arguments: P.args, **named: P.kwargs) -> T:
        return worker._owner.call(lambda: method(worker, *arguments, **named))

    update_wrapper(carried_out, method)
    return carried_out
