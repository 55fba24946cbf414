"""The identity of an engine: its name, its run, and everything that must be equal on both sides of a pair."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from kvplan.plan.digest import LENGTH
from kvplan.plan.errors import DigestError
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.plans.catalog import PlanSource, Role

LONGEST = 256
# `revision_of` reads so many pieces of so many bytes from each file: at least one from every tensor of some megabytes.
PIECES, PIECE = 1024, 512
FORMATS = ((".safetensors",), (".gguf",), (".bin", ".pt", ".pth"))
OF_TRAINERS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


@dataclass(frozen=True, slots=True)
class Identity:
    """An engine's identity, the same for all its workers.

    The operator chooses `name`, and keeps it. `run` is new at each start: two runs of one name are a restart.
    `revision` is that of the model's weights (a commit, or `revision_of` a checkpoint), `scales` the digest of its
    per-tensor scales, empty without. `model` and `model_digest` come from the worker's plans if they are left empty.
    `settings` are other values, by name, that must be equal on both sides, such as the encoding of positions. Errors
    show them as text.
    """

    name: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    revision: str = ""
    scales: str = ""
    model: str = ""
    model_digest: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for what in ("name", "run", "revision", "scales", "model", "model_digest"):
            _check_text(what, getattr(self, what))
        for name, value in self.settings.items():
            _check_text("setting", name)
            _check_text(name, value)
        if not self.name or not self.run:
            raise HandshakeError("an engine has a name, and a run of its own")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str) or len(value.encode(errors="replace")) > LONGEST:
        raise HandshakeError(f"an engine's {what} is a text of at most {LONGEST} bytes")


def scales(values: Mapping[str, float]) -> str:
    """Return a digest of per-tensor scales by name, such as `model.layers.0.k_scale`, or an empty text for none.

    The order of names does not change it; any bit of a float64 does.
    """
    exact = {name: float(value).hex() for name, value in values.items()}
    return sha256(json.dumps(exact, sort_keys=True).encode()).hexdigest()[:LENGTH] if exact else ""


def revision_of(checkpoint: Path) -> str:
    """Return a `revision` for weights without a known commit: the digest of a checkpoint, a folder or one file.

    It covers the names and sizes of the files (of a single file, only the size) and pieces at equal distances: enough
    to tell a fine-tune from its base. It is empty if there are no weights. Raises OSError.
    """
    files, found = _weights(checkpoint), sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{'' if checkpoint.is_file() else file.name} {size}\n".encode())
        # Buffered reads would fetch many times as much.
        with file.open("rb", buffering=0) as opened:
            for number in range(PIECES):
                opened.seek(size * number // PIECES)
                found.update(opened.read(PIECE))
    return found.hexdigest()[:LENGTH] if files else ""


def _weights(checkpoint: Path) -> list[Path]:
    """Return the weight files of the first format found, sorted by name, without those that trainers add."""
    if checkpoint.is_file():
        return [checkpoint]
    there = [path for path in sorted(checkpoint.glob("*")) if path.name not in OF_TRAINERS]
    every = ([path for path in there if path.suffix in suffixes] for suffixes in FORMATS)
    return next((files for files in every if files), [])


def identified(identity: Identity, plans: PlanSource, role: Role, side: str) -> Identity:
    """Return `identity` with a model. If it names none, the model is that of the plans with this side.

    Raises DigestError if these plans have no single model, HandshakeError if it is not an Identity.
    """
    if not isinstance(identity, Identity):
        raise HandshakeError(f"an identity is an Identity(name, run, …), not {type(identity).__name__}")
    if identity.model_digest:
        return identity
    known = {name: digest for name, digest in plans.models(role, side) if identity.model in ("", name)}
    if len(known) != 1:
        have = ", ".join(sorted(known)) or "none"
        text = f"plans with {role} side {side} are of the models: {have}"
        raise DigestError(f"{text}: name one (Identity(model=…)), or compile a plan with this side")
    name, digest = known.popitem()
    return replace(identity, model=name, model_digest=digest)
