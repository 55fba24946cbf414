"""Requests at random, as a busy scheduler sends them, watched for what must never happen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from tests.cluster.cluster import Cluster, Job
from tests.slowness import slowness

# Two cores and a dozen processes: a deadline is met when the process gets to run.
ALLOWANCE, BURST = 5.0, 4


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of requests by kind, sizes and deadlines. `told`: of failures that the prefill engine hears of at once."""

    longest: int = 120
    at_once: int = 12
    fed: float = 0.3
    late: float = 0.2
    cancelled: float = 0.08
    withdrawn: float = 0.04
    checked: float = 0.2
    layered: float = 0.3
    again: float = 0.3
    told: float = 0.7
    partial: float = 0.3
    hits: float = 0.03
    timeouts: tuple[float, ...] = (0.02, 0.5, 3.0, 3.0, 3.0, 3.0)


@dataclass(slots=True)
class Load:
    """Drives `cluster`. Requests begin only while `open`."""

    cluster: Cluster
    random: Random
    mix: Mix = field(default_factory=Mix)
    begun: int = 0
    doomed: dict[str, float] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def step(self, begin: bool = True) -> None:
        """Hear, begin one if there is room, feed one, give one up."""
        self.cluster.pump()
        self._again(begin)
        running = [job for job in self.cluster.jobs.values() if not self.cluster.ended(job)]
        for _ in range(min(BURST, self.mix.at_once - len(running)) if begin else 0):
            self._begin()
        for job in running:
            if self._hungry(job) and self.random.random() < 0.2:
                self._feed(job)
        self._give_up()
        self._tell()

    def lost(self, now: float, frozen: Mapping[str, float] | None = None) -> list[str]:
        """Requests that should have ended long ago."""
        return [
            f"{job.name} was to end {now - job.asked - job.timeout:.1f} s ago: {job.outcomes}"
            for job in self.cluster.jobs.values()
            if job.asked and not self.cluster.ended(job) and now > job.asked + job.timeout + ALLOWANCE * slowness()
        ]

    def _again(self, begin: bool) -> None:
        """Ask once more for what failed, or leave it, where nothing is to begin."""
        waiting, self.cluster.retries = self.cluster.retries, []
        for job in waiting:
            if begin:
                self.begun += self.cluster.retry(job)
            else:
                self.cluster.leave(job)

    def _begin(self) -> None:
        dice, mix = self.random, self.mix
        end = dice.randrange(1, mix.longest)
        first = dice.randrange(end) if dice.random() < mix.partial else 0
        hit = dice.random() < mix.hits
        tokens = (end if hit else first, end)
        late = dice.randrange(1, 20) if dice.random() < mix.late else 0
        decode, fed = dice.randrange(len(self.cluster.decode)), not hit and dice.random() < mix.fed
        checked = not fed and dice.random() < mix.checked
        timeout = dice.choice(mix.timeouts)
        more = {"fed": fed, "layered": fed and dice.random() < mix.layered, "again": dice.random() < mix.again}
        job = self.cluster.begin(tokens, timeout, 0 if fed else late, checksum=checked, decode=decode, **more)
        if job is not None:
            self.begun += 1
            if dice.random() < mix.cancelled + mix.withdrawn:
                self.doomed[job.name] = time.monotonic() + dice.random() * 0.1

    def _hungry(self, job: Job) -> bool:
        held = job.theirs is not None and not job.released
        return job.fed and held and job.offered < job.tokens[1] and self.cluster.prefill.up

    def _feed(self, job: Job) -> None:
        """Offer some blocks more, or the rest."""
        shape = self.cluster.prefill.setting.shape
        per = shape.kernel * shape.ratio
        end = (job.offered // per + self.random.randrange(1, 9)) * per
        self.cluster.feed(job, min(end, job.tokens[1]), self.random.choice((0, 0, 0, 5)))

    def _give_up(self) -> None:
        now = time.monotonic()
        for name in [name for name, when in self.doomed.items() if when < now]:
            del self.doomed[name]
            if (job := self.cluster.jobs.get(name)) is not None:
                self._give_up_one(job)

    def _tell(self) -> None:
        """Withdraw what has failed; for the rest, the lease runs out."""
        if not self.cluster.prefill.up:
            return
        over = [job for job in self.cluster.jobs.values() if self.cluster.ended(job) and not job.again]
        over = [job for job in over if job.name not in self.told]
        for job in over:
            self.told.add(job.name)
            if job.state != "done" and job.theirs is not None and self.random.random() < self.mix.told:
                self.cluster.prefill.every("withdraw", request=job.name)

    def _give_up_one(self, job: Job) -> None:
        cluster, mix = self.cluster, self.mix
        if self.random.random() * (mix.cancelled + mix.withdrawn) < mix.cancelled:
            if cluster.decode[job.decode].up:
                cluster.cancel(job)
        elif job.theirs is not None and cluster.prefill.up:
            cluster.prefill.every("withdraw", request=job.name)
