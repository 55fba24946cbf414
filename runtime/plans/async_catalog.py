"""Plans for those who must not wait: what is being compiled is asked for again later."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from kvplan.plan.errors import PlanPendingError
from kvplan.plan.types import Plan
from kvplan.runtime.plans.catalog import Catalog, Pinned, PlanSource, Role

Key = tuple[str, str, Pinned, Pinned]
MOST = 16


def never_waiting(plans: PlanSource) -> PlanSource:
    """`plans`, which answer at once: those that compile or fetch what is missing do so beside."""
    return AsyncCatalog(plans) if isinstance(plans, Catalog) and plans.waits else plans


class AsyncCatalog:
    """A catalog that compiles or fetches one plan at a time in a thread of its own."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._lock = catalog, Lock()
        self._thread = ThreadPoolExecutor(1, "kvplan-jit")
        self._running: dict[Key, Future[Plan]] = {}

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        return self._catalog.models(role, side)

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        """The plan if it is there. Raises PlanPendingError while it is made, and then what making it raised."""
        found = self._catalog.look(model_digest, prefill[0], decode[0])
        if found is not None:
            return found
        key = model, model_digest, prefill, decode
        with self._lock:
            if key not in self._running and len(self._running) < MOST:
                self._running[key] = self._thread.submit(self._catalog.find, *key)
            future = self._running.get(key)
            if future is None or not future.done():
                raise PlanPendingError(f"the plan from {prefill[1]} to {decode[1]} of {model} is being made")
            return self._running.pop(key).result()
