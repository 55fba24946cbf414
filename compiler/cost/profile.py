"""What moving takes on a machine, by its profile: descriptors and bytes on the wire, bytes copied. Microseconds."""

from __future__ import annotations

from bisect import bisect_right

from kvplan.dsl.schema.machine import MachineProfile

# Seconds without a transfer after which an engine is cold: the code and data that it needs have left the processor's
# caches. Measured between engines alone it took 100 ms, beside others that move in turns 20; longer cost no more.
COLD_AFTER = 0.02


def wire_us(profile: MachineProfile, descriptors: int, size: int) -> float:
    """What `descriptors` descriptors of `size` bytes in all take."""
    return descriptors * profile.descriptor_us + size / profile.wire * 1e6


def transfer_us(profile: MachineProfile, descriptors: int, size: int) -> float:
    """What a transfer of `descriptors` descriptors of `size` bytes in all takes in one slice, from submit to done."""
    return profile.transfer_us + profile.slice_us + wire_us(profile, descriptors, size)


def cold_us(profile: MachineProfile, idle_us: float) -> float:
    """What a transfer takes beside `transfer_us` whose engines had none for `idle_us` microseconds."""
    return profile.cold_us * min(1.0, idle_us / (1e6 * COLD_AFTER))


def copy_us(profile: MachineProfile, size: int, together: int) -> float:
    """What a copy of `size` bytes takes of which `together` lie together: between the nearest that were measured."""
    at = bisect_right(profile.copies, together, key=lambda copy: copy.together)
    if at == 0:
        # No span takes less than the shortest that was measured.
        least = profile.copies[0]
        return size / least.rate * least.together / together * 1e6
    if at == len(profile.copies):
        return size / profile.copies[-1].rate * 1e6
    low, high = profile.copies[at - 1 : at + 1]
    # Time per byte falls as spans grow: what is fixed per span is shared out over its bytes.
    share = (1 / together - 1 / high.together) / (1 / low.together - 1 / high.together)
    return size * (share / low.rate + (1 - share) / high.rate) * 1e6
