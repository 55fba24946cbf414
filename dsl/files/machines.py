"""Read machine files: the measured cost of moving bytes on a machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from kvplan.dsl.schema.machine import MACHINE, MachineProfile
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import YamlTable


def parse_machine(sink: Sink, root: YamlTable, name: str) -> MachineProfile:
    """The machine's profile, with every error in the sink."""
    profile = MACHINE.read(sink, root)
    wrong = {fault.span for fault in sink.errors}
    read = [copy for copy in profile.copies if "together" in copy.given and copy.given["together"].span not in wrong]
    # Bytes that do not rise (K013).
    for before, copy in pairwise(read):
        if copy.together <= before.together:
            message = f"together must rise from copy to copy, not from {before.together} to {copy.together}"
            sink.add("K013", message, copy.given["together"].span)
    return replace(profile, name=name)
