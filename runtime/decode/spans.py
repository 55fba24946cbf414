"""OpenTelemetry spans of transfers, each from its submission to its end."""

from __future__ import annotations

from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.tracing import SpanStart

NAME = "kvplan transfer"


def follow(transfer: Transfer, worker: int, began: SpanStart) -> None:
    """Make the span of a transfer when it ends, which may be now. Not within a turn."""
    transfer.on_end(lambda ended: _tell(ended, worker, began))


def _tell(transfer: Transfer, worker: int, began: SpanStart) -> None:
    error = transfer.error
    attributes: dict[str, str | int] = {"worker": worker, "request": str(getattr(transfer.request, "id", ""))}
    if transfer.parts:
        engine = transfer.engine
        attributes |= {"peer": engine.name, "mode": "push" if engine.push else "pull", "bytes": transfer.bytes}
    if error is not None:
        attributes["code"] = error.code
    how = tracing.end(transfer.state.value, "" if error is None else str(error))
    tracing.tell(NAME, began, how, attributes)
