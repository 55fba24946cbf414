"""The typed model of layout files: frozen values; `span` says where one was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kvplan.dsl.lang.evaluate import is_true
from kvplan.dsl.lang.nodes import Expr, Storage, Value
from kvplan.dsl.lang.storage import Fragment
from kvplan.dsl.schema.engine import LayoutChoice, MeshRules, Probed, Requirement, Serve
from kvplan.dsl.schema.kind import KindDoubt, NeedsRule
from kvplan.dsl.schema.model import CHECKPOINT, RemarkRule
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import YamlScalar

EMPTY: Mapping[str, Expr] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a kind or an option of an engine. `type`: int, dtype, name or sizes; `default` None: required."""

    name: str
    type: str
    default: Expr | None
    values: tuple[str, ...]
    aliases: Mapping[str, str]
    doc: str
    doc_ref: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Where `when` holds (always, if there is none) there is a cache of `kind`, called `name`, with these `params`.

    `covers` are keys that are about such caches, and of which no number is needed.
    """

    kind: str
    name: str
    when: Expr | None
    params: Mapping[str, Expr]
    span: SourceSpan
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """What a class of configurations has where one leaves keys out.

    `keys` have these values by default, `other` ones the class works out from other keys. `same`: another name of a
    key -> its own; `inside`: a key -> the `model_type` of the configuration in it, and keys that it has otherwise.
    `apart` are keys that look as if they were about caches, of a class that has the model that writes text inside.
    """

    keys: Mapping[str, object] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigClasses:
    """Classes of configurations by the `model_type` that they are for, and the release that they are from."""

    release: str = ""
    entries: Mapping[str, ConfigClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """`inside`: mappings in which the numbers may stand. `match`: keys that tell one model from another.

    `words` are worth what their expressions are, in this order, each of which may use those before it and, where it is
    about one layer, `layer`. `caches` are rules of a model's own, for each name the first that holds; kinds that they
    are about have no others. `faults` are remarks on what cannot be. `about` are patterns of keys that look as if they
    were about caches, `aside` those of them that are not; `plain` are first words of keys that make no family of them,
    `families` the other first words of keys that rules of kinds read. `always` are words asked for in any case.
    `classes` are what configurations leave out.
    """

    inside: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    words: tuple[tuple[str, Expr], ...] = ()
    remarks: tuple[RemarkRule, ...] = ()
    caches: tuple[Rule, ...] = ()
    faults: tuple[RemarkRule, ...] = ()
    about: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    families: frozenset[str] = frozenset()
    aside: tuple[str, ...] = ()
    always: tuple[str, ...] = ("layers", "runs", "dtype", "query_heads", "title", "name", "layer_is", "bare")
    classes: ConfigClasses = ConfigClasses()


@dataclass(frozen=True, slots=True)
class DumpRules:
    """What a layer's print says: `dtype` and `query_heads` of the model, its cache by the first rule that holds.

    `words` are names for what it says, in this order; each may use those before it.
    """

    dtype: Expr | None
    query_heads: Expr | None
    caches: tuple[Rule, ...]
    words: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is stored: axes by name in logical order, each with its global extent; the token axis has None.

    `unit` is the number of tokens per row of the token axis (`~/4`: 4). `when` false: the tensor does not exist.
    """

    name: str
    axes: tuple[tuple[str, Expr | None], ...]
    dtype: Expr
    split: Mapping[str, str]
    tokens_per_row: Expr | None = None
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class KindVariant:
    """A record that a kind stores where `when` is true: its tensors, storage expressions with a place for them."""

    name: str
    when: Expr
    doc: str
    doc_ref: str
    tensors: Mapping[str, TensorSpec]
    storage: Mapping[str, Storage]


@dataclass(frozen=True, slots=True)
class Kind:
    """A cache kind. `store` is tokens, ring or state; `length` names the range of tokens that a request gives for it.

    `needs` None: all tokens. `ring`: how many tokens a ring keeps. `match`: where a configuration has such caches.
    `tensors` and `storage` are those of a record that is none of the `variants`; `variant` names the one that it is.
    `doubts` are on numbers that are possible, but usually not meant.
    """

    name: str
    title: str
    doc: str
    params: Mapping[str, Param]
    store: str
    tensors: Mapping[str, TensorSpec]
    storage: Mapping[str, Storage]
    span: SourceSpan
    needs: NeedsRule | None = None
    length: str = "context"
    ring: Expr | None = None
    match: tuple[Rule, ...] = ()
    fragments: Mapping[str, Fragment] = field(default_factory=dict)
    variants: tuple[KindVariant, ...] = ()
    variant: str = ""
    doc_ref: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[KindDoubt, ...] = ()

    @property
    def every_tensor(self) -> dict[str, TensorSpec]:
        """The tensors of all records by name; those of variants with a condition."""
        others = [(variant.when, spec) for variant in self.variants for spec in variant.tensors.values()]
        return {**{spec.name: replace(spec, when=when) for when, spec in others}, **self.tensors}

    def stored_as(self, env: Mapping[str, object]) -> Kind:
        """The kind with the tensors and the storage of the record that it is for these values. Raises DslError."""
        chosen = next((variant for variant in self.variants if is_true(variant.when, env)), None)
        return self.as_variant(chosen) if chosen else self

    def as_variant(self, variant: KindVariant) -> Kind:
        return replace(self, tensors=variant.tensors, storage=variant.storage, variant=variant.name)


