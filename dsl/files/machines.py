"""Machine files: what moving bytes costs there, as it was measured."""

from __future__ import annotations

from itertools import pairwise

from kvplan.dsl.model import MachineProfile
from kvplan.dsl.schema.machine import MACHINE, MachineKeys, MeasurementKeys
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import YamlTable

MB = 1e6


def parse_machine(sink: Sink, root: YamlTable, name: str) -> MachineProfile:
    """A machine's profile, with every error in the sink."""
    keys = MACHINE.read(sink, root)
    _check_copies(sink, keys)
    return MachineProfile(
        name=name,
        title=keys.title,
        says=_conditions(keys.measured),
        transfer_us=float(keys.transfer_us or 0),
        slice_us=float(keys.slice_us or 0),
        descriptor_us=(keys.descriptor_ns or 0) / 1000,
        wire=(keys.wire or 1) * MB,
        cold_us=float(keys.cold_us or 0),
        copies=tuple((copy.together or 1, (copy.rate or 1) * MB) for copy in keys.copies),
    )


def _conditions(measured: MeasurementKeys) -> str:
    told = measured.machine, measured.transport, measured.memory, measured.date, measured.how
    return "; ".join(filter(None, told))


def _check_copies(sink: Sink, keys: MachineKeys) -> None:
    """Report bytes that do not rise (K013)."""
    read = [(copy.together, copy.given["together"]) for copy in keys.copies if copy.together is not None]
    for (before, _), (together, place) in pairwise(read):
        if together <= before:
            message = f"together must rise from copy to copy, not from {before} to {together}"
            sink.add("K013", message, place.span)
