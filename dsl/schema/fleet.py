"""The form of fleet files: engines, pairs of sides to choose from, and the traffic that they are to serve."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.shapes import (
    TEXT,
    TRUTH,
    DocumentKeys,
    Form,
    FormKeys,
    ListShape,
    NameShape,
    ScalarShape,
    WholeShape,
    WordShape,
    document,
    key,
)
from kvplan.dsl.text.yaml_reader import YamlScalar

COUNT, FIGURE = WholeShape(1), WholeShape(0)
ROUTERS = ("round_robin", "least_loaded", "most_free_blocks")
MODES = ("pull", "push")


@dataclass(frozen=True, slots=True)
class RailsKeys(FormKeys):
    count: int | None = key(COUNT, "network cards of one engine", required=True)
    rate: int | None = key(COUNT, "MB, millions of bytes, that one of them moves in a second", required=True)


RAILS = Form("rails", RailsKeys)


@dataclass(frozen=True, slots=True)
class PrefillEngineKeys(FormKeys):
    engines: int | None = key(COUNT, "how many there are; 1 if not given")
    cache_tokens: int | None = key(COUNT, "tokens that the KV blocks of one engine hold; 262,144 if not given")
    tokens_per_s: int | None = key(COUNT, "tokens of prompts that one engine computes in a second; 10,000 if not given")
    lease_s: int | None = key(COUNT, "seconds that a computed prompt is held for decode to claim it; 120 if not given")
    rails: RailsKeys = key(RAILS, "its network cards; without them its bytes are copied by processors")


@dataclass(frozen=True, slots=True)
class DecodeEngineKeys(FormKeys):
    engines: int | None = key(COUNT, "how many there are; 1 if not given")
    cache_tokens: int | None = key(COUNT, "tokens that the KV blocks of one engine hold; 262,144 if not given")
    us_per_token: int | None = key(FIGURE, "microseconds of one step, which is a token each; 20,000 if not given")
    sequences: int | None = key(COUNT, "requests that one engine has at once; 256 if not given")
    rails: RailsKeys = key(RAILS, "its network cards; without them its bytes are copied by processors")


PREFILL_ENGINE = Form("a prefill engine", PrefillEngineKeys)
DECODE_ENGINE = Form("a decode engine", DecodeEngineKeys)


@dataclass(frozen=True, slots=True)
class EnginesKeys(FormKeys):
    prefill: PrefillEngineKeys = key(PREFILL_ENGINE, "engines that compute prompts")
    decode: DecodeEngineKeys = key(DECODE_ENGINE, "engines that go on from there")


ENGINES = Form("engines", EnginesKeys)


@dataclass(frozen=True, slots=True)
class CandidateKeys(FormKeys):
    name: YamlScalar | None = key(
        ScalarShape("name", LABEL.pattern), "what it is called; its sides and what else it says if not given"
    )
    prefill: YamlScalar | None = key(ScalarShape("side"), "the side that has the cache", required=True)
    decode: YamlScalar | None = key(ScalarShape("side"), "the side that needs it", required=True)
    strategy: str = key(WordShape(("direct", "auto", "unpack", "pack")), "how bytes travel; `direct` if not given")
    elect: str = key(WordShape(("one", "spread")), "how readers are spread over equal holders; `one` if not given")
    mode: str = key(WordShape(MODES), "who moves the bytes: decode reads, or prefill writes; `pull` if not given")
    layer_by_layer: bool = key(TRUTH, "`true`: layers move while later ones are computed")
    engines: EnginesKeys = key(ENGINES, "figures of engines that differ where it is chosen")


CANDIDATE = Form("a candidate", CandidateKeys)


@dataclass(frozen=True, slots=True)
class PoissonKeys(FormKeys):
    per_minute: int | None = key(COUNT, "requests that arrive in a minute, in the mean", required=True)
    requests: int | None = key(COUNT, "how many there are", required=True)
    input: int | None = key(COUNT, "tokens of a prompt in the mean; lengths are spread exponentially", required=True)
    output: int | None = key(COUNT, "tokens of an answer in the mean; lengths are spread exponentially", required=True)
    seed: int | None = key(FIGURE, "which of all such arrivals; 0 if not given")


POISSON = Form("poisson arrivals", PoissonKeys)


@dataclass(frozen=True, slots=True)
class TrafficKeys(FormKeys):
    trace: YamlScalar | None = key(
        ScalarShape("path"), "the path of a trace in Mooncake's format, from the fleet file's folder on"
    )
    first: int | None = key(COUNT, "how many of its requests count; all if not given")
    percent: int | None = key(COUNT, "its pace: 200 is twice as fast as it was recorded; 100 if not given")
    poisson: PoissonKeys = key(POISSON, "arrivals that are drawn, in place of a trace")


TRAFFIC = Form("traffic", TrafficKeys)


@dataclass(frozen=True, slots=True)
class LimitKeys(FormKeys):
    bytes_per_peer: int | None = key(COUNT, "bytes in flight to or from one peer")
    bytes_total: int | None = key(COUNT, "bytes in flight in all")
    slice_bytes: int | None = key(COUNT, "bytes of one read or write")
    requests: int | None = key(COUNT, "requests that one prefill worker holds")


LIMITS = Form("limits", LimitKeys)


@dataclass(frozen=True, slots=True)
class FleetKeys(DocumentKeys):
    title: str = key(TEXT, "what it is called, for people")
    model: YamlScalar | None = key(NameShape("model"), "the model that is served", required=True)
    machine: YamlScalar | None = key(
        NameShape("machine"), "whose profile says what moving costs; the default one if not given"
    )
    cores: int | None = key(
        COUNT, "processor cores that all workers share, where they run on one machine; each has one if not given"
    )
    router: str = key(WordShape(ROUTERS), "how a request finds its engines; `round_robin` if not given")
    limits: LimitKeys = key(LIMITS, "limits of each worker, as the runtime's `Limits`")
    engines: EnginesKeys = key(ENGINES, "figures of the engines, as their owner knows them")
    candidates: tuple[CandidateKeys, ...] = key(
        ListShape(CANDIDATE, filled=True), "pairs to choose from", required=True
    )
    traffic: TrafficKeys = key(TRAFFIC, "what arrives", required=True)


FLEET = document(
    "fleet", "a fleet", "engines, the traffic they are to serve, and the pairs of sides to choose from", FleetKeys
)
