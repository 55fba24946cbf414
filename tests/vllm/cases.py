"""The cases as data: which two engines, and what is asked of them. A case's name is its row in docs/vllm.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Connector(Enum):
    """The connector that moves the pages: vLLM's class, and its module if not in vLLM."""

    KVPLAN = "kvplan"
    NIXL = "NixlConnector"


@dataclass(frozen=True)
class Side:
    """One engine. `chunk`: the most tokens of a step; `blocks`: of its pool, the null block included."""

    block: int | None = 32
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    chunk: int = 1024
    blocks: int = 512
    max_model_len: int = 1024
    environment: tuple[tuple[str, str], ...] = ()
    drafts: tuple[tuple[str, Any], ...] = ()  # speculative_config, its `model` by the name of one of models.py


@dataclass(frozen=True)
class Setup:
    """Two engines of one model. `tokens_decide`: where not, its engine is no oracle, and only bytes are judged.

    `logprob_gap`: in float32 those of right transfers differ by 1e-5 at most, of wrong ones by 1. `pages_known`: the
    oracle knows how kernels fill a page (pages.py).
    """

    model: str
    prefill: Side = Side()
    decode: Side = Side()
    mode: str = "pull"
    strategy: str = ""  # that plans are compiled with, the default without
    policy: str = "fail"  # kv_load_failure_policy
    lease_s: int = 30  # what a loaded machine needs; a case that waits for its end has less
    dtype: str = "float32"
    prefix_caching: bool = True
    tokens_decide: bool = True
    logprob_gap: float = 1e-3
    pages_known: bool = True
    layout: str = ""  # the model's file in `layouts`, where its configuration does not tell all; else found
    unsent: str = ""  # how names of layers begin that decode has alone
    two_keys: bool = False  # of --kv-transfer-config: connector and role, all else is found
    tier: str = ""  # a TIERS of both engines, beside the connector, in vLLM's MultiConnector; `tier_first`: asked first
    tier_first: bool = False
    next_turn: bool = False  # both engines do both, and decode keeps what it has for the next turn's prefill
    as_nixl: bool = False  # by the name that programs know which do not know kvplan
    device: str = "cpu"
    environment: tuple[tuple[str, str], ...] = ()
    llm: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Prompts:
    """Prompts of these lengths, one after the other or all at once; `tokens` are generated.

    `known_to_decode` and `known_to_prefill` tokens of each were computed there before, so that they are hits.
    """

    lengths: tuple[int, ...]
    tokens: int = 16
    at_once: bool = False
    known_to_decode: int = 0
    known_to_prefill: int = 0
    again: int = 0  # how often the same prompts come once more
    extended: bool = False  # then decode computes by itself a longer prompt that begins with each
    preempts: bool = False  # decode has to preempt for this to mean anything


@dataclass(frozen=True)
class Conversation:
    """Turns of a conversation: each prompt is the one before, its answer of `tokens` tokens, and `more`.

    The first prompt has `length`. Before each later turn prefill forgets all that it has, so that it can only have it
    from decode; `lost` is a turn before which decode is asked in vain, as its lease has ended.
    """

    length: int
    turns: int = 3
    tokens: int = 16
    more: int = 37
    lost: int = 0
    known_to_prefill: bool = False  # it does not forget, and loads what was generated alone


@dataclass(frozen=True)
class HandOver:
    """Prompts of these lengths, of which `tokens` are generated on two engines: a request moves to the other engine,
    and back, each time after it was computed for `after` seconds, and the engine that it comes to has forgotten all.
    """

    lengths: tuple[int, ...]
    tokens: int = 300
    after: float = 0.3


@dataclass(frozen=True)
class Tiered:
    """Prompts of these lengths: from prefill; then, each time after both pools were cleared, from decode's tier for
    decode alone, and from prefill's tier by way of prefill.
    """

    lengths: tuple[int, ...]
    hits_on_decode: bool = True  # with windows, what was loaded from prefill is found nowhere again


@dataclass(frozen=True)
class Aborts:
    """A prompt that is aborted on one side after so many of its steps, for each number; then one that is not."""

    side: str
    after: tuple[int, ...]
    length: int = 300


