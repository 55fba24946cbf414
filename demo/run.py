"""One pair of the demo: start its workers, let every decode worker fetch a request, return their reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.demo import requests as demo_asked
from kvplan.demo.processes import ProcessError, Processes, WorkerHandle
from kvplan.demo.requests import RequestShare
from kvplan.demo.worker import DemoJob, FetchReport, fetch, serve

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.runtime import Identity, Keys


NOTIFIED = 10.0


def steps(compiled: Compiled) -> int:
    """Return how often `run` calls `advance`."""
    return len(compiled.prefill.workers) + 3 * len(compiled.decode.workers)


def run(
    compiled: Compiled, plan: Path, transport: str, until: float, advance: Callable[[str], None]
) -> list[FetchReport]:
    """Move one request from every prefill worker to every decode worker, until shortly after `until` (monotonic).

    Raises ProcessError if a worker fails, dies, stays silent or holds a wrong byte (its text then names
    WrongBytesError).
    """
    from kvplan.runtime import Hub

    hub = Hub() if transport == "memory" else None
    prefill_shares, decode_shares = demo_asked.shares(compiled)
    left, who = until - time.monotonic(), engines("prefill", "decode")
    with Processes(threads=hub is not None) as workers:

        def start(name: str, work: Callable[..., None], share: RequestShare) -> WorkerHandle:
            job = DemoJob(str(plan), share, left, *who[name])
            return workers.start(f"{name} worker {share.number}", work, job, hub)

        prefill = [start("prefill", serve, share) for share in prefill_shares]
        decode = [start("decode", fetch, share) for share in decode_shares]
        outcomes = _moved(prefill, decode, until, advance)
        for member in prefill:
            _complete(member, member.hear(min(until, time.monotonic() + NOTIFIED)))
        return outcomes


def _moved(
    prefill: list[WorkerHandle], decode: list[WorkerHandle], until: float, advance: Callable[[str], None]
) -> list[FetchReport]:
    """Let the workers meet, and every decode worker fetch and check, then fetch again, all at once."""
    addresses = [_hear(member, until, advance, "filled") for member in prefill]
    _tell(prefill, addresses)
    for member in decode:
        _hear(member, until, advance, "ready")
    _tell(decode, addresses)
    for member in decode:
        _hear(member, until, advance, "checked")
    _tell(decode, "again, all at once")
    return [_hear(member, until, advance, "moved") for member in decode]


def _hear(member: WorkerHandle, until: float, advance: Callable[[str], None], what: str) -> Any:
    said = member.hear(until)
    advance(f"{member.name} {what}")
    return said


def _tell(members: list[WorkerHandle], message: object) -> None:
    for member in members:
        member.tell(message)


def _complete(member: WorkerHandle, missing: set[str]) -> None:
    """Check that a prefill worker learned that its readers are done, if the plan has it notified."""
    if missing:
        raise ProcessError(f"{member.name} was not told that these requests are done: {', '.join(sorted(missing))}")


def engines(*names: str) -> dict[str, tuple[Identity, Keys]]:
    """Return the identity of each engine in this run, and its keys, which admit only the others."""
    import zmq

    from kvplan.runtime import Identity, Keys

    pairs = {name: zmq.curve_keypair() for name in names}
    public = {public for public, _ in pairs.values()}
    return {name: (Identity(name), Keys(*pair, frozenset(public - {pair[0]}))) for name, pair in pairs.items()}
