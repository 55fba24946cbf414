"""Forks of a launcher: each has its own process group, which ends with the launcher."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG = 1


def ending_together(work: Callable[[], None], pid: str) -> None:
    """Do `work` in a child; kill the whole process group when the child, this process or its parent ends."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    die_with_parent(parent, signal.SIGTERM)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        return
    Path(f"{pid}.new").write_text(str(os.getpid()))
    os.rename(f"{pid}.new", pid)
    os.waitpid(child, 0)
    os.killpg(0, signal.SIGKILL)


def fork(log: str, work: Callable[[], None]) -> None:
    """Do `work` in a child with a process group of its own, which ends with this process; it prints into `log`."""
    parent = os.getpid()
    if os.fork():
        return
    code = 1
    try:
        # No session of its own: Linux shares cores between sessions first (sched_autogroup). With more work in two of
        # them than cores, a thread was seen to wait seconds for its turn; in one session, 25 ms.
        os.setpgid(0, 0)
        die_with_parent(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        redirect(log)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it went before the call
        os._exit(1)


def redirect(log: str) -> None:
    """Nothing to read; stdout and stderr to the file `log`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
