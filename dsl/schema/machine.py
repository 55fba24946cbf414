"""The form of machine files: the measured cost of moving bytes on a machine."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.schema.forms import DocumentKeys, Form, FormKeys, ListShape, document, key
from kvplan.dsl.schema.shapes import TEXT, TRUTH, MeasureShape, WholeShape

TIME, NANOSECONDS = MeasureShape(WholeShape()), MeasureShape(WholeShape(), per=1000)
BYTES, RATE = WholeShape(1), MeasureShape(WholeShape(1), times=1_000_000)


@dataclass(frozen=True, slots=True)
class CopyRate(FormKeys):
    """The rate of a copy: pieces of `together` contiguous bytes are copied at `rate` bytes a second."""

    together: int = key(BYTES, "bytes that lie together on both sides of the copy", required=True)
    rate: float = key(RATE, "MB, millions of bytes, that are copied in a second", required=True)


COPY_RATE = Form("a copy", CopyRate)


@dataclass(frozen=True, slots=True)
class Measurement(FormKeys):
    machine: str = key(TEXT, "its processor, its cores, and what else they did", required=True)
    transport: str = key(TEXT, "what moved the bytes, with its release, and between what", required=True)
    memory: str = key(TEXT, "`DRAM` or `VRAM`, on either side", required=True)
    date: str = key(TEXT, "when", required=True)
    how: str = key(TEXT, "by which program, if not by `kvplan calibrate`")


MEASUREMENT = Form("a measurement", Measurement)


@dataclass(frozen=True, slots=True)
class MachineProfile(DocumentKeys):
    """The cost of moving bytes on a machine, in microseconds, and in bytes a second."""

    default: bool = key(TRUTH, "`true` in one machine's file: costs are its where no other is named")
    measured: Measurement = key(MEASUREMENT, "on what, and under which conditions", required=True)
    transfer_us: float = key(TIME, "microseconds that a transfer takes however little it moves", required=True)
    slice_us: float = key(TIME, "microseconds that each slice takes beside its descriptors", required=True)
    cold_us: float = key(
        TIME,
        "microseconds that a transfer takes beside `transfer_us` where its engines had none for 20 ms",
        default=0.0,
    )
    descriptor_us: float = key(
        NANOSECONDS, "nanoseconds that a descriptor takes beside its bytes", required=True, name="descriptor_ns"
    )
    wire: float = key(RATE, "MB, millions of bytes, that long descriptors move in a second", required=True)
    copies: tuple[CopyRate, ...] = key(
        ListShape(COPY_RATE, filled=True), "copies within memory, by rising bytes that lie together", required=True
    )

    @property
    def says(self) -> str:
        """The machine and the conditions of the measurement, in words."""
        told = self.measured
        return "; ".join(filter(None, (told.machine, told.transport, told.memory, told.date, told.how)))


MACHINE = document("machine", "a machine", "what moving costs on a machine: descriptors, bytes, copies", MachineProfile)
