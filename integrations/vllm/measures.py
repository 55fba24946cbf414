"""Measures of loads, failures and kept blocks between two calls of the engine."""

from __future__ import annotations

from collections.abc import Mapping

# By name: seconds and bytes of each load that arrived; failed loads, and holds that no engine fetched.
SECONDS, BYTES, FAILED, EXPIRED = "load_seconds", "loaded_bytes", "failed_loads", "expired_requests"
# How many requests are held, how many loads are pending, and how many failed loads may still be written.
HELD, PENDING, QUARANTINED = "held_requests", "pending_loads", "quarantined_loads"
GAUGES = (HELD, PENDING, QUARANTINED)
NAMES = (SECONDS, BYTES, FAILED, EXPIRED, *GAUGES)
Measures = dict[str, list[float]]


def nothing() -> Measures:
    return {name: [] for name in NAMES}


def added(measures: Measures, more: Mapping[str, list[float]]) -> None:
    """Add the measures of other workers in a step, or of later steps, whose gauges then say nothing."""
    for name in NAMES:
        measures[name].extend(more[name])
    for name in GAUGES:
        # vLLM's log adds to measures that are `empty`, for as long as they are.
        measures[name] = [sum(measures[name])]


def empty(measures: Mapping[str, list[float]]) -> bool:
    """Return whether a line of the log would have nothing to say."""
    return not any(values for name, values in measures.items() if name not in GAUGES)


def summary(measures: Mapping[str, list[float]]) -> dict[str, int | float]:
    """Return a few numbers for a line of the log."""
    seconds, size = sorted(measures[SECONDS]), sum(measures[BYTES])
    arrived: dict[str, int | float] = {
        "Loads": len(seconds),
        "Failed loads": int(sum(measures[FAILED])),
        "Expired requests": int(sum(measures[EXPIRED])),
    }
    if not seconds:
        return arrived
    average = sum(seconds) / len(seconds)
    times = {"Avg load (ms)": average * 1e3, "P90 load (ms)": seconds[int(0.9 * (len(seconds) - 1))] * 1e3}
    sizes = {"Avg MB per load": size / len(seconds) / 2**20, "MB/s": size / 2**20 / max(sum(seconds), 1e-9)}
    return {**arrived, **{name: round(value, 3) for name, value in {**times, **sizes}.items()}}
