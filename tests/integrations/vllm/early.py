"""An engine that prefills and one that decodes as a router that asks both at once sees them, over real workers.

Memory holds garbage until it is computed, and garbage again when blocks become others': what moves too early is seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
from tests.integrations.vllm.pairs import tables
from tests.integrations.vllm.requests import STATE, TOKENS, FakeRequest
from tests.runtime.helpers.plans import STATE as STATE_SIZE
from tests.runtime.helpers.plans import held
from tests.runtime.helpers.requests import check
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, _block, _pages, truth

from kvplan.integrations.vllm.holds import PrefillSide
from kvplan.integrations.vllm.loads import DecodeSide, LoadTimes, StepResults
from kvplan.integrations.vllm.metadata import StepOrders, WorkerFacts
from kvplan.integrations.vllm.offers import LayerBatches, PromptOffers
from kvplan.integrations.vllm.scheduler import ConnectorScheduler, GroupTable
from kvplan.integrations.vllm.worker import ConnectorWorker
from kvplan.plan.block_tables import blocks
from kvplan.plan.request import Request, Slot
from kvplan.runtime.prefill.events import ComputeEvent

# Decode asks for whole blocks of prefill: nothing is left over that would go late by itself.
LENGTH = 45
ASKED = LENGTH - 1
GROUPS = (GroupTable(0), GroupTable(1, 0, forgets=True))
SERVED, ABORTED = "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED"


@dataclass
class Event:
    """A device that computes when it is told to go on."""

    completed: bool = False

    def query(self) -> bool:
        return self.completed


@dataclass
class PrefillEngine:
    """Computes prompts of `LENGTH` tokens, of which decode asks for all but the last one, layer by layer."""

    made: World
    layerwise: bool = True
    seed: int = 0
    events: list[Event] | None = None
    computed: dict[str, int] = field(default_factory=dict)
    owned: dict[str, tuple[list[int], int]] = field(default_factory=dict)
    requests: dict[str, FakeRequest] = field(default_factory=dict)
    sent: list[list[str]] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.free = list(range(1, 40))
        self.slots = list(range(1, 40))
        layers = LayerBatches({f"layer {n}": n for n in self.made.model.layers}) if self.layerwise else None
        self.workers = [ConnectorWorker(PrefillSide(worker, tables(self.made.plan.prefill)), None)
                        for worker in self.made.prefill]  # fmt: skip
        for one, worker in zip(self.workers, self.made.prefill, strict=True):
            assert one._prefill is not None
            one._prefill.offers = PromptOffers(worker, tables(self.made.plan.prefill), layers, self.mark)
        self.scheduler = ConnectorScheduler("prefill", GROUPS)
        facts = [WorkerFacts(n, worker.address, (TOKENS, STATE), "") for n, worker in enumerate(self.made.prefill)]
        self.scheduler.registered(facts)
        self.sent = [[] for _ in self.workers]
        for arrays in self.made.prefill_memory:
            for array in arrays.values():
                array[:] = 0xEE

    def mark(self) -> ComputeEvent | None:
        if self.events is None:
            return None
        self.events.append(Event())
        return self.events[-1]

    def arrive(self, name: str, transfer: str | None = None) -> None:
        params = {"do_remote_decode": True, "transfer_id": transfer or name}
        self.requests[name] = FakeRequest(name, LENGTH, params)
        self.scheduler.arrived(self.requests[name])  # type: ignore[arg-type]

    def step(self, **count: int) -> None:
        """Compute so many more tokens of each; and say what has ended before."""
        new, old, scheduled = [], [], {}
        for name, tokens in count.items():
            first = self.computed.get(name, 0)
            scheduled[name] = min(tokens, ASKED - first)
            ids = self._allocate(name, first + scheduled[name])
            if name in self.owned and first:
                old.append((name, ids, first))
            else:
                new.append(SimpleNamespace(req_id=name, block_ids=ids, num_computed_tokens=first))
        cached = SimpleNamespace(
            req_ids=[each[0] for each in old],
            new_block_ids=[each[1] for each in old],
            num_computed_tokens=[each[2] for each in old],
            resumed_req_ids=set(),
        )
        output = SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=scheduled,
            preempted_req_ids=self.preempted,
        )
        self.preempted = set()
        self.scheduler.scheduled(output)
        self._run(self.scheduler.orders(), scheduled)

    def preempt(self, name: str) -> None:
        """Give a request's blocks to other requests, which write to them."""
        self._give_back(name)
        self.computed[name] = 0
        self.preempted.add(name)

    def finish(self, name: str, state: str = SERVED) -> dict[str, object] | None:
        """End a request and return its client's parameters. Blocks are free at once if no engine will read them."""
        request = self.requests[name]
        request.num_computed_tokens = self.computed.get(name, 0)
        ids, slot = self.owned.get(name, ([], 0))
        tables = [ids, [slot] if ids else []]
        kept, told = self.scheduler.finished(request, tables, state)  # type: ignore[arg-type]
        if not kept:
            self._give_back(name)
        return told

    def _allocate(self, name: str, tokens: int) -> tuple[list[int], list[int]]:
        """New blocks, in no order."""
        span = self.made.shapes[0].kernel * self.made.shapes[0].ratio
        if name not in self.owned:
            self.owned[name] = ([], self.slots.pop())
        ids, slot = self.owned[name]
        got = [self.free.pop(self.random.randrange(len(self.free))) for _ in range(-(-tokens // span) - len(ids))]
        had, ids[:] = bool(ids), [*ids, *got]
        return got, [] if had else [slot]

    def _give_back(self, name: str) -> None:
        ids, slot = self.owned.pop(name, ([], 0))
        self.free += ids
        self.slots += [slot] if slot else []
        ratio = self.made.shapes[0].ratio
        for arrays in self.made.prefill_memory:
            for plane, array in arrays.items():
                for block in ids if plane.startswith("kv") else [slot]:
                    wide = ratio if plane.startswith("kv") else 1
                    array[block * wide : (block + 1) * wide] = 0xDD

    def _run(self, orders: StepOrders, scheduled: dict[str, int]) -> None:
        for worker in self.workers:
            worker.hold(orders)
        for index, layer in enumerate(self.made.model.layers):
            for name, tokens in scheduled.items():
                self._compute(name, index, self.computed.get(name, 0), self.computed.get(name, 0) + tokens)
            for worker in self.workers:
                worker.computed(f"layer {layer}")
        for name, tokens in scheduled.items():
            self.computed[name] = self.computed.get(name, 0) + tokens
            if self.computed[name] == ASKED:
                self._stand(name)
        for number, worker in enumerate(self.workers):
            worker.computed()
            worker.load(orders)
            self.sent[number] += worker.ended(idle=False).sent
        for name in [name for name in self.owned if all(name in sent for sent in self.sent)]:
            self._give_back(name)

    def freed(self, name: str) -> bool:
        """Whether a step says on every worker that nobody needs a request's blocks."""
        self.step()
        return all(name in sent for sent in self.sent)

    def _compute(self, name: str, index: int, first: int, end: int) -> None:
        shape, model = self.made.shapes[0], self.made.model
        content, table = (
            truth(model, ASKED),
            blocks(tables(self.made.plan.prefill).of((tuple(self.owned[name][0]), ()), end)["kv"]),
        )
        for number, arrays in enumerate(self.made.prefill_memory):
            heads = held(model, shape, number)
            pages = _pages(shape, len(heads), arrays[f"kv.{model.layers[index]}"])
            for token in range(first, end):
                block, at = _block(shape, table, token)
                pages[block, :, at] = content.k[index, heads.start : heads.stop, token]

    def _stand(self, name: str) -> None:
        """The states stand after the last token."""
        model = self.made.model
        for number, arrays in enumerate(self.made.prefill_memory):
            heads = held(model, self.made.shapes[0], number)
            for index, layer in enumerate(model.layers if model.state else ()):
                state = arrays[f"state.{layer}"].reshape(-1, len(heads), STATE_SIZE)
                state[self.owned[name][1]] = truth(model, ASKED).s[index, heads.start : heads.stop]


class DecodeEngine:
    """Asks for prompts at the same time as prefill is asked to compute them."""

    def __init__(self, made: World) -> None:
        self.made, times = made, LoadTimes(10, 5, 5)
        made.decode[0].start()
        self.worker = ConnectorWorker(None, DecodeSide(made.decode[0], tables(made.plan.decode), times, made.mode))
        self.scheduler = ConnectorScheduler("decode", GROUPS)
        self.asked: dict[str, Request] = {}
        self.results = StepResults()

    def ask(self, name: str, local: int = 0, seed: int = 0, params: dict[str, object] | None = None) -> None:
        host, _, port = self.made.prefill[0].address.removeprefix("tcp://").rpartition(":")
        early: dict[str, object] = {"transfer_id": name, "remote_host": host, "remote_port": int(port)}
        request = FakeRequest(f"{name}-here", LENGTH, {"do_remote_prefill": True, **(params or early)})
        span = self.made.shapes[1].kernel * self.made.shapes[1].ratio
        ids = [int(block) + 1 for block in np.random.default_rng(seed).permutation(30)[: -(-ASKED // span)]]
        self.scheduler.arrived(request)  # type: ignore[arg-type]
        external = self.scheduler.matched(request, local)  # type: ignore[arg-type]
        self.scheduler.allocated(request, [ids, [5]], external)  # type: ignore[arg-type]
        self.worker.load(self.scheduler.orders())
        here = {"kv": tables(self.made.plan.decode).of((tuple(ids), ()), ASKED)["kv"], "state": Slot(5, ASKED)}
        self.asked[name] = Request(name, (local, ASKED), {}, here)

    def abort(self, name: str) -> None:
        request = FakeRequest(f"{name}-here", LENGTH)
        self.scheduler.finished(request, [[], []], ABORTED)  # type: ignore[arg-type]
        self.worker.load(self.scheduler.orders())

    def step(self) -> StepResults:
        more = self.worker.ended(idle=True)
        self.scheduler.loaded(more.received)
        self.results.received |= more.received
        self.results.failed |= more.failed
        return self.results

    def outcome(self, name: str) -> str:
        """How a load ended: `right`, every byte of it, or `failed`."""
        until(lambda: f"{name}-here" in self.step().received)
        if f"{name}-here" in self.results.failed:
            return "failed"
        check(self.made, 0, replace(self.asked[name]))
        return "right"
