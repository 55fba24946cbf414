"""Owner: one thread at a time touches a worker's sockets, transport and tables.

From `start` to `stop`, the worker's own thread does so: a call from another thread is queued, and the caller waits for
its result. Without `start`, the caller owns the worker for the length of the call. A signal handler cannot interrupt a
worker's own thread, because Python runs handlers in the main thread.

The caller's code (events, callbacks) never runs inside a turn, so it may call any worker. A log handler does run inside
a turn, and must not call a worker.
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
# Seconds after which a step that has not ended counts as hanging.
STUCK = 30.0
# Seconds within which a step must end once its thread is asked to stop.
STOP = 10.0
# Seconds for which a caller yields to the worker's thread, so that it begins the caller's command.
HAND_OVER = 2e-3
# Seconds after which a waiting caller checks again that the worker's thread is at work.
LOOK = 0.01


def _nothing() -> None:
    """Do nothing: the default of optional duties."""


@dataclass(frozen=True, slots=True)
class Duties:
    """The functions of a worker that its owner calls.

    `step` carries out a step and returns whether bytes move. `look` returns the file descriptors to wait on until the
    next step, and for how many seconds at most. `say` sends messages to peers, at the end of each turn. `after` runs
    the caller's callbacks after a turn; they may call any worker. `ending` ends the worker's threads when the program
    ends.
    """

    step: Callable[[], bool]
    look: Look
    say: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing
    ending: Callable[[], None] = _nothing


class OwnThread:
    """A worker's own thread, from `begin` until `over` is set.

    `began` is the time of its last step. While it is `away`, it runs the caller's code, and a thread that waits for it
    may do its work.
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
        """Wait until the thread has ended. Raises HandleError if it hangs."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(STOP)
        if thread.is_alive():
            # The hanging step may still use the memory and the transport, so neither is released.
            raise HandleError(f"{thread.name} is stuck in a step for more than {STOP:g} s: end the process")

    @property
    def works(self) -> bool:
        """Whether the thread is the owner, even if it has died."""
        return self._thread is not None and not self.over

    @property
    def here(self) -> bool:
        """Whether the current thread is this one."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    @property
    def elsewhere(self) -> bool:
        """Whether the current thread must leave its commands to the worker's thread."""
        return self._thread is not None and not self.over and self._thread.ident != threading.get_ident()

    @property
    def dead(self) -> bool:
        """Whether the thread has ended without being asked to stop."""
        return self.works and self._thread is not None and not self._thread.is_alive()

    def check_alive(self, name: str) -> None:
        """Raises HandleError if the thread of the worker called `name` is dead."""
        if self.dead:
            raise HandleError(f"the thread that polls {name} has ended: close it, make a new one")

    @property
    def fault(self) -> str:
        """The thread's fault, in words that follow a worker's name, or an empty text."""
        if self.dead:
            return "is polled by a thread that has ended"
        seconds = time.monotonic() - self.began
        stuck = f"is polled by a thread that has been stuck for {seconds:.0f} s"
        return stuck if self.works and seconds > STUCK else ""


class Turns:
    """The turns of threads with the worker called `name`. Each begins with queued commands and ends with `say`."""

    def __init__(self, name: str, say: Callable[[], None], thread: OwnThread) -> None:
        self._name, self._say, self._thread = name, say, thread
        self.lock, self.commands = threading.Lock(), deque[Callable[[], object]]()
        # The ident of the thread that has the turn, 0 for none.
        self._holder = 0

    @property
    def mine(self) -> bool:
        """Whether the current thread has the turn."""
        return self._holder == threading.get_ident()

    def carry_out(self, command: Callable[[], T]) -> T:
        """Carry out a command in a turn of the current thread. Raises HandleError, and what the command raises."""
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
        """Leave the turn for the caller's code, such as an event, and take it again afterwards."""
        self._holder, self._thread.away = 0, self._thread.away or self._thread.here
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()
            self._holder, self._thread.away = threading.get_ident(), False


