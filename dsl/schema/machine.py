"""The form of machine files: what moving bytes costs on a machine, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.schema.shapes import TEXT, TRUTH, DocumentKeys, Form, FormKeys, ListShape, WholeShape, document, key

TIME, RATE = WholeShape(), WholeShape(1)


@dataclass(frozen=True, slots=True)
class CopyRateKeys(FormKeys):
    together: int | None = key(RATE, "bytes that lie together on both sides of the copy", required=True)
    rate: int | None = key(RATE, "MB, millions of bytes, that are copied in a second", required=True)


COPY_RATE = Form("a copy", CopyRateKeys)


@dataclass(frozen=True, slots=True)
class MeasurementKeys(FormKeys):
    machine: str = key(TEXT, "its processor, its cores, and what else they did", required=True)
    transport: str = key(TEXT, "what moved the bytes, with its release, and between what", required=True)
    memory: str = key(TEXT, "`DRAM` or `VRAM`, on either side", required=True)
    date: str = key(TEXT, "when", required=True)
    how: str = key(TEXT, "by which program, if not by `kvplan calibrate`")


MEASUREMENT = Form("a measurement", MeasurementKeys)


@dataclass(frozen=True, slots=True)
class MachineKeys(DocumentKeys):
    default: bool = key(TRUTH, "`true` in one machine's file: costs are its where no other is named")
    measured: MeasurementKeys = key(MEASUREMENT, "on what, and under which conditions", required=True)
    transfer_us: int | None = key(TIME, "microseconds that a transfer takes however little it moves", required=True)
    slice_us: int | None = key(TIME, "microseconds that each slice takes beside its descriptors", required=True)
    cold_us: int | None = key(
        TIME, "microseconds that a transfer takes beside `transfer_us` where its engines had none for 20 ms"
    )
    descriptor_ns: int | None = key(TIME, "nanoseconds that a descriptor takes beside its bytes", required=True)
    wire: int | None = key(RATE, "MB, millions of bytes, that long descriptors move in a second", required=True)
    copies: tuple[CopyRateKeys, ...] = key(
        ListShape(COPY_RATE, filled=True), "copies within memory, by rising bytes that lie together", required=True
    )


MACHINE = document("machine", "a machine", "what moving costs on a machine: descriptors, bytes, copies", MachineKeys)
