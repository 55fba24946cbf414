"""A worker of an engine: its prefill and its decode side. It takes orders and reports results without waiting."""

from __future__ import annotations

import time
from contextlib import ExitStack

from kvplan.integrations.vllm.holds import PrefillSide
from kvplan.integrations.vllm.loads import DecodeSide, StepResults
from kvplan.integrations.vllm.measures import EXPIRED, GAUGES, Measures, nothing
from kvplan.integrations.vllm.metadata import StepOrders
from kvplan.runtime.memory.register import Pool

# How long a step without tokens waits for a load to end, in seconds. Engines step without pause while any request
# is loading, which would starve the thread that moves it. The wait grows while nothing ends, because requests
# that are held may wait for seconds; a new request may wait as long for its first step.
SHORTEST_REST, LONGEST_REST = 0.001, 0.004


class ConnectorWorker:
    """Both sides of one worker, or only one if the engine has only that, and the memory of both."""

    def __init__(self, prefill: PrefillSide | None, decode: DecodeSide | None, pool: Pool | None = None) -> None:
        self._prefill, self._decode, self._pool = prefill, decode, pool
        halves = [side.worker for side in (prefill, decode) if side is not None]
        # Halves of one worker are suspended, resumed and closed together, through either.
        self._workers = list({half.endpoint: half for half in halves}.values())
        self._asleep = False
        self._pause = SHORTEST_REST
        self._told: tuple[int, ...] = ()

    def suspend(self) -> None:
        """Give back the memory of both sides, or of neither if either is in use. Raises HandleError."""
        if self._asleep:
            return
        with ExitStack() as undo:
            for worker in self._workers:
                worker.suspend()
                undo.callback(worker.resume, self._memory())
            undo.pop_all()
        self._asleep = True

    def resume(self) -> None:
        """Register the memory again if it is suspended."""
        if self._asleep:
            for worker in self._workers:
                worker.resume(self._memory())
            self._asleep = False

    def _memory(self) -> Pool:
        assert self._pool is not None
        return self._pool

    def hold(self, orders: StepOrders) -> None:
        """Begin a step's orders for decode engines, before the model computes it."""
        self._pause = SHORTEST_REST
        if self._prefill is not None:
            self._prefill.begin(orders)
        if self._decode is not None:
            self._decode.step(orders)

    def computed(self, layer: str | None = None) -> None:
        """Offer this layer, or all layers, which the step has computed."""
        if self._prefill is not None:
            offers = self._prefill.offers
            offers.end() if layer is None else offers.computed(layer)

    def load(self, orders: StepOrders) -> None:
        """Begin a step's orders from prefill engines, beside the model."""
        if self._decode is not None:
            self._decode.begin(orders)

    def ended(self, *, idle: bool) -> StepResults:
        """Return the requests that ended since the last call, each once. An idle step rests for other threads."""
        if idle:
            self._rest()
        else:
            self._pause = SHORTEST_REST
        results = StepResults()
        if self._prefill is not None:
            results.sent = self._prefill.sent()
        if self._decode is not None:
            self._decode.ended(results)
        return results

    @property
    def busy(self) -> bool:
        """Whether `ended` may have results."""
        held = self._prefill is not None and self._prefill.busy
        return held or (self._decode is not None and self._decode.busy)

    @property
    def measured(self) -> bool:
        """Whether there are measures. vLLM adds up what workers tell in a step, so each tells gauges that are not 0."""
        loads = self._decode is not None and self._decode.measured
        expired = self._prefill is not None and self._prefill.expired > 0
        gauges = self._gauges()
        return loads or expired or any(gauges) or gauges != self._told

    def measures(self) -> Measures:
        """Return the measures since the last call."""
        measures = nothing()
        if self._decode is not None:
            measures, self._decode.measures = self._decode.measures, measures
        if self._prefill is not None:
            measures[EXPIRED].extend([1.0] * self._prefill.expired)
            self._prefill.expired = 0
        self._told = self._gauges()
        return measures | {name: [value] for name, value in zip(GAUGES, self._told, strict=True)}

    def _gauges(self) -> tuple[int, ...]:
        """Return the values of GAUGES."""
        held = 0 if self._prefill is None else self._prefill.held
        return held, *((0, 0) if self._decode is None else (self._decode.pending, self._decode.quarantined))

    def _rest(self) -> None:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_REST)
        if self._decode is not None and self._decode.busy:
            self._decode.wait(pause)
        elif self._prefill is not None and self._prefill.busy:
            time.sleep(pause)

    def close(self) -> None:
        """Close both sides, the second one even if the first raises."""
        with ExitStack() as sides:
            for worker in self._workers:
                sides.callback(worker.close)
