"""Engines driven by chance, in one thread and on one clock, while what must hold is looked at."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from tests.runtime.helpers.worlds import fill, tables, truth
from tests.runtime.simulation.channels import STEP, Net
from tests.runtime.simulation.engines import Engine, Engines, Work
from tests.runtime.simulation.invariants import empty, lent, look, rested, right

from kvplan.plan.errors import KvplanError
from kvplan.plan.request import blocks
from kvplan.runtime import DecodeWorker, PrefillWorker, Request, Sample, Transfer
from kvplan.runtime.errors import DrainingError, LimitedError

HARM = (
    *("cut", "meet", "meet", "decode", "prefill", "freeze", "thaw", "idle", "wake", "sleep", "drop", "drain"),
    *("jump", "jump", "jump", "jump"),
)


class Schedule(Engines):
    """One run. `play` does what chance says, `end` lets everything come to rest and looks at what is left."""

    def __init__(self, seed: int, net: Net) -> None:
        super().__init__(seed, net, self.serve)

    def play(self, turns: int) -> None:
        for _ in range(turns):
            self.tick()
            self.act()

    def tick(self, step: float | None = None) -> None:
        self.net.time += step if step is not None else self.draw.choice((0, STEP / 4, STEP, 4 * STEP))
        self.serve()
        for engine in self.engines:
            for worker in engine.workers:
                if worker not in self.idle:
                    self.poll(worker, engine)
        look(self)
        lent(self)

    def poll(self, worker: DecodeWorker, engine: Engine) -> None:
        now = self.net.time
        worker.run_once()
        if self.wrong is not None:
            raise self.wrong
        for transfer, _, request, _ in engine.asked:
            late = worker.half.loads.running.get(request.id) is transfer and transfer.deadline < now
            assert not late, f"{request.id} is past its deadline: {[part.phase.name for part in transfer.parts]}"

    def serve(self) -> None:
        """A turn of the prefill engine and its caller, and of whatever sums."""
        while self.net.tasks and self.draw.random() < 0.5:
            self.net.tasks.pop(0)()
        for number, worker in enumerate(self.prefill):
            if worker not in self.idle:
                worker.run_once()
                self.take(number, worker)

    def take(self, number: int, worker: PrefillWorker) -> None:
        """Overwrite released blocks at once; when all workers have released a request's blocks, others get them."""
        for one in worker.released():
            work = self.works[one.request]
            work.held.discard(number)
            self.soil(number, work)
            if not work.held and not work.chunks:
                self.anew(work)

    def anew(self, work: Work) -> None:
        """Free the blocks of a request that all have released. Maybe hold its name once more, and ask for it late."""
        self.finish(work)
        if not work.again and self.draw.random() < 0.5:
            self.compute(work)
            self.ask(self.draw.choice(self.engines), work)

    def act(self) -> None:
        draw = self.draw
        what = draw.random()
        if what < 0.12 and len(self.works) < 10:
            self.compute()
        elif what < 0.3 and self.works:
            self.ask(draw.choice(self.engines), draw.choice(list(self.works.values())))
        elif what < 0.6:
            self.feed()
        elif what < 0.75:
            for flag in [self.flags.pop(draw.randrange(len(self.flags)))] if self.flags else []:
                flag.done = True
        elif what < 0.765:
            running = [one for engine in self.engines for one, *_ in engine.asked if not one.ended]
            if running:
                draw.choice(running).cancel()
        elif what < 0.77 and self.works:
            work = draw.choice(list(self.works.values()))
            number = draw.randrange(len(self.prefill))
            if number in work.held:
                self.prefill[number].withdraw(work.name)
        elif what < 0.77 + self.faults:
            self.harm()
        elif what > 0.95:
            self.reap()

    def compute(self, before: Work | None = None) -> None:
        """Hold a request on all workers. If its name was held `before`, it is as long, and lies in other blocks."""
        draw, shape = self.draw, self.shapes[0]
        end = draw.randint(1, 40) if before is None else before.end
        need = -(-end // (shape.kernel * shape.ratio))
        free = self.free - (set() if before is None else set(before.tables["kv"].ids.tolist()))
        if len(free) < need:
            return
        ids = draw.sample(sorted(free), need)
        self.free -= set(ids)
        seed, name = draw.randrange(1 << 30), f"r{next(self.names)}" if before is None else before.name
        given = dict(tables(shape, self.model, ids, 0, ids[0], end))
        content, again = truth(self.model, end, seed), before is not None
        work = self.works[name] = Work(name, end, given, draw.random() < 0.5, content, again)
        if before is not None:
            before.later = work
        if draw.random() < 0.2:
            self.ask(draw.choice(self.engines), work)
        for number, worker in enumerate(self.prefill):
            if not work.fed:
                fill(shape, self.model, number, self.prefill_arrays[number], work.content, given)
            event = self.event() if draw.random() < 0.5 else None
            try:
                worker.open(name, (0, end)) if work.fed else worker.hold(name, given, after=event)
            except (LimitedError, DrainingError):
                continue
            work.held.add(number)
            if work.fed:
                work.chunks[number] = self.cuts(end)
            if draw.random() < 0.3:
                self.tick()

    def feed(self) -> None:
        """The next chunk of a request of one worker is computed."""
        ready = [(work, number) for work in self.works.values() for number in work.chunks]
        if not ready:
            return
        work, number = self.draw.choice(ready)
        tokens, layers = work.chunks[number].pop(0)
        last = not work.chunks[number]
        if last:
            del work.chunks[number]
        if number not in work.held:
            self.finish(work)
            return
        fill(self.shapes[0], self.model, number, self.prefill_arrays[number], work.content, work.tables)
        given = work.tables if tokens[1] == work.end else {"kv": work.tables["kv"]}
        after = self.event() if self.draw.random() < 0.3 else None
        with suppress(KvplanError):
            self.prefill[number].offer(work.name, tokens, given, layers=layers, last=last, after=after)

    def finish(self, work: Work) -> None:
        if not work.held and not work.chunks and self.works.pop(work.name, None) is not None:
            self.free |= set(work.tables["kv"].ids.tolist())

    def ask(self, engine: Engine, work: Work) -> None:
        """Every worker of a decode engine asks for a request, into blocks that its caller takes for free."""
        draw, shape = self.draw, self.shapes[1]
        need = -(-work.end // (shape.kernel * shape.ratio))
        first = draw.choice((0, 0, draw.randint(0, work.end)))
        fed, sample = work.fed or draw.random() < 0.2, Sample() if self.drawn and draw.random() < 0.5 else None
        for number, worker in enumerate(engine.workers):
            if len(engine.free[number]) < need or worker in self.idle:
                continue
            ids = draw.sample(sorted(engine.free[number]), need)
            given: dict[str, Any] = dict(tables(shape, self.model, ids, 0, ids[0], work.end))
            request = Request(work.name, (first, work.end), {} if work.fed else work.tables, given)
            call = worker.open if fed else worker.submit
            transfer = call(request, draw.choice((0.05, 1.0, 3.0, 5.0)), peer="prefill", checksum=sample)
            engine.asked.append((transfer, number, request, work))
            if not transfer.ended:
                engine.free[number] -= set(ids)
                transfer.on_end(partial(self.over, engine=engine, number=number, request=request, work=work))

    def over(self, transfer: Transfer, engine: Engine, number: int, request: Request, work: Work) -> None:
        """A request has ended: if it is done every byte is there, else its blocks are given to others at once."""
        self.ended += 1
        if transfer.state == "done":
            self.done += 1
            try:
                right(self, engine, number, request, work)
            except AssertionError as error:
                # The caller of this callback catches all that it raises.
                self.wrong = error
            engine.kept.append((number, request, work))
        else:
            engine.free[number] |= set(blocks(request.decode["kv"]).ids.tolist())

    def reap(self) -> None:
        """Check requests that were done some time ago, and give their blocks to others."""
        for engine in self.engines:
            for one in engine.kept[: self.draw.randint(0, len(engine.kept))]:
                right(self, engine, *one)
                engine.kept.remove(one)
                engine.free[one[0]] |= set(blocks(one[1].decode["kv"]).ids.tolist())
            engine.asked = [one for one in engine.asked if not one[0].ended]

    def harm(self) -> None:
        draw, net = self.draw, self.net
        what = draw.choice(HARM)
        engine = draw.choice(self.engines)
        if what == "cut" and (lines := [one for one in net.lines if not one.gone]):
            draw.choice(lines).cut()
        elif what == "meet":
            self.meet()
        elif what == "decode" and draw.random() < 0.3:
            self.close(engine)
            self.engines[self.engines.index(engine)] = self.start_decode(engine.name, draw.choice(("pull", "push")))
        elif what == "prefill" and draw.random() < 0.3:
            for worker in self.prefill:
                worker.close()
            for arrays in self.prefill_arrays:
                for array in arrays.values():
                    array[:] = 77
            self.start_prefill()
        elif what == "freeze":
            self.hub.frozen.add(draw.choice(list(self.hub.agents)))
        elif what == "thaw":
            self.hub.frozen.clear()
        elif what == "idle":
            self.idle.add(draw.choice([*self.prefill, *engine.workers]))
        elif what == "wake":
            self.idle.clear()
        elif what == "jump":
            net.time += draw.choice((0.1, 0.5, 1.0, 3.0))
        elif what == "drop" and (one := draw.choice(engine.workers)).peers():
            one.drop("prefill")
        elif what == "drain" and draw.random() < 0.3:
            for worker in draw.choice((self.prefill, self.prefill[:1])):
                worker.drain(draw.choice((1.0, 20.0)))
        elif what == "sleep":
            self.sleep(draw.choice([*self.prefill, *engine.workers]))

    def end(self) -> None:
        """Nothing goes wrong any more: everything ends, and nothing is left."""
        net = self.net
        self.faults, net.slow, net.duplicates, net.fail, net.full = 1, 0, 0, 0, 0
        self.hub.frozen.clear()
        self.idle.clear()
        for late in net.transfers:
            late.harm = ""
        for flag in self.flags:
            flag.done = True
        for _ in range(4):
            for _ in range(50):
                self.tick(0.08)
            self.meet()
        self.reap()
        for engine in self.engines:
            for worker in engine.workers:
                rested(worker)
        for source in self.prefill:
            empty(source)
        assert not any(one.held for one in self.works.values())
