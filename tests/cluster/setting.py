"""The settings of one worker of the rig, as plain values that JSON can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import zmq
from tests.runtime.helpers.plans import Model, Shape

from kvplan.runtime.control.keys import Keys, Plain


@dataclass(frozen=True, slots=True)
class Setting:
    """One worker: `role` is prefill or decode. `odds` are chances of faults of the transport, by kind, of each post.

    `keys` are its public key, its secret one, and the one that it lets in or connects to; None where it has no keys.
    """

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
    start: bool = True
    limits: dict[str, int] = field(default_factory=dict)
    odds: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    keys: tuple[str, str, str] | None = None

    @property
    def shape(self) -> Shape:
        return self.prefill if self.role == "prefill" else self.decode


def pairs(secure: bool) -> dict[str, tuple[str, str, str] | None]:
    """Keys that know each other, by role: all decode engines have one pair. Empty without keys."""
    if not secure:
        return {"prefill": None, "decode": None}
    (theirs, secret), (ours, other) = ([half.decode() for half in zmq.curve_keypair()] for _ in range(2))
    return {"prefill": (theirs, secret, ours), "decode": (ours, other, theirs)}


def keys(value: Setting) -> Keys | Plain:
    if value.keys is None:
        return Plain()
    public, secret, other = (key.encode() for key in value.keys)
    return Keys(public, secret, frozenset({other}))


def plain(value: Setting) -> dict[str, Any]:
    return asdict(value)


def setting(values: dict[str, Any]) -> Setting:
    model = values["model"]
    made = {
        "prefill": Shape(**values["prefill"]),
        "decode": Shape(**values["decode"]),
        "model": Model(**{**model, "layers": tuple(model["layers"])}),
    }
    pair = None if values["keys"] is None else tuple(values["keys"])
    return Setting(**{**values, **made, "keys": pair})