class Owner:
    """The owner of the worker called `name`, which carries out its `duties`.

    It is `over` when the program ends and in a forked child: then it does nothing, and nothing has to be closed. Its
    `thread`, once begun, carries out all turns. It may `sleep` between two steps.
    """

    def __init__(self, name: str, duties: Duties) -> None:
        self.name, self._duties = name, duties
        self.thread, self.over = OwnThread(), False
        self.turns = Turns(name, duties.say, self.thread)
        self.sleep = Sleep(name, self.turns.lock, duties.look)
        # The threads that are inside `together`: their commands are not handed over yet.
        self._together = set[int]()
        # Released when the thread has carried out queued commands.
        self._begun = threading.Lock()
        self._begun.acquire()
        process.add(self)

    @property
    def driven(self) -> bool:
        """Whether steps happen without a call: by its thread, or by an event loop that has its file descriptor."""
        return self.thread.works or self.sleep.watched

    def call(self, command: Callable[[], T]) -> T:
        """Have the owner carry out a command, and return its result. Raises what the command raises.

        Raises HandleError inside one of the worker's own steps, when the owner is `over`, and if it hangs.
        """
        self.check_here()
        if self.thread.elsewhere:
            future = Future[T]()
            self.turns.commands.append(lambda: _answer(future, command))
            self.sleep.wake()
            self._await(future)
            return future.result()
        try:
            return self.turns.carry_out(command)
        finally:
            # `say` may have consumed the edge of a socket's file descriptor, so a watching loop must look again.
            self.sleep.stir()
            self._duties.after()

    def ask(self, command: Callable[[], object]) -> None:
        """Queue a command, which must not raise, for the next turn. Raises HandleError when the owner is `over`.

        The caller then waits a moment, so that the worker's own thread gets Python's lock and begins.
        """
        self.check_here()
        self.turns.commands.append(command)
        if self.thread.over:
            # No later turn is certain to come.
            self.call(_nothing)
        elif threading.get_ident() not in self._together:
            self.hand_over()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Delay the commands that this thread asks for, so that all begin together when it leaves or waits."""
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
        """Carry out one step. Return whether bytes move."""
        if self.thread.elsewhere:
            return self.call(self._duties.step)
        self.check_here()
        try:
            return self._step(self._duties.after)
        finally:
            self.sleep.polled()

    def wait(self, future: Future[Any], over: Callable[[], bool]) -> None:
        """Wait until `over` is true and the future is done. Without a thread, the caller carries out the steps."""
        self.hand_over()
        while not (future.done() or (over() and not self.thread.elsewhere)):
            self.pause(LONGEST, over, future)

    def pause(self, seconds: float, over: Callable[[], bool], future: Future[Any] | None = None) -> None:
        """Wait a moment, at most `seconds`, for `over`. Without a thread, the caller carries out a step instead."""
        if self.thread.elsewhere:
            self.check_here()
            self.thread.check_alive(self.name)
            time.sleep(min(seconds, LONGEST)) if future is None else _wait_for(future, LOOK)
            return
        self.run_once()
        if not over():
            self.sleep.rest(min(seconds, LOOK))

    def fileno(self) -> int:
        """Return a file descriptor that is readable while there may be work, until `stop`. Raises HandleError."""
        self.check_here()
        if self.thread.works:
            raise HandleError(f"{self.name} has a thread of its own: use fileno() with a worker that was not started")
        descriptor = self.turns.carry_out(self.sleep.fileno)
        if self.thread.over:
            self.sleep.unwatch()
            raise HandleError(f"{self.name} is closed: make a new one")
        return descriptor

    def start(self, enter: Callable[[], object] = _nothing) -> None:
        """Begin the worker's own thread: it calls `enter`, then is the owner until `stop`. Raises HandleError."""
        self.check_here()

        def run() -> None:
            enter()
            while not self.thread.over:
                self._step_and_rest()

        self.thread.begin(f"kvplan-{self.name.replace(' worker ', '-')}", run)

    def stop(self) -> None:
        """End the thread and wait until it has ended. Raises HandleError if it hangs.

        The thread itself may call this, and does not wait then. Afterwards each caller carries out its own calls.
        """
        self.thread.over = True
        self.sleep.unwatch()
        self.sleep.wake()
        self.thread.join()
        self._serve()

    def end(self) -> None:
        """Stop everything before the program ends: no thread, not even a caller's, may be in a C++ call by then."""
        with suppress(HandleError):
            self.stop()
        self.over = True
        # The lock is never released, so no thread can begin another turn.
        if self.turns.lock.acquire(timeout=STOP):
            self._duties.ending()

    def forget(self) -> None:
        """Stop in a forked child: the worker belongs to the parent, and the child touches nothing of it."""
        self.over = self.thread.over = True
        self.sleep.forget()

    def check_here(self) -> None:
        """Raises HandleError when the owner is over: the program ends, or this process is a fork."""
        if self.over:
            raise HandleError(f"{self.name} does nothing any more: the program ends, or is a fork of the one it is of")

    def hand_over(self) -> None:
        """Wake the owner, and give its thread a moment to begin the queued commands."""
        if not self.turns.commands:
            return
        elsewhere = self.thread.elsewhere
        # Left from commands that were carried out before.
        _ = elsewhere and self._begun.acquire(blocking=False)
        self.sleep.wake()
        _ = elsewhere and self._begun.acquire(timeout=HAND_OVER)

    def _step(self, after: Callable[[], None]) -> bool:
        """Carry out one step, then `after`. Return whether bytes move."""
        self.sleep.begin()
        try:
            return self.turns.carry_out(self._duties.step)
        finally:
            after()

    def _await(self, future: Future[Any]) -> None:
        """Wait until the worker's thread has carried out a command. If it has stopped or is away, do so here.

        Raises HandleError if that takes too long.
        """
        began = time.monotonic()
        while not future.done():
            self.check_here()
            self.thread.check_alive(self.name)
            _wait_for(future, LOOK)
            if self.thread.away or not self.thread.works:
                self._serve()
            if time.monotonic() - began > STUCK and future.cancel():
                raise HandleError(f"{self.name} did not carry a call out for {STUCK:g} s: a step hangs")

    def _serve(self) -> None:
        """Carry out the commands that other threads wait for."""
        if self.turns.commands:
            self.turns.carry_out(_nothing)
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        """Run the caller's callbacks in another thread. An exception of theirs is logged, and does not end it."""
        if self._begun.locked():
            self._begun.release()
        self.thread.away = self.thread.here
        try:
            self._duties.after()
        except BaseException:
            logs.failure("callback failed", worker=self.name)
        finally:
            self.thread.away = False

    def _step_and_rest(self) -> None:
        """Carry out a step, and rest. A failure does not end the thread: it serves all peers.

        Nor does the SystemExit of a callback: it must not end a thread that is not the caller's.
        """
        self.thread.began = time.monotonic()
        try:
            moving = self._step(self._run_callbacks)
            self.sleep.rest(SHORTEST if moving else QUIET)
        except BaseException:
            if not self.thread.over:
                logs.failure("poll failed", thread=threading.current_thread().name)
            time.sleep(LONGEST)


def _answer(future: Future[T], command: Callable[[], T]) -> None:
    """Carry out a command for a future that is not cancelled. Exceptions that end programs are also raised here."""
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


def _wait_for(future: Future[Any], seconds: float) -> None:
    """Wait until a future is done, at most `seconds`."""
    with suppress(TimeoutError, CancelledError):
        future.exception(seconds)