@dataclass(frozen=True, slots=True)
class Cache:
    """One kind in one model: its layers (global numbers, ascending) and the kind's parameters.

    `needs` replaces the kind's; None: the kind's. `when`: sides for which it is false do not store the cache.
    """

    name: str
    kind: str
    layers: tuple[int, ...]
    params: Mapping[str, Expr]
    span: SourceSpan
    optional: bool = False
    needs: NeedsRule | None = None
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model: `layers` counts all its layers, with caches or without; `values` are its other numbers and words.

    Its `drafts` draft layers are numbered after them. `notes`: what its file says beside numbers, (about what, text).
    `config`: how a configuration of it is read beside the kinds' rules. `doubts`: what is not sure of its numbers, and
    where that is written. `sides`: keys that a side needs, by engine, where the defaults of that one cannot hold it.
    `no_cache`: the layers that the file declares to store nothing.
    """

    name: str
    title: str
    doc_ref: str
    layers: int
    values: Mapping[str, Value]
    caches: Mapping[str, Cache]
    drafts: int = 0
    notes: tuple[tuple[str, str], ...] = ()
    config: ConfigRules = ConfigRules()
    doubts: Mapping[str, SourceSpan] = field(default_factory=dict)
    sides: Mapping[str, YamlScalar] = field(default_factory=dict)
    no_cache: tuple[int, ...] = ()

    @property
    def words(self) -> dict[str, Value]:
        """What it gives to every expression: its numbers and words, of a checkpoint that says nothing empty ones."""
        return {**dict.fromkeys(CHECKPOINT.known, ""), **self.values}

    @property
    def bare(self) -> tuple[int, ...]:
        """The layers, draft layers too, that no cache has, ascending."""
        stored = set[int]().union(*(cache.layers for cache in self.caches.values()))
        return tuple(layer for layer in range(self.layers + self.drafts) if layer not in stored)

    @property
    def undeclared(self) -> tuple[int, ...]:
        """The layers that store nothing although the file does not declare it."""
        return tuple(layer for layer in self.bare if layer not in self.no_cache)


@dataclass(frozen=True, slots=True)
class ValueDoc:
    """What is said of a derived value, for people: what it is, what it counts, where it is from, its cases as written.

    A case is (when, value), the last one without `when`. `fixed` is why no side may give it, nothing where one may.
    """

    doc: str = ""
    unit: str = ""
    doc_ref: str = ""
    cases: tuple[tuple[str, str], ...] = ()
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How layers form groups: `form` (by_page, by_cache, by_tokens, by_retention), `assign` (strided, blocked), or
    `{option}` each.

    `overlay` (false, true, or `{option}`): whether groups share memory. `stretch` (numerator, denominator): by_page
    takes the largest bucket's size where it is less than this times the smallest. The rest is by_retention's: the
    tokens of a cache's `block` before pages are made equal (None: those derived), the bytes that its `page` has at
    least, by kind, store or `default`, whether layers lie `inside` blocks, and whether a page is `rigid`: it may hold
    more tokens, but no padding.
    """

    form: str
    assign: str
    overlay: str
    stretch: tuple[int, int]
    block: Expr | None = None
    page: Mapping[str, Expr] = field(default_factory=lambda: EMPTY)
    inside: Expr | None = None
    rigid: Expr | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """Where an engine puts things. `storage` maps a kind, a store or `default` to the name of a storage expression,
    `stride` to the bytes between two blocks, `kernels` to the block sizes that attention kernels accept. `copies` may
    be `{option}`. `docs` say what derived values are. `package` is the engine's in Python, `platforms` are those on
    which it is so. `serve` None: there is no connector for it. `flags`: the engine's own words, `spelled`, -> the key
    of a side that each sets; `aside`: those of them that no cache depends on -> why. `expect` are conditions over a
    model's own numbers; a false one is a warning. `instead`: kinds that it may store as other ones, by the first rule
    that holds. `memory` maps a kind, a store or `default` to where such caches lie.
    """

    name: str
    title: str
    doc_ref: str
    versions: str
    options: Mapping[str, Param]
    require: tuple[Requirement, ...]
    copies: str
    storage: Mapping[str, str]
    own: Mapping[str, Mapping[str, Storage]]
    derive: Mapping[str, Expr]
    groups: GroupRules
    mesh: MeshRules
    probed: Probed
    stride: Mapping[str, Expr] = field(default_factory=lambda: EMPTY)
    kernels: Mapping[str, Expr] = field(default_factory=lambda: EMPTY)
    dump: DumpRules | None = None
    docs: Mapping[str, ValueDoc] = field(default_factory=dict)
    doc: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    package: str = ""
    platforms: tuple[str, ...] = ()
    serve: Serve | None = None
    expect: tuple[Requirement, ...] = ()
    choices: Mapping[str, LayoutChoice] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    aside: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, tuple[Instead, ...]] = field(default_factory=dict)
    memory: Mapping[str, Expr] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Instead:
    """Where `when` holds an engine stores a cache of `kind`, with these `params`, in place of the kind it is for.
    It stores nothing where `kind` is empty. `beside`: only in models that have caches of that kind, too.

    All expressions are over the parameters of that kind, the model's words, the mesh and the options. A side is refused
    where one of `needs` does not hold.
    """

    kind: str
    when: Expr
    params: Mapping[str, Expr]
    needs: tuple[Requirement, ...] = ()
    beside: str = ""


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """What moving costs on a machine. `says` tells on which it was measured, and under which conditions.

    `transfer_us` is what a transfer takes however little it moves, `slice_us` a slice beside its descriptors,
    `descriptor_us` one descriptor beside its bytes. `wire` is bytes a second of long descriptors, `copies` pairs (bytes
    that lie together on both sides of a copy, bytes a second) with rising bytes, one at least. `cold_us` is what a
    transfer takes beside all that if its engines had none for a while, 0 if nobody measured it.
    """

    name: str
    title: str
    says: str
    transfer_us: float
    slice_us: float
    descriptor_us: float
    wire: float
    copies: tuple[tuple[int, float], ...]
    cold_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file: which models, sides and compile options are to be compiled."""

    name: str
    plans: tuple[PlanSpec, ...]


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One entry of a deployment: models × prefill sides × decode sides (a side's text may hold products).

    `name` is what its pair is called, empty where nobody named it.
    """

    models: tuple[str, ...]
    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    options: Mapping[str, str]
    # ("prefill", text), ("option", name), ("value", name) … -> where it is written
    places: Mapping[tuple[str, str], SourceSpan] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rails:
    """Network cards of one engine: `count` of them, each `rate` bytes a second."""

    count: int
    rate: float


