"""The runtime's counters for Prometheus, through prometheus-client (the extra `metrics`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvplan.runtime.errors import MetricsMissingError
from kvplan.runtime.ops.metrics import COUNTERS, GAUGES, HISTOGRAMS, Counters, Metric

PREFIX = "kvplan_"
RATIO = Metric("merge_ratio", "Contiguous spans per descriptor posted: what merging saves.")
# All metrics by Prometheus' types.
SORTS = {"counter": COUNTERS, "histogram": HISTOGRAMS, "gauge": (*GAUGES, RATIO)}


@dataclass(frozen=True, slots=True)
class PrometheusCollector:
    """A prometheus_client collector of `counters`. A registry takes one, so workers of a process share counters."""

    counters: Counters

    def collect(self) -> Iterator[Any]:
        """The metric families, read from one snapshot."""
        core, found = _module("prometheus_client.core"), self.counters.snapshot()
        for metric in SORTS["counter"]:
            yield _counter(core, metric, found[metric.name])
        for metric in SORTS["histogram"]:
            yield _histogram(core, metric, found[metric.name])
        for metric in SORTS["gauge"]:
            # A gauge that cannot be read now is left out, because a 0 would be false.
            if found[metric.name] is not None:
                yield core.GaugeMetricFamily(*_described(metric), value=found[metric.name], unit=metric.unit)


def register(counters: Counters, registry: Any = None) -> PrometheusCollector:
    """Add `counters` to a prometheus_client registry, the default one with None, and return their collector.

    Raises MetricsMissingError without prometheus-client, ValueError if the registry already has a `kvplan_` metric.
    """
    client, collector = _module("prometheus_client"), PrometheusCollector(counters)
    (client.REGISTRY if registry is None else registry).register(collector)
    return collector


def metrics_page(counters: Counters) -> Any:
    """Return a WSGI application that serves only these counters. Raises MetricsMissingError."""
    client = _module("prometheus_client")
    registry = client.CollectorRegistry(auto_describe=True)
    register(counters, registry)
    return client.make_wsgi_app(registry)


def _counter(core: Any, metric: Metric, value: Any) -> Any:
    if not metric.label:
        return core.CounterMetricFamily(*_described(metric), value=value, unit=metric.unit)
    family = core.CounterMetricFamily(*_described(metric), labels=[metric.label], unit=metric.unit)
    for label, count in value.items():
        family.add_metric([label], count)
    return family


def _histogram(core: Any, metric: Metric, value: Any) -> Any:
    buckets = list(value["buckets"].items())
    return core.HistogramMetricFamily(*_described(metric), buckets=buckets, sum_value=value["sum"], unit=metric.unit)


def _described(metric: Metric) -> tuple[str, str]:
    return PREFIX + metric.name, metric.help


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MetricsMissingError(f"no prometheus-client ({error}): pip install 'kvplan[metrics]'") from error
