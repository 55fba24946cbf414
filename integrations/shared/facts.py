"""An engine's own description of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine's description of itself, apart from its caches. `options` have the names of its layout file.

    `mesh` and `rank` are sizes and this worker's place by axis; `state_dtype` is the element type of recurrent states,
    `conv_dtype` that of convolution states, empty for the engine's own choice. `overrides` win over the
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
    """Return an element type, or another object of torch's, as dumps write it."""
    return str(value).removeprefix("torch.").replace("float8_e4m3fn", "fp8")
