"""Times on a machine by its profile, in microseconds: descriptors and bytes on the wire, bytes copied."""

from __future__ import annotations

from bisect import bisect_right

from kvplan.dsl.schema.machine import MachineProfile

# Seconds without a transfer after which an engine is cold: its code and data have left the processor's caches.
# Measured: 100 ms for engines alone, 20 ms beside others that move in turns; longer waits cost no more.
COLD_AFTER = 0.02


def wire_us(profile: MachineProfile, descriptors: int, size: int) -> float:
    """Return the time of `descriptors` descriptors of `size` bytes in all."""
    return descriptors * profile.descriptor_us + size / profile.wire * 1e6


def transfer_us(profile: MachineProfile, descriptors: int, size: int) -> float:
    """Return the time from submit to done of a one-slice transfer of `descriptors` descriptors, `size` bytes in all."""
    return profile.transfer_us + profile.slice_us + wire_us(profile, descriptors, size)


def cold_us(profile: MachineProfile, idle_us: float) -> float:
    """Return the time to add to `transfer_us` if the engines had no transfer for `idle_us` microseconds."""
    return profile.cold_us * min(1.0, idle_us / (1e6 * COLD_AFTER))


def copy_us(profile: MachineProfile, size: int, together: int) -> float:
    """Return the time of copying `size` bytes in spans of `together` bytes, between the nearest measured spans."""
    at = bisect_right(profile.copies, together, key=lambda copy: copy.together)
    if at == 0:
        # No span takes less time than the shortest measured one.
        least = profile.copies[0]
        return size / least.rate * least.together / together * 1e6
    if at == len(profile.copies):
        return size / profile.copies[-1].rate * 1e6
    low, high = profile.copies[at - 1 : at + 1]
    # The time per byte falls as spans grow, because a span's fixed cost is divided among its bytes.
    share = (1 / together - 1 / high.together) / (1 / low.together - 1 / high.together)
    return size * (share / low.rate + (1 - share) / high.rate) * 1e6
