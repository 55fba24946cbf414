"""What one worker of the rig is told when it starts, as plain values that JSON can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tests.runtime.plans import Model, Shape


@dataclass(frozen=True, slots=True)
class Setting:
    """One worker: `role` is prefill or decode. `odds` are chances of faults of the transport, by kind, of each post."""

    role: str
    number: int = 0
    name: str = "engine"
    run: str = "run"
    prefill: Shape = Shape(1)  # noqa: RUF009
    decode: Shape = Shape(1)  # noqa: RUF009
    model: Model = Model()  # noqa: RUF009
    logical: int = 40
    nixl: bool = True
    bind: str = "tcp://127.0.0.1:*"
    lease: float = 5.0
    admission: bool = False
    start: bool = True
    limits: dict[str, int] = field(default_factory=dict)
    odds: dict[str, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def shape(self) -> Shape:
        return self.prefill if self.role == "prefill" else self.decode


def plain(value: Setting) -> dict[str, Any]:
    return asdict(value)


def setting(values: dict[str, Any]) -> Setting:
    model = values["model"]
    made = {
        "prefill": Shape(**values["prefill"]),
        "decode": Shape(**values["decode"]),
        "model": Model(**{**model, "layers": tuple(model["layers"])}),
    }
    return Setting(**{**values, **made})
