"""Cases of real SGLang engines, as data: two engines, and the prompts that go through both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LENGTHS = (200, 37, 128, 300)
MANY = (1, 16, 17, 37, 63, 64, 65, 128, 200, 300, 400, 500)
RADIX = {"disable_radix_cache": False}
# A decode engine's own switch.
DECODE_RADIX = {"disaggregation_decode_enable_radix_cache": True}
THREADS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


@dataclass(frozen=True, slots=True)
class Case:
    """Two engines with these options, prompts of these lengths, sent `times` times, one by one or `together`.

    With `refused` every request has to fail, with these words in its error. `config` is the connector's, of both
    engines, `decode_config` that of decode.
    """

    name: str
    prefill: Mapping[str, Any]
    decode: Mapping[str, Any]
    model: str = "qwen3"
    decode_model: str = ""
    lengths: tuple[int, ...] = LENGTHS
    times: int = 1
    together: bool = False
    refused: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    prefill_environment: Mapping[str, str] = field(default_factory=dict)
    decode_environment: Mapping[str, str] = field(default_factory=dict)


def pages(first: int, second: int, **more: Any) -> Case:
    """A pair of page sizes."""
    return Case(f"pages {first} → {second}", {"page_size": first}, {"page_size": second}, **more)


CASES = (
    pages(16, 64),
    *(pages(first, second) for first in (1, 16, 64) for second in (1, 16, 64) if (first, second) != (16, 64)),
    Case("push, 16 → 64", {"page_size": 16}, {"page_size": 64}, config={"mode": "push"}),
    Case("16 → 64, 12 at once, prompts of 1 to 500 tokens, chunks of 256",
         {"page_size": 16, "chunked_prefill_size": 256}, {"page_size": 64}, lengths=MANY, together=True),
    Case("16 → 64, chunks of 64, radix hits on both sides, twice",
         {"page_size": 16, "chunked_prefill_size": 64, **RADIX}, {"page_size": 64, **DECODE_RADIX}, times=2),
    Case("tp 1 → 2, 16 → 64", {"page_size": 16}, {"page_size": 64, "tp_size": 2}, decode_environment=THREADS),
    Case("tp 2 → 1, 16 → 64", {"page_size": 16, "tp_size": 2}, {"page_size": 64}, prefill_environment=THREADS),
    Case("sliding and full, 16 → 64", {"page_size": 16}, {"page_size": 64}, model="gemma3"),
    Case("weights that differ", {"page_size": 16}, {"page_size": 64}, decode_model="qwen3_other",
         refused="has revision", lengths=(37,), config={"lease_s": 5}),
)  # fmt: skip