class Stage(Enum):
    """How far a request is when it is aborted: first those on prefill, then those on decode."""

    QUEUED = "queued on prefill"
    CHUNK = "one chunk of several computed on prefill"
    HELD = "held on prefill, whose client is gone"
    BEING_READ = "held on prefill, whose client is gone, while decode reads it"
    MEETING = "decode meets prefill"
    WAITING_FOR_HOLD = "decode waits until prefill holds it"
    BEING_LOADED = "bytes move"
    LOADED = "all is there, and it was not scheduled yet"
    RUNNING = "decode computes its tokens"


@dataclass(frozen=True)
class AbortsAt:
    """Prompts that are aborted at a stage, each; then one that is not. A stage that is not met is no answer."""

    stages: tuple[Stage, ...]
    length: int = 900


@dataclass(frozen=True)
class Together:
    """Prompts that a router sends to both engines at once, decode first: it names them and where prefill answers.

    One side gives the request up after so many of its steps, for each number; then come those that nobody does.
    """

    lengths: tuple[int, ...]
    tokens: int = 16
    at_once: bool = False
    side: str = "prefill"
    aborted_after: tuple[int, ...] = ()
    known_to_decode: int = 0
    known_to_prefill: int = 0
    preempts: bool = False  # prefill generates so much beside them that it has to preempt


class Fault(Enum):
    """The event between a right request and the next one, which has to be right."""

    PREFILL_KILLED = "the prefill engine is killed before the load"
    PREFILL_KILLED_IN_LOAD = "the prefill engine is killed during the load"
    DECODE_KILLED = "the decode engine is killed during the load"
    PREFILL_FROZEN = "the prefill engine is frozen (SIGSTOP) before the load"
    DECODE_FROZEN = "the decode engine is frozen during the load, for longer than the lease"
    NEVER_FETCHED = "nobody fetches what prefill holds"


class Mistake(Enum):
    """A setting that kvplan has to refuse with an error that has a code, at start or with the first request."""

    UNKNOWN_KEY = "decode's key is not known to prefill"
    PLAN_MISSING = "there is no plan, and none is compiled"
    LAYOUT_DIFFERS = "the layout file has one KV head more than the model"
    WEIGHTS_DIFFER = "prefill serves a fine-tune of the model"
    SLEEP = "the engine is to be put to sleep, which before vLLM 0.33 gives memory away that others read"
    NOT_PROBED = "caches of fp8: how kernels for cores fill their pages was not probed"


class Router(Enum):
    """The router that sends a request to prefill and then to decode: its fields and headers differ a little."""

    TOY = "vLLM's toy proxy"
    LLM_D = "the sidecar of llm-d's router"
    LLM_D_2025 = "llm-d's routing sidecar of 2025, which leaves max_completion_tokens as it is on prefill"


class Call(Enum):
    """A call of a client to a router."""

    COMPLETION = "a completion"
    COMPLETION_STREAMED = "a completion in events"
    CHAT = "a chat with max_completion_tokens"
    CHAT_STREAMED = "the same in events"
    TWO_ANSWERS = "two answers to one prompt, sampled with a seed"
    LEFT_AT_ONCE = "a completion whose client is gone at once"
    LEFT_IN_STREAM = "a completion whose client is gone after two events"
    NEVER_FETCHED = "what prefill holds is not fetched"
    REJECTED = "a completion that is longer than decode's context, which prefill is not told"


@dataclass(frozen=True)
class Served:
    """Calls to two `vllm serve`, over HTTP. Metrics of both have to agree with what was asked."""

    router: Router
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Case:
    name: str
    setup: Setup
    play: Prompts | Conversation | HandOver | Tiered | Aborts | AbortsAt | Together | Fault | Mistake | Served
    connectors: tuple[Connector, ...] = tuple(Connector)
    smallest: bool = False  # CI runs it


