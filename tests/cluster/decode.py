"""A decode worker of the rig: it looks at every byte of a request when that ends, and at all memory when asked."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cluster import content
from tests.cluster.actor import Actor, Word, failure
from tests.cluster.setting import Setting, keys
from tests.cluster.watched import Watched

from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Blocks
from kvplan.runtime import DecodeWorker, Request
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.transfer.limits import Limits


@dataclass(slots=True)
class Job:
    """A request in progress, or ended with blocks that are not free yet. Times are the machine's monotonic ones."""

    request: str
    tokens: tuple[int, int]
    wire: Word
    start: float
    timeout: float
    transfer: Any = None
    ended: bool = False


class Decode(Actor):
    def __init__(self, setting: Setting, say: Callable[[Word], None], transport: Watched) -> None:
        super().__init__(setting, say, transport)
        self.jobs: dict[str, Job] = {}
        self.logical = setting.logical
        self.worker = DecodeWorker(
            self.plan,
            setting.number,
            self.pool(setting.logical),
            transport,
            identity=Identity(setting.name, setting.run),
            keys=keys(setting),
            limits=Limits(**setting.limits),
            clock=self.clock,
        )
        self.say(event="up", address="")

    def poll(self) -> None:
        self.worker.run_once()
        for job in [job for job in self.jobs.values() if job.ended]:
            self._free(job)

    def held(self) -> Word:
        return {"requests": sorted(self.jobs), "quarantined": sum(map(len, self._quarantined().values()))}

    def told(self, word: Word) -> None:
        """A handshake takes its time, in which requests go on."""
        if word["op"] == "connect":
            threading.Thread(target=super().told, args=(word,), daemon=True).start()
        else:
            super().told(word)

    def do_connect(self, address: str, timeout: float, mode: str = "pull") -> Word:
        peer = self.worker.connect(address, timeout, mode=mode)
        return {"peer": peer.name, "run": peer.run}

    def do_drop(self, peer: str) -> None:
        self.worker.drop(peer)

    def do_submit(
        self,
        request: str,
        tokens: tuple[int, int],
        theirs: Word | None,
        table: Word,
        timeout: float,
        peer: str | None = None,
        checksum: bool = False,
        fed: bool = False,
    ) -> None:
        """Ask for tokens of a request. `theirs` are its blocks at the prefill engine; a fed one may lack them."""
        job = Job(request, (tokens[0], tokens[1]), table, time.monotonic(), timeout)
        self.jobs[request] = job
        asked = Request(request, job.tokens, self.tables(theirs) if theirs else {}, self.tables(table))
        begin = self.worker.open if fed else self.worker.submit
        more = {"checksum": _sample()} if checksum else {}
        job.transfer = begin(asked, timeout, peer=peer, **more)
        job.transfer.on_end(lambda transfer: self._end(job, transfer))

    def do_submits(self, asked: list[Word]) -> None:
        """Ask for many at once."""
        for word in asked:
            self.do_submit(**word)

    def do_cancel(self, request: str) -> None:
        if request in self.jobs:
            self.jobs[request].transfer.cancel()

    def do_progress(self, request: str) -> Word:
        transfer = self.jobs[request].transfer if request in self.jobs else None
        return {"progress": 1.0, "phases": []} if transfer is None else _progress(transfer)

    def do_suspend(self) -> None:
        self.worker.suspend()

    def do_resume(self, logical: int) -> None:
        self.logical = logical
        self.worker.resume(self.pool(logical))

    def do_audit(self) -> Word:
        """Blocks of no request that something was written into."""
        found = {}
        for kind in ("kv", "state"):
            used = {block for job in self.jobs.values() for block in _ids(job.wire, kind)}
            found[kind] = content.changed(self.shape, self.model, self.arrays, kind, set(range(self.logical)) - used)
        return {"changed": found}

    def _end(self, job: Job, transfer: Any) -> None:
        """Called once, from within a poll, before any block can be used again."""
        end, error = time.monotonic(), getattr(transfer, "error", None)
        try:
            wrong = self._wrong_done(job) if transfer.state == "done" else self._wrong_failed(job, transfer)
        except Exception:
            wrong = traceback.format_exc()
        job.ended = True
        why = failure(error) if isinstance(error, KvplanError) else {"code": "", "text": ""}
        times = {"start": job.start, "deadline": job.start + job.timeout, "end": end}
        self.say(event="ended", request=job.request, state=transfer.state, wrong=wrong, **why, **times)

    def _wrong_done(self, job: Job) -> str:
        wire, number = job.wire, self.setting.number
        what = content.content(self.model, wire["content"], wire["at"])
        table = Blocks(wire["first"], np.array(wire["ids"], np.int64))
        rows = content.wrong_rows(self.shape, self.model, number, self.arrays, what, table, job.tokens)
        if rows or job.tokens[0] == job.tokens[1]:
            return rows
        return content.wrong_states(self.shape, self.model, number, self.arrays, what, wire["slot"])

    def _wrong_failed(self, job: Job, transfer: Any) -> str:
        """Every block that was written is among those that the outcome does not trust."""
        for kind in ("kv", "state"):
            written = content.changed(self.shape, self.model, self.arrays, kind, _ids(job.wire, kind))
            if missing := set(written) - set(transfer.untrusted.get(kind, ())):
                return f"{kind} blocks {sorted(missing)} were written, untrusted are {transfer.untrusted}"
        return ""

    def _quarantined(self) -> dict[str, set[int]]:
        names = {group.arena: group.name for group in self.plan.decode.groups}
        return {names.get(arena, str(arena)): set(ids) for arena, ids in self.worker.quarantined().items()}

    def _free(self, job: Job) -> None:
        quarantined = self._quarantined()
        if any(quarantined.get(kind, set()) & set(_ids(job.wire, kind)) for kind in ("kv", "state")):
            return
        for kind in ("kv", "state"):
            content.repaint(self.shape, self.arrays, kind, _ids(job.wire, kind))
        del self.jobs[job.request]
        self.say(event="freed", request=job.request)


def _progress(transfer: Any) -> Word:
    return {"progress": transfer.progress, "phases": [part.phase.name.lower() for part in transfer.parts]}


def _ids(wire: Word, kind: str) -> list[int]:
    return list(wire["ids"]) if kind == "kv" else [wire["slot"]]


def _sample() -> Any:
    from kvplan.runtime.checksum.checksum import Sample

    return Sample()
