"""A prefill engine and decode engines, and the requests between them, as a scheduler would drive them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster.engine import Engine, sound
from tests.cluster.process import Word, overlap
from tests.cluster.watched import RIG

from kvplan.runtime.errors import HandleError, LimitedError

PAUSE = 0.003


@dataclass(slots=True)
class Job:
    """A request. Blocks are had until every worker of the engine has given them back; None where they are not had.

    A `layered` one is fed layer by layer. If it fails it is to be asked for once more, where `again` says so.
    """

    name: str
    tokens: tuple[int, int]
    decode: int
    fed: bool = False
    layered: bool = False
    again: bool = False
    checked: bool = False
    theirs: Word | None = None
    ours: Word | None = None
    outcomes: dict[int, Word] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    freed: set[int] = field(default_factory=set)
    offered: int = 0
    timeout: float = 0.0
    asked: float = 0.0

    @property
    def state(self) -> str:
        """The state that all decode workers report; failed if they differ."""
        states = {word["state"] for word in self.outcomes.values()}
        return states.pop() if len(states) == 1 else "failed"


@dataclass(slots=True)
class Tally:
    """Counts of requests by outcome, and lists of faults that must not occur. Requests begin by mode.

    `good` counts requests without a fault in anything they need; `harmed` lists those of them that were not done.
    """

    begun: Counter[str] = field(default_factory=Counter)
    good: int = 0
    harmed: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    overrun: float = 0.0
    late: str = ""


class Cluster:
    """One prefill engine, decode engines. Their requests move by `mode`, pull or push."""

    def __init__(self, prefill: Engine, decode: list[Engine], random: Random, mode: str = "pull") -> None:
        self.prefill, self.decode, self.random, self.mode = prefill, decode, random, mode
        self.jobs: dict[str, Job] = {}
        self.tally, self.count, self.retries = Tally(), 0, list[Job]()

    def connect(self, seconds: float = 20, which: list[int] | None = None) -> list[Word]:
        """Every decode worker meets the prefill engine; the answers, which may be errors."""
        engines = self.decode if which is None else [self.decode[number] for number in which]
        arguments = {"address": self.prefill.addresses[0], "timeout": seconds, "mode": self.mode}
        asked = [(worker, worker.send("connect", **arguments)) for engine in engines for worker in engine.workers]
        self.until(lambda: all(worker.has(number) for worker, number in asked), seconds + 20)
        return [sound(worker.answer(number, 1)) for worker, number in asked]

    def begin(self, tokens: tuple[int, int], timeout: float, late: int = 0, **more: Any) -> Job | None:
        """Prefill holds a request, or opens it to be fed, and decode asks for it. None if no blocks are free."""
        checksum = more.pop("checksum", False)
        job = self.prepare(tokens, timeout, late, checked=checksum, **more)
        if job is not None:
            self.ask(job)
        return job

    def prepare(self, tokens: tuple[int, int], timeout: float, late: int = 0, **more: Any) -> Job | None:
        """The prefill half of `begin`; `more` are fields of Job."""
        job = self._job(tokens, timeout, **more)
        if job is None:
            return None
        more = {"tokens": tokens} if job.fed else {"late": late}
        for word in self.prefill.every("open" if job.fed else "hold", request=job.name, table=job.theirs, **more):
            assert word["ok"], word["text"]
        return job

    def prepare_all(self, count: int, tokens: tuple[int, int], timeout: float, late: int, decode: int) -> list[Job]:
        """Hold `count` requests at once, fewer if the blocks run out."""
        jobs = [job for _ in range(count) if (job := self._job(tokens, timeout, decode=decode)) is not None]
        held = [{"request": job.name, "table": job.theirs, "late": late} for job in jobs]
        for word in self.prefill.every("holds", held=held):
            assert word["ok"], word["text"]
        return jobs

    def ask(self, job: Job, told: Word | None = None) -> None:
        """The decode half of `begin`. `told` are the blocks of another hold of the same name."""
        for word in self.decode[job.decode].every("submit", **self._asked(job, told)):
            assert word["ok"], word["text"]

    def ask_all(self, jobs: list[Job]) -> None:
        """The decode half of many requests, which one engine is asked for at once."""
        if jobs:
            for word in self.decode[jobs[0].decode].every("submits", asked=[self._asked(job) for job in jobs]):
                assert word["ok"], word["text"]

    def good(self, jobs: list[Job]) -> None:
        """Wait for requests without a fault, and count those that are not done."""
        for job in jobs:
            self.finish(job)
            self.tally.good += 1
            if job.state != "done" and not self._excused(job):
                self.tally.harmed.append(f"{job.name} is {job.state}: {job.outcomes}")

    def retry(self, job: Job) -> bool:
        """Ask again for a failed request, into the same blocks. False if prefill no longer holds it."""
        job.again, known = False, job.ours is not None and job.theirs is not None and not job.released
        if known and self.decode[job.decode].up and self.prefill.up:
            job.outcomes, job.freed = {}, set()
            self.ask(job)
            return True
        self.leave(job)
        return False

    def leave(self, job: Job) -> None:
        """Give the decode blocks of a request back that is not asked for again."""
        job.again = False
        if job.ours is not None:
            self.decode[job.decode].blocks.give(job.ours["ids"], job.ours["slot"])
            job.ours = None
        self._over(job)

    def feed(self, job: Job, end: int, late: int = 0, slots: bool = True) -> None:
        """Offer the tokens up to `end`, a multiple of a block or the request's end, if it is still held.

        Without `slots` no chunk says where its states are.
        """
        tokens, job.offered = (job.offered, end), end
        last = end == job.tokens[1]
        layers = self.prefill.setting.model.layers
        for some in [[layer] for layer in layers] if job.layered else [None]:
            over = last and some in (None, [layers[-1]])
            more: Word = {"tokens": tokens, "last": over, "late": late, "layers": some, "slots": slots}
            words = self.prefill.every("offer", request=job.name, **more)
            for word in words:
                assert word["ok"] or word["code"] == HandleError.code, word["text"]

    def cancel(self, job: Job) -> None:
        self.decode[job.decode].every("cancel", request=job.name)

    def pump(self) -> None:
        """Hear all that workers say."""
        for number, word in list(self.prefill.events()):
            if word["event"] == "released":
                self._released(number, word)
        for which, engine in enumerate(self.decode):
            for number, word in list(engine.events()):
                self._heard(which, number, word)

    def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Pump until something holds; False where it does not in time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            self.pump()
            time.sleep(PAUSE)
        return True

    def ended(self, job: Job) -> bool:
        return len(job.outcomes) == len(self.decode[job.decode].workers)

    def finish(self, job: Job, allowance: float = 5.0) -> str:
        """The state in which a request ends. Raises AssertionError where it does not within its time and more."""
        assert self.until(lambda: self.ended(job), job.timeout + allowance), f"{job.name} did not end: {job.outcomes}"
        return job.state

    def settle(self, seconds: float) -> list[str]:
        """Wait until every block is free again; what is not."""
        self.until(lambda: not self.jobs, seconds)
        return [f"{job.name} {job}" for job in self.jobs.values()]

    def forget(self, prefill: bool, which: int = 0) -> None:
        """An engine was restarted: nothing is had of it any more, and who asked it never hears of its requests."""
        for job in list(self.jobs.values()):
            if prefill:
                job.theirs = None
            elif job.decode == which:
                self._lost_with_engine(job)
            self._over(job)

    def audit(self) -> list[str]:
        """Blocks of decode engines that belong to no request, and are written all the same."""
        found = [(which, engine.every("audit")) for which, engine in enumerate(self.decode)]
        return [f"decode {which}: {word}" for which, words in found for word in words if any(word["changed"].values())]

    def close(self) -> None:
        for engine in (*self.decode, self.prefill):
            engine.close()

    def _job(self, tokens: tuple[int, int], timeout: float, **more: Any) -> Job | None:
        """A request with blocks on both sides; None where these are not free."""
        self.count += 1
        job = Job(**{"name": f"r{self.count}", "decode": 0, **more}, tokens=tokens, timeout=timeout)
        if not self._blocks(job):
            return None
        self.jobs[job.name] = job
        job.offered = tokens[0]
        return job

    def _asked(self, job: Job, told: Word | None = None) -> Word:
        job.asked = time.monotonic()
        self.tally.begun[f"{self.mode}, fed" if job.fed else self.mode] += 1
        theirs = told or (None if job.fed else job.theirs)
        asked: Word = {"request": job.name, "tokens": job.tokens, "theirs": theirs, "table": job.ours}
        return {**asked, "fed": job.fed, "timeout": job.timeout, "checksum": job.checked}

    def _excused(self, job: Job) -> bool:
        """Whether a request fails by a fault or a limit of its own engine, which the rig has set."""
        limited = LimitedError.code if "requests" in self.decode[job.decode].setting.limits else "none"
        return any(RIG in word["text"] or word["code"] == limited for word in job.outcomes.values())

    def _blocks(self, job: Job) -> bool:
        ours, theirs = self.decode[job.decode], self.prefill
        content = f"{job.name} {self.count}"
        job.theirs = _table(theirs, (0, job.tokens[1]), content)
        job.ours = _table(ours, job.tokens, content)
        for engine, had, other in ((theirs, job.theirs, job.ours), (ours, job.ours, job.theirs)):
            if had is not None and other is None:
                engine.blocks.give(had["ids"], had["slot"])
        return job.theirs is not None and job.ours is not None

    def _released(self, number: int, word: Word) -> None:
        job = self.jobs.get(word["request"])
        if job is None or job.theirs is None:
            return
        assert number not in job.released, f"{job.name} was released twice"
        job.released.add(number)
        if len(job.released) == len(self.prefill.workers):
            self.prefill.blocks.give(job.theirs["ids"], job.theirs["slot"])
            job.theirs = None
        self._over(job)

    def _heard(self, which: int, number: int, word: Word) -> None:
        job = self.jobs.get(word.get("request", ""))
        if job is None or job.decode != which:
            return
        if word["event"] == "ended":
            self._outcome(job, number, word)
        if word["event"] == "freed":
            self._freed(job, number)
        self._over(job)

    def _outcome(self, job: Job, number: int, word: Word) -> None:
        if number in job.outcomes:
            self.tally.wrong.append(f"{job.name} ended twice: {job.outcomes[number]} and {word}")
        job.outcomes[number] = word
        self.tally.codes[word["code"] or word["state"]] += 1
        if word["wrong"]:
            self.tally.wrong.append(f"{job.name} {word['state']} {word['code']} in worker {number}: {word['wrong']}")
        over = word["end"] - word["deadline"] - self._frozen(job, number, word)
        if over > self.tally.overrun:
            self.tally.overrun, self.tally.late = over, f"{job.name} {word['state']} {word['text']}"
        if self.ended(job):
            self.tally.ended[job.state] += 1

    def _frozen(self, job: Job, number: int, word: Word) -> float:
        return overlap(self.decode[job.decode].workers[number].frozen, word["start"], word["end"])

    def _freed(self, job: Job, number: int) -> None:
        job.freed.add(number)
        engine = self.decode[job.decode]
        if job.ours is None or len(job.freed) < len(engine.workers):
            return
        if job.again and job.state not in ("done", "died"):
            self.retries.append(job)
        else:
            engine.blocks.give(job.ours["ids"], job.ours["slot"])
            job.ours = None

    def _lost_with_engine(self, job: Job) -> None:
        job.ours = None
        self.tally.ended["died"] += not self.ended(job)
        for number in range(len(self.decode[job.decode].workers)):
            job.outcomes.setdefault(number, {"state": "died", "code": "died", "text": "", "wrong": ""})

    def _over(self, job: Job) -> None:
        if job.theirs is None and job.ours is None and self.ended(job):
            self.jobs.pop(job.name, None)


def _table(engine: Engine, tokens: tuple[int, int], content: str) -> Word | None:
    """Blocks for a range of tokens, by position from the first one needed, and a slot; `content` names their bytes."""
    shape = engine.setting.shape
    per = shape.kernel * shape.ratio
    first, end = tokens[0] // per, -(-tokens[1] // per)
    taken = engine.blocks.take(end - first)
    return (
        None
        if taken is None
        else {"first": first, "ids": taken[0], "slot": taken[1], "at": tokens[1], "content": content}
    )
