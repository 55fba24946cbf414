"""The form of fleet files: engines, pairs of sides to choose from, and the traffic to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.forms import DocumentKeys, Form, FormKeys, ListShape, MaybeShape, document, key
from kvplan.dsl.schema.shapes import TEXT, TRUTH, MeasureShape, NameShape, ScalarShape, TextShape, WholeShape, WordShape

COUNT, FIGURE, MB = WholeShape(1), WholeShape(0), 1_000_000
ROUTERS = ("round_robin", "least_loaded", "most_free_blocks")
MODES = ("pull", "push")


@dataclass(frozen=True, slots=True)
class Rails(FormKeys):
    """Network cards of one engine: `count` of them, each `rate` bytes a second."""

    count: int = key(COUNT, "network cards of one engine", required=True)
    rate: float = key(
        MeasureShape(COUNT, times=MB), "MB, millions of bytes, that one of them moves in a second", required=True
    )


RAILS = Form("rails", Rails)


@dataclass(frozen=True, slots=True)
class PrefillFigures(FormKeys):
    """Figures of the prefill engines of a fleet, as their owner knows them."""

    engines: int = key(COUNT, "how many there are", default=1)
    cache_tokens: int = key(COUNT, "tokens that the KV blocks of one engine hold", default=262_144)
    tokens_per_s: int = key(COUNT, "tokens of prompts that one engine computes in a second", default=10_000)
    lease_s: int = key(COUNT, "seconds that a computed prompt is held for decode to claim it", default=120)
    rails: Rails | None = key(MaybeShape(RAILS), "its network cards; without them its bytes are copied by processors")


@dataclass(frozen=True, slots=True)
class DecodeFigures(FormKeys):
    """Figures of the decode engines of a fleet, as their owner knows them."""

    engines: int = key(COUNT, "how many there are", default=1)
    cache_tokens: int = key(COUNT, "tokens that the KV blocks of one engine hold", default=262_144)
    us_per_token: int = key(FIGURE, "microseconds of one step, which is a token each", default=20_000)
    sequences: int = key(COUNT, "requests that one engine has at once", default=256)
    rails: Rails | None = key(MaybeShape(RAILS), "its network cards; without them its bytes are copied by processors")


PREFILL_ENGINE = Form("a prefill engine in a fleet file", PrefillFigures)
DECODE_ENGINE = Form("a decode engine in a fleet file", DecodeFigures)


@dataclass(frozen=True, slots=True)
class EngineFigures(FormKeys):
    prefill: PrefillFigures = key(PREFILL_ENGINE, "engines that compute prompts")
    decode: DecodeFigures = key(DECODE_ENGINE, "engines that go on from there")

    def above(self, base: EngineFigures) -> EngineFigures:
        """The figures of `base`, replaced by those that are given here."""
        return replace(base, prefill=self.prefill.over(base.prefill), decode=self.decode.over(base.decode))


ENGINES = Form("engines", EngineFigures)


@dataclass(frozen=True, slots=True)
class FleetCandidate(FormKeys):
    """A pair of sides that a fleet could have; each text is one side or a product."""

    name: str = key(TextShape("name", LABEL.pattern), "what it is called; its sides and what else it says if not given")
    prefill: str = key(ScalarShape("side"), "the side that has the cache", required=True)
    decode: str = key(ScalarShape("side"), "the side that needs it", required=True)
    strategy: str = key(WordShape(("direct", "auto", "unpack", "pack")), "how bytes travel; `direct` if not given")
    elect: str = key(WordShape(("one", "spread")), "how readers are spread over equal holders; `one` if not given")
    mode: str = key(WordShape(MODES), "who moves the bytes: decode reads, or prefill writes; `pull` if not given")
    layer_by_layer: bool = key(TRUTH, "`true`: layers move while later ones are computed")
    engines: EngineFigures = key(ENGINES, "figures of engines that differ where it is chosen")

    @property
    def options(self) -> Mapping[str, str]:
        """The compile options of the pair."""
        return {"strategy": self.strategy, "elect": self.elect}


CANDIDATE = Form("a candidate", FleetCandidate)


@dataclass(frozen=True, slots=True)
class PoissonTraffic(FormKeys):
    """Random arrivals of a Poisson process."""

    per_minute: int = key(COUNT, "requests that arrive in a minute, in the mean", required=True)
    requests: int = key(COUNT, "how many there are", required=True)
    input: int = key(COUNT, "tokens of a prompt in the mean; lengths are spread exponentially", required=True)
    output: int = key(COUNT, "tokens of an answer in the mean; lengths are spread exponentially", required=True)
    seed: int = key(FIGURE, "which of all such arrivals", default=0)


POISSON = Form("poisson arrivals", PoissonTraffic)


@dataclass(frozen=True, slots=True)
class Traffic(FormKeys):
    """Requests that arrive: those in the file `trace`, or random ones."""

    trace: str = key(TextShape("path"), "the path of a trace in Mooncake's format, from the fleet file's folder on")
    first: int | None = key(COUNT, "how many of its requests count; all if not given")
    percent: int = key(COUNT, "its pace: 200 is twice as fast as it was recorded", default=100)
    poisson: PoissonTraffic | None = key(MaybeShape(POISSON), "arrivals that are drawn, in place of a trace")


TRAFFIC = Form("traffic", Traffic)


@dataclass(frozen=True, slots=True)
class FleetLimits(FormKeys):
    bytes_per_peer: int | None = key(COUNT, "bytes in flight to or from one peer")
    bytes_total: int | None = key(COUNT, "bytes in flight in all")
    slice_bytes: int | None = key(COUNT, "bytes of one read or write")
    requests: int | None = key(COUNT, "requests that one prefill worker holds")


LIMITS = Form("limits", FleetLimits)


@dataclass(frozen=True, slots=True)
class FleetFile(DocumentKeys):
    """A fleet file; `machine` is empty for the default machine."""

    title: str = key(TEXT, "what it is called, for people")
    model: str = key(NameShape("model"), "the model that is served", required=True)
    machine: str = key(
        NameShape("machine"), "whose profile says what moving costs; the default one if not given", default=""
    )
    cores: int | None = key(
        COUNT, "processor cores that all workers share, where they run on one machine; each has one if not given"
    )
    router: str = key(WordShape(ROUTERS), "how a request finds its engines; `round_robin` if not given")
    limits: FleetLimits = key(LIMITS, "limits of each worker, as the runtime's `Limits`")
    engines: EngineFigures = key(ENGINES, "figures of the engines, as their owner knows them")
    candidates: tuple[FleetCandidate, ...] = key(
        ListShape(CANDIDATE, filled=True), "pairs to choose from", required=True
    )
    traffic: Traffic = key(TRAFFIC, "what arrives", required=True)


FLEET = document(
    "fleet", "a fleet", "engines, the traffic they are to serve, and the pairs of sides to choose from", FleetFile
)
