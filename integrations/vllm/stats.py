"""Measures for vLLM's log and for Prometheus, under names like those of vLLM's own connector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.metrics.utils import create_metric_per_engine

from kvplan.integrations.vllm import measures
from kvplan.integrations.vllm.measures import BYTES, EXPIRED, FAILED, HELD, PENDING, QUARANTINED, SECONDS

TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = tuple(2.0**power for power in range(11, 36, 2))
HISTOGRAMS = {
    SECONDS: ("vllm:kvplan_load_time_seconds", "How long requests took to be loaded; each worker counts.", TIMES),
    BYTES: ("vllm:kvplan_loaded_bytes", "Bytes of requests that were loaded; each worker counts.", SIZES),
}
COUNTERS = {
    FAILED: ("vllm:kvplan_num_failed_loads", "Requests that could not be loaded; each worker counts."),
    EXPIRED: (
        "vllm:kvplan_num_expired_reqs",
        "Requests whose blocks were freed early, as their lease ended; each worker counts.",
    ),
}
GAUGES = {
    HELD: ("vllm:kvplan_held_requests", "Requests whose blocks are held for another engine; each worker counts."),
    PENDING: ("vllm:kvplan_pending_loads", "Loads that wait for prefill or for bytes; each worker counts."),
    QUARANTINED: (
        "vllm:kvplan_quarantined_loads",
        "Failed loads whose blocks may still be written; each worker counts.",
    ),
}


class KvplanStats(KVConnectorStats):  # type: ignore[misc]
    """Measures of all workers of an engine."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data=data or measures.nothing())

    def reset(self) -> None:
        self.data = measures.nothing()

    def aggregate(self, other: KVConnectorStats) -> KvplanStats:
        measures.added(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        return measures.summary(self.data)

    def is_empty(self) -> bool:
        return measures.empty(self.data)


class KvplanPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The same measures for Prometheus, with a label for each engine."""

    def __init__(self, config: Any, types: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        super().__init__(config, types, labels, values)
        self._histograms = {
            name: self._of_engines(self._histogram_cls, title, text, labels, buckets=steps)
            for name, (title, text, steps) in HISTOGRAMS.items()
        }
        self._counters = {
            name: self._of_engines(self._counter_cls, title, text, labels) for name, (title, text) in COUNTERS.items()
        }
        # Each process that serves the API has the values of some steps: the last one counts, as for vLLM's own gauges.
        self._gauges = {
            name: self._of_engines(self._gauge_cls, title, text, labels, multiprocess_mode="mostrecent")
            for name, (title, text) in GAUGES.items()
        }

    def observe(self, transfer_stats_data: Mapping[str, list[float]], engine_idx: int = 0) -> None:
        for name, histogram in self._histograms.items():
            for value in transfer_stats_data[name]:
                histogram[engine_idx].observe(value)
        for name, counter in self._counters.items():
            counter[engine_idx].inc(sum(transfer_stats_data[name]))
        for name, gauge in self._gauges.items():
            gauge[engine_idx].set(sum(transfer_stats_data[name]))

    def _of_engines(self, kind: Any, title: str, text: str, labels: list[str], **more: Any) -> Any:
        """Return a metric by engine."""
        metric = kind(name=title, documentation=text, labelnames=labels, **more)
        return create_metric_per_engine(metric, self.per_engine_labelvalues)