PLAIN = Prompts((200, 37, 128, 300))
SHORT = Prompts((1, 2, 31, 32, 33, 64, 65))
QWEN = Setup("qwen3")
UNLIKE = replace(QWEN, decode=Side(64))
OTHER_WAY = replace(QWEN, prefill=Side(64))
TWO_KEYS = replace(UNLIKE, two_keys=True)
PUSH = replace(UNLIKE, mode="push")
DS = (("VLLM_SSM_CONV_STATE_LAYOUT", "DS"),)
GEMMA = Setup("gemma3")
NEMOTRON = Setup("nemotron_h", prefix_caching=False, environment=DS)
FALCON = Setup("falcon_h1", prefix_caching=False, environment=DS)
DELTA = Setup(
    "qwen3_next", Side(None, blocks=64), Side(None, blocks=64),
    dtype="bfloat16", prefix_caching=False, tokens_decide=False, environment=DS,
)  # fmt: skip
LATENT = Setup(
    "deepseek", Side(None, blocks=160), Side(None, blocks=160),
    tokens_decide=False, llm=(("attention_backend", "CPU_MLA"),),
)  # fmt: skip
TIERED = Tiered((200, 37, 128, 300))
NGRAMS = (("method", "ngram"), ("num_speculative_tokens", 3), ("prompt_lookup_max", 4))
SMALL = (("method", "draft_model"), ("num_speculative_tokens", 3), ("model", "qwen3_small"))
DRAFTED = Setup("qwen3", Side(drafts=SMALL), Side(64, drafts=SMALL), layout="two-drafts")
EAGLE = (("method", "eagle"), ("num_speculative_tokens", 3), ("model", "qwen3_eagle"))
EAGLE3 = (("method", "eagle3"), ("num_speculative_tokens", 3), ("model", "qwen3_eagle3"))
HEADED = Setup("qwen3", Side(drafts=EAGLE3), Side(64, drafts=EAGLE3), layout="one-draft")
MTP = (("method", "mtp"), ("num_speculative_tokens", 1))
MTP_4 = (("method", "mtp"), ("num_speculative_tokens", 4))
PREDICTS = Setup("ernie", Side(drafts=MTP), Side(64, drafts=MTP), layout="one-draft")
PREDICTS_TWICE = Setup("glm", Side(drafts=MTP_4), Side(64, drafts=MTP_4), layout="two-drafts")
DELTA_SIDE, LATENT_SIDE = replace(DELTA.prefill, drafts=MTP), replace(LATENT.prefill, drafts=MTP)
DELTA_MTP = replace(DELTA, model="qwen3_next_mtp", prefill=DELTA_SIDE, decode=DELTA_SIDE, layout="qwen3-next-mtp")
DELTA_PROMPTS = Prompts((385, 200, 37))
LATENT_MTP = replace(LATENT, model="deepseek_mtp", prefill=LATENT_SIDE, decode=LATENT_SIDE, layout="deepseek-mtp")
NEXT_TURN = replace(QWEN, next_turn=True)
TALK = Conversation(200)
MOVES = HandOver((200, 37))
TOGETHER = Together((200, 37, 128, 300))
QUICK = replace(UNLIKE, lease_s=8)
QUICK_LIKE = replace(QWEN, lease_s=8)
CHUNKED = replace(UNLIKE, prefill=Side(chunk=64))
CHUNKED_PUSH = replace(CHUNKED, mode="push", lease_s=8)
RECOMPUTE = replace(QUICK, policy="recompute")
QUICK_PUSH = replace(PUSH, lease_s=8)
ON_PREFILL = (Stage.QUEUED, Stage.CHUNK, Stage.HELD, Stage.BEING_READ)
ON_DECODE = (Stage.MEETING, Stage.WAITING_FOR_HOLD, Stage.BEING_LOADED, Stage.LOADED, Stage.RUNNING)
# Cases without a comparison: the other connector is wrong without a fault, or has no such setting.
KVPLAN = (Connector.KVPLAN,)

