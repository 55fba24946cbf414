"""Clocks of leases: time in which nobody listened is none."""

from __future__ import annotations

from itertools import pairwise

from kvplan.runtime.prefill.lease_clock import LeaseClock


class Machine:
    """A clock, and a pulse that stands while the machine sleeps."""

    def __init__(self) -> None:
        self.time, self.slept = 1000.0, 0.0

    def clock(self) -> float:
        return self.time

    def pulse(self) -> float:
        return self.time - self.slept


def test_time_in_which_nobody_listened_is_none() -> None:
    machine = Machine()
    clock = LeaseClock(machine.clock, 10.0, machine.pulse)
    times = [clock.advance()]
    for gap in (0.5, 30.0, 1.0, 0.0, 2.5):
        machine.time += gap
        times += [clock(), clock.advance(), clock()]
    assert times[::3] == [1000, 1000.5, 1001.5, 1002.5, 1002.5, 1003.5]
    assert all(before <= after for before, after in pairwise(times))


def test_a_machine_that_sleeps_lets_time_pass() -> None:
    machine = Machine()
    clock = LeaseClock(machine.clock, 10.0, machine.pulse)
    machine.time += 30
    machine.slept += 30
    assert clock() == clock.advance() == 1030


def test_unread_messages_delay_the_end_of_a_lease_by_one_lease_at_most() -> None:
    machine = Machine()
    clock = LeaseClock(machine.clock, 10.0, machine.pulse)
    heard = [clock.heard_until(clock.advance(), unread=False)]
    for gap, unread in ((1.0, True), (8.0, True), (2.0, True), (1.0, False)):
        machine.time += gap
        machine.slept += gap
        heard.append(clock.heard_until(clock.advance(), unread=unread))
    assert heard == [1000, 1000, 1000, 1001, 1012]
