"""Rates from times: those that made them, none below 0, and what is left over told."""

from __future__ import annotations

import pytest

from kvplan.calibrate.fit import TimedTransfer, fitted

COUNTS = [(1, 1, 1 << 24), (1, 1, 1 << 16), (16, 16, 1 << 24), (1, 16384, 1 << 21), (1, 2048, 1 << 24)]


def timed(transfer: float, slice_: float, request: float, byte: float) -> list[TimedTransfer]:
    return [
        TimedTransfer(slices, requests, size, transfer + slices * slice_ + requests * request + size * byte)
        for slices, requests, size in COUNTS
    ]


def test_times_that_add_up_give_their_rates_back() -> None:
    found = fitted(timed(1e-3, 1e-4, 9e-7, 1.6e-10))
    rates = found.transfer, found.slice, found.descriptor, found.byte
    assert rates == pytest.approx((1e-3, 1e-4, 9e-7, 1.6e-10), rel=1e-6)
    assert found.error < 1e-6


def test_what_a_pause_costs_is_beside_all_else() -> None:
    warm = timed(1e-3, 1e-4, 9e-7, 1.6e-10)
    slices, requests, size = 1, 128, 1 << 23
    took = 1e-3 + 1e-4 + requests * 9e-7 + size * 1.6e-10
    found = fitted([*warm, TimedTransfer(slices, requests, size, took + 8e-4, cold=True)])
    rates = found.transfer, found.slice, found.descriptor, found.byte, found.cold
    assert rates == pytest.approx((1e-3, 1e-4, 9e-7, 1.6e-10, 8e-4), rel=1e-6)
    assert fitted(warm).cold == 0


def test_what_takes_no_time_takes_none_and_never_less() -> None:
    times = timed(1e-3, 0.0, 9e-7, 1.6e-10)
    # Slices that were faster than one: noise.
    times[2] = TimedTransfer(times[2].slices, times[2].descriptors, times[2].bytes, times[2].seconds * 0.9)
    found = fitted(times)
    assert found.slice == 0
    assert min(found.transfer, found.descriptor, found.byte) > 0
    assert 0 < found.error < 0.11