CASES: tuple[Case, ...] = (
    Case("blocks 32 → 32", QWEN, PLAIN),
    Case("32 → 32, the same prompt twice", QWEN, Prompts((200, 128), again=1)),
    Case("32 → 32, hits on decode: part of the prompt", QWEN, Prompts((200, 300), known_to_decode=100)),
    Case("32 → 32, 16 at once", QWEN, Prompts((200,) * 16, at_once=True)),
    Case("32 → 32, chunked prefill", replace(QWEN, prefill=Side(chunk=64)), Prompts((200, 37, 128, 900))),
    Case("32 → 32, preempted on decode", replace(QWEN, decode=Side(blocks=40)),
         Prompts((400, 380, 360, 340), tokens=200, at_once=True, preempts=True)),
    Case("blocks 32 → 64", UNLIKE, PLAIN, smallest=True),
    Case("32 → 64, prompts of 1 to 65 tokens", UNLIKE, SHORT),
    Case("32 → 64, hits on decode: part of a block", UNLIKE, Prompts((200, 300, 90), known_to_decode=80)),
    Case("32 → 64, hits on decode: all but the last token", UNLIKE, Prompts((129, 193), known_to_decode=192)),
    Case("32 → 64, hits on decode: the whole prompt", UNLIKE, Prompts((128, 192), known_to_decode=192)),
    Case("32 → 64, hits on prefill", UNLIKE, Prompts((200, 300), known_to_prefill=150)),
    Case("32 → 64, the same prompt twice", UNLIKE, Prompts((200, 128), again=1), smallest=True),
    Case("32 → 64, then longer prompts on decode", UNLIKE, Prompts((200, 300), extended=True), KVPLAN),
    Case("32 → 64, one token is asked for", UNLIKE, Prompts((200, 37), tokens=1)),
    Case("32 → 64, 16 at once", UNLIKE, Prompts((200,) * 16, at_once=True)),
    Case("32 → 64, 64 at once", UNLIKE, Prompts((37, 90, 128, 200) * 16, at_once=True)),
    Case("blocks 64 → 32", OTHER_WAY, PLAIN),
    Case("64 → 32, prompts of 1 to 65 tokens", OTHER_WAY, SHORT),
    Case("32 → 64, chunked prefill", CHUNKED, Prompts((200, 37, 128, 900))),
    Case("32 → 64, chunked prefill, aborted on prefill", replace(CHUNKED, lease_s=8),
         Aborts("prefill", (0, 1, 2, 4), length=900)),
    Case("32 → 64, preempted on decode", replace(UNLIKE, decode=Side(64, blocks=20)),
         Prompts((400, 380, 360, 340), tokens=200, at_once=True, preempts=True)),
    Case("push, 32 → 64", PUSH, PLAIN),
    Case("push, 32 → 64, 16 at once", PUSH, Prompts((200,) * 16, at_once=True)),
    Case("push, 32 → 64, aborted on decode", replace(PUSH, lease_s=8), Aborts("decode", (0, 1, 2, 3, 5, 9))),
    Case("push, 32 → 32", replace(QWEN, mode="push"), PLAIN),
    Case("by way of decode's stage, 32 → 64", replace(UNLIKE, strategy="unpack"), PLAIN, KVPLAN),
    Case("by way of prefill's stage, 64 → 32", replace(OTHER_WAY, strategy="pack"), PLAIN, KVPLAN),
    Case("push by way of decode's stage, 64 → 32", replace(OTHER_WAY, mode="push", strategy="unpack"), PLAIN, KVPLAN),
    Case("push by way of prefill's stage, 32 → 64", replace(PUSH, strategy="pack"), PLAIN, KVPLAN),
    Case("layer by layer by way of decode's stage, 32 → 64", replace(CHUNKED_PUSH, strategy="unpack"),
         TOGETHER, KVPLAN),
    Case("three turns, prefill loads what decode has, 32 → 32", NEXT_TURN, TALK, KVPLAN),
    Case("three turns, prefill loads what decode has, 32 → 64", replace(NEXT_TURN, decode=Side(64)), TALK, KVPLAN,
         smallest=True),
    Case("three turns, prefill loads what decode has, 64 → 32, push",
         replace(NEXT_TURN, prefill=Side(64), mode="push"), TALK, KVPLAN),
    Case("three turns, 32 → 64, prefill has the prompt and loads the answer", replace(NEXT_TURN, decode=Side(64)),
         replace(TALK, known_to_prefill=True), KVPLAN),
    Case("three turns, 32 → 64, chunked prefill", replace(NEXT_TURN, prefill=Side(chunk=64), decode=Side(64)),
         Conversation(500), KVPLAN),
    Case("three turns, 32 → 64, the second one after the lease", replace(NEXT_TURN, decode=Side(64), lease_s=8),
         replace(TALK, lost=1), KVPLAN),
    Case("handed over while it generates, 32 → 64 → 32", replace(NEXT_TURN, decode=Side(64)), MOVES, KVPLAN),
    Case("handed over, tp 2 → 1 → 2", replace(NEXT_TURN, decode=Side(tp=2)), MOVES, KVPLAN),
    Case("handed over, Mamba-2 and attention", replace(NEMOTRON, next_turn=True), MOVES, KVPLAN),
    Case("three turns, sliding and full, 32 → 64", replace(GEMMA, decode=Side(64), next_turn=True), TALK, KVPLAN),
    Case("three turns, Mamba-2 and attention", replace(NEMOTRON, next_turn=True), TALK, KVPLAN),
    Case("layer by layer, 32 → 64", PUSH, TOGETHER, KVPLAN),
    Case("layer by layer, pull, 32 → 64", UNLIKE, TOGETHER, KVPLAN),
    Case("layer by layer, 32 → 64, chunked prefill", CHUNKED_PUSH, Together((200, 37, 128, 900)), KVPLAN),
    Case("layer by layer, 32 → 64, 16 at once", CHUNKED_PUSH, Together((200,) * 16, at_once=True), KVPLAN),
    Case("layer by layer, 32 → 64, hits on decode", CHUNKED_PUSH, Together((200, 300), known_to_decode=100), KVPLAN),
    Case("layer by layer, 32 → 64, hits on prefill", CHUNKED_PUSH, Together((200, 300), known_to_prefill=150), KVPLAN),
    Case("layer by layer, 32 → 64, chunked prefill, aborted on prefill", replace(CHUNKED_PUSH, policy="recompute"),
         Together((900,), aborted_after=(0, 1, 2, 4)), KVPLAN),
    Case("layer by layer, 32 → 64, chunked prefill, aborted on decode", CHUNKED_PUSH,
         Together((900,), side="decode", aborted_after=(0, 1, 3, 9)), KVPLAN),
    Case("layer by layer, 32 → 64, preempted on prefill",
         replace(CHUNKED_PUSH, prefill=Side(chunk=64, blocks=60)),
         Together((900,) * 5, at_once=True, preempts=True), KVPLAN),
    Case("layer by layer, sliding and full, 32 → 64", replace(GEMMA, prefill=Side(chunk=64), decode=Side(64)),
         TOGETHER, KVPLAN),
    Case("layer by layer, Mamba-2 and attention", NEMOTRON, TOGETHER, KVPLAN),
    Case("layer by layer, tp 2 → 1, 32 → 64", replace(CHUNKED_PUSH, prefill=Side(chunk=64, tp=2)), TOGETHER, KVPLAN),
    Case("sliding and full, 32 → 32", GEMMA, PLAIN),
    Case("sliding and full, 32 → 32, hits on decode", GEMMA, Prompts((200, 300), known_to_decode=100)),
    Case("sliding and full, 32 → 32, then longer prompts on decode", GEMMA, Prompts((200, 300, 161), extended=True)),
    Case("sliding and full, 32 → 64, then longer prompts on decode", replace(GEMMA, decode=Side(64)),
         Prompts((200, 300, 193), extended=True), KVPLAN),
    Case("sliding and full, 32 → 64", replace(GEMMA, decode=Side(64)), PLAIN),
    Case("Mamba-2 and attention", NEMOTRON, PLAIN, smallest=True),
    Case("Mamba-2 and attention, prompts of 1 to 65 tokens", NEMOTRON, SHORT),
    Case("Mamba-2 and attention, aborted on decode", replace(NEMOTRON, lease_s=8), Aborts("decode", (0, 1, 2, 3, 5))),
    Case("Mamba-2 beside attention in each layer", FALCON, PLAIN),
    Case("gated delta net, bf16, by bytes", DELTA, DELTA_PROMPTS),
    Case("MLA, by bytes", LATENT, Prompts((200, 37, 128, 300))),
    Case("drafts of n-grams, 32 → 64", Setup("qwen3", Side(drafts=NGRAMS), Side(64, drafts=NGRAMS)), PLAIN),
    Case("drafts of n-grams on decode alone, 32 → 64", Setup("qwen3", Side(), Side(64, drafts=NGRAMS)), PLAIN),
    Case("drafts of a small model, 32 → 32", replace(DRAFTED, decode=Side(drafts=SMALL)), PLAIN),
    Case("drafts of a small model, 32 → 64", DRAFTED, PLAIN),
    Case("drafts of a small model, 32 → 64, 16 at once", DRAFTED, Prompts((200,) * 16, at_once=True)),
    Case("drafts of a small model, 32 → 64, hits on decode", DRAFTED, Prompts((200, 300, 90), known_to_decode=80)),
    Case("drafts of a small model on decode alone, 32 → 64", replace(DRAFTED, prefill=Side(), unsent="draft_model."),
         PLAIN, KVPLAN),
    Case("EAGLE, 32 → 64", replace(HEADED, prefill=Side(drafts=EAGLE), decode=Side(64, drafts=EAGLE)), PLAIN, KVPLAN),
    Case("EAGLE-3, 32 → 32", replace(HEADED, decode=Side(drafts=EAGLE3)), PLAIN),
    Case("EAGLE-3, 32 → 64", HEADED, PLAIN, KVPLAN),
    Case("EAGLE-3, 32 → 64, prompts of 1 to 65 tokens", HEADED, SHORT, KVPLAN),
    Case("EAGLE-3, 32 → 64, hits on decode", HEADED, Prompts((200, 300, 90), known_to_decode=80), KVPLAN),
    Case("EAGLE-3, tp 1 → 2, 32 → 64", replace(HEADED, decode=Side(64, tp=2, drafts=EAGLE3)), PLAIN, KVPLAN),
    Case("EAGLE-3, tp 2 → 1, 32 → 64", replace(HEADED, prefill=Side(tp=2, drafts=EAGLE3)), PLAIN, KVPLAN),
    Case("EAGLE-3 on decode alone, 32 → 64", replace(HEADED, prefill=Side(), unsent="model.layers.4."), PLAIN, KVPLAN),
    Case("EAGLE-3 on prefill alone, 32 → 64", replace(HEADED, decode=Side(64)), PLAIN, KVPLAN),
    Case("MTP, 32 → 32", replace(PREDICTS, decode=Side(drafts=MTP)), PLAIN),
    Case("MTP, 32 → 64", PREDICTS, PLAIN, KVPLAN),
    Case("MTP, 32 → 64, 16 at once", PREDICTS, Prompts((200,) * 16, at_once=True), KVPLAN),
    Case("MTP, tp 1 → 2, 32 → 64", replace(PREDICTS, decode=Side(64, tp=2, drafts=MTP)), PLAIN, KVPLAN),
    Case("MTP, tp 2 → 1, 32 → 64", replace(PREDICTS, prefill=Side(tp=2, drafts=MTP)), PLAIN, KVPLAN),
    Case("MTP on decode alone, 32 → 64", replace(PREDICTS, prefill=Side(), unsent="model.layers.4."), PLAIN, KVPLAN),
    Case("MTP on decode alone, pp 2 → 1, 32 → 64",
         replace(PREDICTS, prefill=Side(pp=2), unsent="model.layers.4."), PLAIN, KVPLAN),
    Case("MTP on prefill alone, pp 1 → 2, 32 → 64", replace(PREDICTS, decode=Side(64, pp=2)), PLAIN, KVPLAN),
    Case("MTP of two layers and four tokens, 32 → 64", PREDICTS_TWICE, PLAIN, KVPLAN),
    Case("MTP with a gated delta net, bf16, by bytes", DELTA_MTP, DELTA_PROMPTS, KVPLAN),
    Case("MTP with a gated delta net, tp 1 → 2, bf16, by bytes",
         replace(DELTA_MTP, decode=replace(DELTA_SIDE, tp=2)), DELTA_PROMPTS, KVPLAN),
    Case("MTP with a gated delta net, tp 2 → 1, bf16, by bytes",
         replace(DELTA_MTP, prefill=replace(DELTA_SIDE, tp=2)), DELTA_PROMPTS, KVPLAN),
    Case("MTP with a gated delta net on decode alone, bf16, by bytes",
         replace(DELTA_MTP, prefill=DELTA.prefill, unsent="mtp."), DELTA_PROMPTS, KVPLAN),
    Case("MTP with MLA, by bytes", LATENT_MTP, PLAIN, KVPLAN),
    Case("MTP with MLA, tp 1 → 2, by bytes", replace(LATENT_MTP, decode=replace(LATENT_SIDE, tp=2)), PLAIN, KVPLAN),
    Case("tp 2 → 1, 32 → 64", replace(UNLIKE, prefill=Side(tp=2)), PLAIN),
    Case("tp 1 → 2, 32 → 64", replace(UNLIKE, decode=Side(64, tp=2)), PLAIN),
    Case("tp 1 → 2, 32 → 32", replace(QWEN, decode=Side(tp=2)), PLAIN),
    Case("tp 2 → 2, 32 → 64", Setup("qwen3", Side(tp=2), Side(64, tp=2)), PLAIN),
    Case("pp 1 → 2, 32 → 64", replace(UNLIKE, decode=Side(64, pp=2)), PLAIN, KVPLAN),
    Case("pp 2 → 1, 32 → 64", replace(UNLIKE, prefill=Side(pp=2)), PLAIN, KVPLAN),
    Case("beside an offload tier, 32 → 32", replace(QWEN, tier="memory"), TIERED),
    Case("beside an offload tier, 32 → 64", replace(UNLIKE, tier="memory"), TIERED, KVPLAN),
    Case("beside an offload tier, push, 32 → 64", replace(PUSH, tier="memory"), TIERED, KVPLAN),
    Case("beside an offload tier that is asked first, 32 → 64", replace(UNLIKE, tier="memory", tier_first=True),
         TIERED, KVPLAN),
    Case("beside an offload tier, layer by layer, 32 → 64", replace(CHUNKED_PUSH, tier="memory"), TOGETHER, KVPLAN),
    Case("beside an offload tier, sliding and full, 32 → 64", replace(GEMMA, decode=Side(64), tier="memory"),
         replace(TIERED, hits_on_decode=False), KVPLAN),
    Case("beside an offload tier, tp 2 → 1, 32 → 64", replace(UNLIKE, prefill=Side(tp=2), tier="memory"),
         TIERED, KVPLAN),
    Case("beside an offload tier, 32 → 64, 16 at once", replace(UNLIKE, tier="memory"),
         Prompts((200,) * 16, at_once=True), KVPLAN),
    Case("beside an offload tier, 32 → 64, preempted on decode",
         replace(UNLIKE, decode=Side(64, blocks=20), tier="memory"),
         Prompts((400, 380, 360, 340), tokens=200, at_once=True, preempts=True), KVPLAN),
    Case("beside an offload tier, 32 → 64, aborted on prefill", replace(QUICK, tier="memory"),
         Aborts("prefill", (0, 1)), KVPLAN),
    Case("beside an offload tier, 32 → 64, aborted on decode", replace(QUICK, tier="memory"),
         Aborts("decode", (0, 1, 2, 3, 5, 9)), KVPLAN),
    Case("beside an offload tier, prefill killed in the load, recompute", replace(RECOMPUTE, tier="memory"),
         Fault.PREFILL_KILLED_IN_LOAD, KVPLAN),
    Case("by the name NixlConnector, 32 → 64", replace(UNLIKE, as_nixl=True), PLAIN, KVPLAN),
    Case("by the name NixlConnector, beside an offload tier, 32 → 64", replace(UNLIKE, as_nixl=True, tier="memory"),
         TIERED, KVPLAN),
    Case("beside files that vLLM's example keeps, 32 → 64",
         replace(UNLIKE, tier="files", prefix_caching=False, llm=(("disable_hybrid_kv_cache_manager", True),)),
         TIERED, KVPLAN),
    Case("32 → 64, aborted on prefill", QUICK, Aborts("prefill", (0, 1)), KVPLAN),
    Case("32 → 64, aborted on decode", QUICK, Aborts("decode", (0, 1, 2, 3, 5, 9)), KVPLAN),
    Case("32 → 64, never fetched", QUICK, Fault.NEVER_FETCHED, KVPLAN),
    Case("prefill killed, fail", QUICK, Fault.PREFILL_KILLED, KVPLAN),
    Case("prefill killed, recompute", RECOMPUTE, Fault.PREFILL_KILLED, KVPLAN),
    Case("prefill killed in the load, fail", QUICK, Fault.PREFILL_KILLED_IN_LOAD, KVPLAN),
    Case("prefill killed in the load, recompute", RECOMPUTE, Fault.PREFILL_KILLED_IN_LOAD, KVPLAN),
    Case("prefill frozen, fail", QUICK, Fault.PREFILL_FROZEN, KVPLAN),
    Case("prefill frozen, recompute", RECOMPUTE, Fault.PREFILL_FROZEN, KVPLAN),
    Case("decode killed in the load", QUICK, Fault.DECODE_KILLED, KVPLAN),
    Case("decode frozen in the load", QUICK, Fault.DECODE_FROZEN, KVPLAN),
    Case("aborted at every stage on prefill", replace(CHUNKED, lease_s=8), AbortsAt(ON_PREFILL), KVPLAN),
    Case("aborted at every stage on decode", QUICK, AbortsAt(ON_DECODE), KVPLAN),
    Case("push, aborted at every stage on prefill", replace(QUICK_PUSH, prefill=Side(chunk=64)),
         AbortsAt(ON_PREFILL), KVPLAN),
    Case("push, aborted at every stage on decode", QUICK_PUSH, AbortsAt(ON_DECODE), KVPLAN),
    Case("push, prefill killed in the load, fail", QUICK_PUSH, Fault.PREFILL_KILLED_IN_LOAD, KVPLAN),
    Case("push, prefill frozen, fail", QUICK_PUSH, Fault.PREFILL_FROZEN, KVPLAN),
    Case("push, decode killed in the load", QUICK_PUSH, Fault.DECODE_KILLED, KVPLAN),
    Case("push, decode frozen in the load", QUICK_PUSH, Fault.DECODE_FROZEN, KVPLAN),
    Case("like blocks: aborted on decode", QUICK_LIKE, Aborts("decode", (0, 1, 2, 3, 5, 9))),
    Case("like blocks: never fetched", QUICK_LIKE, Fault.NEVER_FETCHED),
    Case("like blocks: prefill killed, fail", QUICK_LIKE, Fault.PREFILL_KILLED),
    Case("like blocks: prefill killed, recompute", replace(QUICK_LIKE, policy="recompute"), Fault.PREFILL_KILLED),
    Case("like blocks: prefill frozen, fail", QUICK_LIKE, Fault.PREFILL_FROZEN),
    Case("like blocks: decode killed in the load", QUICK_LIKE, Fault.DECODE_KILLED),
    Case("like blocks: decode frozen in the load", QUICK_LIKE, Fault.DECODE_FROZEN),
    Case("a key that is not known", UNLIKE, Mistake.UNKNOWN_KEY, KVPLAN),
    Case("a plan that is missing", UNLIKE, Mistake.PLAN_MISSING, KVPLAN),
    Case("a layout that differs by one number", UNLIKE, Mistake.LAYOUT_DIFFERS, KVPLAN),
    Case("weights that differ", UNLIKE, Mistake.WEIGHTS_DIFFER, KVPLAN),
    Case("fp8 caches, whose pages were not probed", replace(UNLIKE, llm=(("kv_cache_dtype", "fp8"),)),
         Mistake.NOT_PROBED, KVPLAN),
    Case("vllm serve with two keys, toy proxy", TWO_KEYS, Served(Router.TOY, (Call.COMPLETION, Call.CHAT)), KVPLAN,
         smallest=True),
    Case("vllm serve with two keys, tp 2 → 1", replace(TWO_KEYS, prefill=Side(tp=2)),
         Served(Router.LLM_D, (Call.COMPLETION,)), KVPLAN),
    Case("vllm serve, toy proxy", UNLIKE, Served(Router.TOY, (Call.COMPLETION, Call.CHAT)), KVPLAN),
    Case("vllm serve, toy proxy, streamed", UNLIKE,
         Served(Router.TOY, (Call.COMPLETION_STREAMED, Call.CHAT_STREAMED)), KVPLAN),
    Case("vllm serve, toy proxy, two answers to a prompt", UNLIKE,
         Served(Router.TOY, (Call.TWO_ANSWERS, Call.COMPLETION)), KVPLAN),
    Case("vllm serve, toy proxy, clients that leave", UNLIKE,
         Served(Router.TOY, (Call.LEFT_AT_ONCE, Call.LEFT_IN_STREAM, Call.COMPLETION)), KVPLAN),
    Case("vllm serve, as llm-d's router asks", UNLIKE,
         Served(Router.LLM_D, (Call.COMPLETION, Call.CHAT, Call.CHAT_STREAMED)), KVPLAN),
    Case("vllm serve, as llm-d's sidecar of 2025 asks", UNLIKE,
         Served(Router.LLM_D_2025, (Call.COMPLETION, Call.CHAT, Call.CHAT_STREAMED)), KVPLAN),
    Case("vllm serve, toy proxy, rejected on decode", UNLIKE,
         Served(Router.TOY, (Call.REJECTED, Call.COMPLETION)), KVPLAN),
    Case("vllm serve, never fetched", UNLIKE, Served(Router.TOY, (Call.NEVER_FETCHED, Call.COMPLETION)), KVPLAN),
)  # fmt: skip
