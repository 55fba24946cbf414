"""Predicted times from a profile: at the measured sizes, between them, and beyond them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.compiler.cost.profile import COLD_AFTER, cold_us, copy_us, transfer_us, wire_us
from kvplan.dsl.schema.machine import CopyRate, MachineProfile

PROFILE = MachineProfile(
    name="toy", transfer_us=0, slice_us=0, descriptor_us=2, wire=1e9,
    copies=(CopyRate(16, 1e9), CopyRate(64, 2e9), CopyRate(1024, 8e9)),
)  # fmt: skip


def test_requests_and_bytes_add_up() -> None:
    assert wire_us(PROFILE, 3, 4000) == pytest.approx(3 * 2 + 4)


def test_a_cold_transfer_takes_its_share_of_what_a_pause_costs_and_never_more() -> None:
    cold, after = replace(PROFILE, cold_us=800), 1e6 * COLD_AFTER
    assert [cold_us(cold, idle) for idle in (0.0, after / 4, after, 9 * after, float("inf"))] == [0, 200, 800, 800, 800]
    assert transfer_us(cold, 1, 1000) == transfer_us(PROFILE, 1, 1000)


@pytest.mark.parametrize("copy", PROFILE.copies)
def test_a_copy_that_was_measured_takes_what_it_took(copy: CopyRate) -> None:
    assert copy_us(PROFILE, 1 << 20, copy.together) == pytest.approx((1 << 20) / copy.rate * 1e6)


def test_between_two_a_span_takes_something_beside_its_bytes() -> None:
    # 16 at 1 GB/s and 64 at 2 GB/s are 16 and 32 ns a span: 10.67 ns and a third of a nanosecond a byte.
    assert copy_us(PROFILE, 32_000, 32) == pytest.approx(1000 * (32 / 3 + 32 / 3) / 1e3)


def test_shorter_spans_than_were_measured_are_no_cheaper_each() -> None:
    assert copy_us(PROFILE, 4000, 4) == pytest.approx(1000 * 16e-3)


def test_longer_spans_than_were_measured_are_no_faster() -> None:
    assert copy_us(PROFILE, 1 << 20, 1 << 20) == pytest.approx((1 << 20) / 8e9 * 1e6)


def test_one_measurement_is_enough() -> None:
    single = replace(PROFILE, copies=(CopyRate(64, 2e9),))
    assert copy_us(single, 2000, 64) == copy_us(single, 2000, 4096) == pytest.approx(1.0)
