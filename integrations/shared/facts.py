"""What an engine says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself beside its caches: `options` by the names that its layout file has for them.

    `mesh` and `rank` are sizes and this worker's place by axis; `state_dtype` is what recurrent states are kept in, and
    `conv_dtype` what convolution states are, empty for the engine's own choice. `overrides` are given over the
    checkpoint's configuration, whose path is `config`.
    """

    name: str
    version: str
    platform: str
    config: str
    dtype: str
    mesh: Mapping[str, int]
    rank: Mapping[str, int]
    options: Mapping[str, str]
    state_dtype: str = ""
    conv_dtype: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)


def plain_word(value: object) -> str:
    """An element type, or another object of torch's, as dumps have it."""
    return str(value).removeprefix("torch.").replace("float8_e4m3fn", "fp8")
