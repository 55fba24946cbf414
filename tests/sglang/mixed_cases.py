"""Cases of a vLLM and an SGLang engine as one pair, over HTTP and through `kvplan route`, as data."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sglang.cases import STAGED

VLLM, SGLANG = "vLLM", "SGLang"
LENGTHS = (200, 37, 128, 300)
# Times in which a request that was given up shows.
SHORT = {"timeout_s": 8, "lease_s": 5, "connect": 6}
# Longer than an engine of SGLang's may take to give back what it prefilled for nobody.
LEASED = {"lease_s": 15}


@dataclass(frozen=True, slots=True)
class MixedCase:
    """`prefill` is vLLM or SGLang, the other one decodes. vLLM has blocks of `block` tokens, SGLang pages of `page`.

    Answers have `count` tokens; the first `chats` prompts are also sent as a stream, and as a chat. `config` is both
    connectors', `vllm` are more words of vLLM's command line, `sglang` more options of SGLang's. With `triton` SGLang's
    recurrent layers run in Triton's interpreter. With `refused` a request fails, and a log has these words. With
    `leaves` clients leave at several moments first. With `doctor` engines are started by the lines that `kvplan doctor`
    prints. With `beside` SGLang's prefill engine also serves an SGLang engine with pages of so many tokens, by turns.
    """

    name: str
    prefill: str
    block: int
    page: int
    model: str = "qwen3"
    decode_model: str = ""
    lengths: tuple[int, ...] = LENGTHS
    count: int = 16
    chats: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    vllm: tuple[str, ...] = ()
    sglang: Mapping[str, Any] = field(default_factory=dict)
    triton: bool = False
    refused: str = ""
    leaves: bool = False
    doctor: bool = False
    beside: int = 0


def both_ways(block: int, page: int, what: str, **more: Any) -> Iterator[MixedCase]:
    """A pair either way round."""
    yield MixedCase(f"vLLM {block} → SGLang {page}, {what}", VLLM, block, page, **more)
    yield MixedCase(f"SGLang {page} → vLLM {block}, {what}", SGLANG, block, page, **more)


SIZES = ((32, 64), (32, 16), (64, 1))
MIXED = (
    *(case for sizes in SIZES for case in both_ways(*sizes, "direct")),
    *(case for sizes in SIZES for case in both_ways(*sizes, "staged", config=STAGED)),
    *both_ways(32, 64, "push", config={"mode": "push"}),
    *both_ways(32, 64, "tp 2 on SGLang's side", sglang={"tp_size": 2}),
    *both_ways(32, 64, "sliding and full", model="gemma3_tied"),
    *both_ways(64, 64, "Mamba-2 and attention", model="falcon_h1", lengths=(20, 70), count=4,
               vllm=("--no-enable-prefix-caching",), triton=True),
    *both_ways(32, 64, "by the lines of `kvplan doctor`", doctor=True),
    *both_ways(32, 64, "clients that leave at eight moments", lengths=(300, 37), leaves=True, config=SHORT),
    *both_ways(32, 64, "weights that differ", decode_model="qwen3_other", lengths=(37,), chats=0,
               refused="has revision", config=LEASED),
    *both_ways(32, 64, "rotary embeddings that differ", vllm=("--hf-overrides", '{"rope_theta": 20000}'), lengths=(37,),
               chats=0, refused="has rotary embedding", config=LEASED),
)  # fmt: skip
# Cases of which the time to the first token is taken.
TIMED_MIXED = tuple(case.name for case in MIXED[:2])
# One prefill engine for a decode engine of either kind.
SMALLEST = MixedCase("SGLang 16 → vLLM 32 and SGLang 64", SGLANG, 32, 16, lengths=(100, 37), count=8, beside=64)


def drawn(lengths: Sequence[int], seed: int = 1) -> list[list[int]]:
    """Prompts of these lengths."""
    dice = random.Random(seed)
    return [[dice.randrange(3, 500) for _ in range(length)] for length in lengths]