@dataclass(frozen=True, slots=True)
class PrefillFigures:
    """Prefill engines of a fleet, as their owner knows them, each with KV blocks for `cache_tokens` tokens.

    One engine computes `tokens_per_s`; `lease_s` is how long a computed prompt waits for decode. Without `rails` bytes
    are copied by processors, as between processes of one machine.
    """

    engines: int = 1
    cache_tokens: int = 262_144
    tokens_per_s: int = 10_000
    lease_s: int = 120
    rails: Rails | None = None


@dataclass(frozen=True, slots=True)
class DecodeFigures:
    """Decode engines of a fleet, as their owner knows them, each with KV blocks for `cache_tokens` tokens.

    One engine has at most `sequences` requests at once, which have a token each every `us_per_token`.
    """

    engines: int = 1
    cache_tokens: int = 262_144
    us_per_token: int = 20_000
    sequences: int = 256
    rails: Rails | None = None


@dataclass(frozen=True, slots=True)
class FleetCandidate:
    """A pair of sides that a fleet could have, each text one side or a product; `span` is where it was written.

    `options` are those of a compilation; `mode` is who moves the bytes, pull or push.
    """

    name: str
    prefill: str
    decode: str
    options: Mapping[str, str]
    mode: str
    layer_by_layer: bool
    prefill_engines: PrefillFigures
    decode_engines: DecodeFigures
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class PoissonTraffic:
    """Arrivals that are drawn: `requests` of them, `per_minute` in the mean; lengths are means, too, in tokens."""

    per_minute: int
    requests: int
    input: int
    output: int
    seed: int


@dataclass(frozen=True, slots=True)
class TraceTraffic:
    """Arrivals of a trace, the file `path`: the `first` requests of it, all for None, at `percent` of its pace."""

    path: str
    first: int | None
    percent: int


@dataclass(frozen=True, slots=True)
class FleetFile:
    """A fleet file: which engines are to serve which traffic, and the pairs of sides to choose from.

    `machine` is empty for the default one; `cores` are shared by all workers, None for one each. `limits` are those of
    the runtime that are given.
    """

    name: str
    model: str
    machine: str
    cores: int | None
    router: str
    limits: Mapping[str, int]
    candidates: tuple[FleetCandidate, ...]
    traffic: PoissonTraffic | TraceTraffic
