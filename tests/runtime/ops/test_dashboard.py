"""The names of metrics keep Prometheus' conventions, and the Grafana dashboard asks for those that there are."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest

from kvplan.runtime.ops.metrics import COUNTERS, GAUGES, HISTOGRAMS, Counters, Metric
from kvplan.runtime.ops.prometheus import PREFIX, RATIO, register

DASHBOARD: dict[str, Any] = json.loads(files("kvplan.runtime.ops").joinpath("grafana.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SELECTOR = re.compile(r"(kvplan_\w+)(?:\{([^}]*)\})?")
# Rules of promlint (prometheus, util/promlint): types that a name may not have, units that are no base units.
TYPES = {"counter", "gauge", "histogram", "summary"}
OTHER_UNITS = {
    "bits", "celsius", "day", "days", "hour", "hours", "kb", "kib", "kilobytes", "mb", "mib", "megabytes", "gb", "gib",
    "microseconds", "milliseconds", "minute", "minutes", "ms", "ns", "nanoseconds", "percent", "sec", "us", "week",
}  # fmt: skip
# Endings that only histograms and summaries have.
SUFFIXES = ("_bucket", "_count", "_sum", "_info", "_total")


def series() -> dict[str, Metric]:
    """Every name that Prometheus stores, and the metric that it is of."""
    named = {f"{PREFIX}{metric.name}_total": metric for metric in COUNTERS}
    named |= {f"{PREFIX}{one.name}_{part}": one for one in HISTOGRAMS for part in ("bucket", "count", "sum")}
    return named | {PREFIX + metric.name: metric for metric in (*GAUGES, RATIO)}


def problems(metric: Metric) -> list[str]:
    """The faults that promlint would find in a name, its help and its label."""
    words = metric.name.split("_")
    said = [f"{word} in the name" for word in words if word in TYPES | OTHER_UNITS]
    said += [f"{unit} is not its end" for unit in ("bytes", "seconds") if unit in words[:-1]]
    said += [f"it ends in {suffix}" for suffix in SUFFIXES if metric.name.endswith(suffix)]
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name) or not re.fullmatch(r"[a-z_]*", metric.label):
        said.append("letters of another kind")
    if metric.label in ("le", "quantile"):
        said.append(f"label {metric.label}")
    return said if metric.help else [*said, "no help"]


@pytest.mark.parametrize("metric", [*COUNTERS, *HISTOGRAMS, *GAUGES, RATIO], ids=lambda metric: metric.name)
def test_names_keep_the_conventions(metric: Metric) -> None:
    assert problems(metric) == []


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (Metric("posts_total", "Posts."), "it ends in _total"),
        (Metric("wait_ms", "Waits."), "ms in the name"),
        (Metric("bytes_moved", "Bytes."), "bytes is not its end"),
        (Metric("peers_gauge", "Peers."), "gauge in the name"),
        (Metric("heldLeases", "Leases."), "letters of another kind"),
        (Metric("peers", ""), "no help"),
        (Metric("peers", "Peers.", "le"), "label le"),
    ],
)
def test_names_that_do_not_are_found(metric: Metric, said: str) -> None:
    assert said in problems(metric)


def test_prometheus_reads_what_is_exposed() -> None:
    """By both of its parsers; that of OpenMetrics refuses names without their unit or `_total`."""
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    from prometheus_client.openmetrics import exposition
    from prometheus_client.openmetrics import parser as strict
    from prometheus_client.parser import text_string_to_metric_families

    counters, registry = Counters(), client.CollectorRegistry()
    for gauge in GAUGES:
        counters.gauge(gauge.name, lambda: 1)
    counters.add("spans")
    counters.add("posts")
    register(counters, registry)
    for families in (
        list(text_string_to_metric_families(client.generate_latest(registry).decode())),
        list(strict.text_string_to_metric_families(exposition.generate_latest(registry).decode())),
    ):
        assert {sample.name for family in families for sample in family.samples} == set(series())
        assert all(family.type in ("counter", "gauge", "histogram") for family in families)
    assert {family.name: family.unit for family in families} == {
        PREFIX + metric.name: metric.unit for metric in (*COUNTERS, *HISTOGRAMS, *GAUGES, RATIO)
    }


@pytest.mark.parametrize("query", QUERIES)
def test_the_dashboard_asks_for_what_there_is(query: str) -> None:
    known = series()
    assert SELECTOR.search(query)
    for name, selector in SELECTOR.findall(query):
        assert name in known
        matched = re.findall(r'(\w+)=~?"([^"]*)"', selector)
        assert dict(matched).keys() >= {"job", "instance"}
        for label, values in [pair for pair in matched if pair[0] not in ("job", "instance")]:
            assert label == known[name].label
            assert set(values.split("|")) <= set(known[name].values)
    labels = {label for names in re.findall(r"by \((\w+)\)", query) for label in names.split(", ")}
    assert labels <= {"le", "instance", *(known[name].label for name, _ in SELECTOR.findall(query))}


def test_counters_are_asked_for_as_rates() -> None:
    for query in QUERIES:
        for name in re.findall(r"kvplan_\w+_(?:total|bucket)", query):
            assert re.search(rf"(rate|increase)\({name}\{{", query), query


def test_every_metric_is_shown() -> None:
    shown = {series()[name] for query in QUERIES for name, _ in SELECTOR.findall(query)}
    assert shown == set(series().values())


def test_units_of_panels_are_those_of_their_metrics() -> None:
    for panel in PANELS:
        (unit, *others) = {series()[name].unit for t in panel["targets"] for name, _ in SELECTOR.findall(t["expr"])}
        assert not others
        shown = panel["fieldConfig"]["defaults"]["unit"]
        assert {"bytes": shown in ("bytes", "Bps"), "seconds": shown == "s", "": shown not in ("bytes", "Bps", "s")}[
            unit
        ]


def test_panels_have_places_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 10
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
