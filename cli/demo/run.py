"""One pair of the demo: start its workers, let every decode worker fetch a request, print what they report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvplan.cli.demo import requests as demo_asked
from kvplan.cli.demo.processes import ProcessError, Processes, WorkerHandle
from kvplan.cli.demo.requests import RequestShare
from kvplan.cli.demo.worker import DemoJob, FetchReport, fetch, serve
from kvplan.cli.terminal import say, table, width
from kvplan.compiler.emit.header import summary, title
from kvplan.plan.types import CONTEXT

if TYPE_CHECKING:
    from kvplan.cli.demo.requests import Ranges
    from kvplan.compiler.api import Compiled
    from kvplan.runtime import Identity, Keys


NOTIFIED = 10.0
# What the demo says first; nobody has read a word of kvplan then.
INTRODUCTION = """\
Prefill and decode keep the same KV caches in different layouts. For each pair,
kvplan compiles a plan, proves it, runs it between processes, checks every byte."""
HEAD = ("decode", "from", "bytes", "descriptors", "connect", "first", "again", "bytes checked")
TIMES = (
    "A row is a decode worker: how many prefill workers it reads from, what moved, and milliseconds to connect, for "
    "the first transfer, and for a second one."
)


def show_plan(path: Path, made: Compiled) -> None:
    """What the plan says about itself, and where it is."""
    blocks = [[f"== {title(made.plan)}"], *summary(made.plan, made.facts, width())]
    say("\n\n".join("\n".join(lines) for lines in blocks))
    click.echo(f"\nThe plan, {len(made.text.splitlines())} lines: {path}")


def show_outcomes(outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> None:
    """One line per decode worker, and one sentence for all of them."""
    rows = [
        (one.worker, one.sources, one.content, one.descriptors, *map(_ms, (one.connect, one.first, one.again)),
         one.compared)
        for one in outcomes
    ]  # fmt: skip
    say("\n".join([*table(HEAD, rows), TIMES, "", sentence(outcomes, asked, transport), ""]))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def sentence(outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> str:
    """What moved and how fast, all decode workers at once."""
    content = sum(one.content for one in outcomes)
    ends = [one.began + one.again for one in outcomes]
    seconds = max(ends) - min(one.began for one in outcomes)
    return (
        f"{said(asked)}: {content:,} bytes over {transport} in {1000 * seconds:.1f} ms "
        f"({rate(content, seconds)}), all workers at once. Every byte on every decode worker is right."
    )


def said(asked: Ranges) -> str:
    """The ranges of a request in words: `Tokens [24, 1000)`, and those of other lengths by name."""
    own = (f", {name} [{first}, {end})" for name, (first, end) in asked.items() if name != CONTEXT)
    first, end = asked[CONTEXT]
    return "".join((f"Tokens [{first}, {end})", *own))


def rate(moved: int, seconds: float) -> str:
    """Bytes per second in words."""
    return f"{moved / max(seconds, 1e-9) / 1e9:.2f} GB/s"


def steps(compiled: Compiled) -> int:
    """How often `run` calls `advance`."""
    return len(compiled.prefill.workers) + 3 * len(compiled.decode.workers)


def run(
    compiled: Compiled, plan: Path, transport: str, until: float, advance: Callable[[str], None]
) -> list[FetchReport]:
    """Move one request from every prefill worker to every decode worker; time.monotonic() never passes `until` by much.

    Raises ProcessError, WrongBytesError among its texts, when a worker fails, dies, stays silent or holds a wrong byte.
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
    """Every prefill worker that the plan has readers tell must know that all of them are done."""
    if missing:
        raise ProcessError(f"{member.name} was not told that these requests are done: {', '.join(sorted(missing))}")


def engines(*names: str) -> dict[str, tuple[Identity, Keys]]:
    """Who each engine is in this run, and its keys, which let in the others only."""
    import zmq

    from kvplan.runtime import Identity, Keys

    pairs = {name: zmq.curve_keypair() for name in names}
    public = {public for public, _ in pairs.values()}
    return {name: (Identity(name), Keys(*pair, frozenset(public - {pair[0]}))) for name, pair in pairs.items()}
