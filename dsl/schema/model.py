"""The form of model files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvplan.dsl.lang.nodes import Expr, Value
from kvplan.dsl.schema.config import OWN, ConfigRules
from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.forms import (
    EXTENDS,
    EXTENDS_DOC,
    DocumentKeys,
    EitherShape,
    Form,
    FormKeys,
    LaterShape,
    ListShape,
    MapShape,
    document,
    key,
)
from kvplan.dsl.schema.kind import NEEDED, NeedsRule
from kvplan.dsl.schema.names import SHARED
from kvplan.dsl.schema.shapes import DTYPE, EXPRESSION, SENTENCE, TEXT, TRUTH, NameShape, WholeShape
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

FAMILY = "variants"
# Keys that a file has only once: variants cannot differ in them.
ONCE = ("kvplan", "model", EXTENDS, FAMILY)
# The most layers, and the most draft layers, of a model: a slip of a digit must not take all memory.
MOST_LAYERS = 1000


LAYERS = EitherShape((ListShape(WholeShape()), EXPRESSION))


@dataclass(frozen=True, slots=True)
class Cache(FormKeys):
    """A cache of a model: its kind, its layers (global numbers, ascending), and the kind's parameters.

    `needs` replaces the kind's unless it is None. Sides for which `when` is false do not store the cache.
    """

    name: YamlScalar = field(default=YamlScalar(""), kw_only=True)
    params: Mapping[str, Expr] = field(default_factory=dict, kw_only=True)
    kind: str = key(NameShape("kind"), "what is stored", required=True)
    layers: tuple[int, ...] = key(
        LaterShape(LAYERS),
        "which layers have it: `all`, `drafts`, a list of numbers, or an expression of `layer`",
        required=True,
        default=(),
    )
    needs: NeedsRule | None = key(LaterShape(NEEDED), "which tokens a reader must have, instead of what the kind says")
    optional: bool = key(TRUTH, "whether it is skipped, and reported, where one side lacks it")
    when: Expr | None = key(
        EXPRESSION, "an expression of a side's options; where it is false, the side does not store the cache"
    )

    @property
    def span(self) -> SourceSpan:
        """The place of its name."""
        return self.name.span


CACHE = Form("a cache", Cache, rest=EXPRESSION)
CACHES: MapShape[Tree] = MapShape(LaterShape(CACHE), names=LABEL)


@dataclass(frozen=True, slots=True)
class Checkpoint(FormKeys):
    architecture: str = key(TEXT, "the first of its `architectures`, empty if not given")
    model_type: str = key(TEXT, "the `model_type` of its language model, empty if not given")


CHECKPOINT = Form("checkpoint", Checkpoint)


@dataclass(frozen=True, slots=True)
class NoCache(FormKeys):
    mlp: tuple[int, ...] = key(LaterShape(LAYERS), "layers that keep nothing, such as an MLP or experts", default=())
    shared: tuple[int, ...] = key(
        LaterShape(LAYERS),
        "layers that read another layer's cache. Some engines allocate memory for these, too: their files refuse such"
        " a model by the number of these layers, `shared_layers`",
        default=(),
    )

    @property
    def all(self) -> tuple[int, ...]:
        return *self.mlp, *self.shared


NO_CACHE = Form("no_cache", NoCache)


@dataclass(frozen=True, slots=True)
class ModelVariant(DocumentKeys):
    """A model. `values` are the numbers and words that all expressions may use, `notes` the notes in its file as
    (subject, text). Its `drafts` draft layers are numbered after its `layers`.
    """

    values: Mapping[str, Value] = field(default_factory=dict, kw_only=True)
    notes: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    title: str = key(TEXT, "what it is called, for people")
    match: Named[tuple[str, ...]] = key(
        MapShape(ListShape(TEXT, bare=True), keys=NameShape("key")),
        "keys of a checkpoint's configuration by which the model is known, each with its value or a list of values",
    )
    dtype: str = key(DTYPE, "element type of the model; an engine's cache type defaults to it", required=True)
    query_heads: int | None = key(
        WholeShape(), "its attention heads, against which engines check sharding; some keep so many in place of latents"
    )
    checkpoint: Checkpoint = key(
        CHECKPOINT,
        "what the checkpoint calls itself, for engines that decide by it how they store a cache; without it an engine"
        " stores what the file says",
    )
    doubts: tuple[YamlScalar, ...] = key(
        ListShape(SENTENCE, bare=True),
        "what may be wrong, in sentences that `check`, `compile` and plans repeat until somebody removes them",
    )
    # 0 if it cannot be read: the layers of caches are not checked then.
    layers: int = key(
        WholeShape(1, MOST_LAYERS), "how many layers the model has, with caches or without", required=True, default=0
    )
    drafts: int = key(
        WholeShape(0, MOST_LAYERS),
        "how many draft layers follow them, on the last stage of a pipeline",
        default=0,
    )
    no_cache: NoCache = key(
        NO_CACHE, "layers without a cache of their own, and why; `check` warns of those that are not declared (W004)"
    )
    sides: Named[YamlScalar] = key(
        MapShape(TEXT, keys=NameShape("engine")),
        "engine → keys that a side needs there, where the engine's defaults cannot hold the model; a refusal says them",
    )
    caches: Mapping[str, Cache] = key(LaterShape(CACHES), "what its layers store", required=True, default={})
    config: ConfigRules = key(
        LaterShape(OWN),
        "rules for reading this model's config.json, before those of the kinds",
        default=ConfigRules(),
    )


VARIANT = Form("a variant", ModelVariant)
VARIANTS: MapShape[Tree] = MapShape(LaterShape(VARIANT), names=LABEL)


@dataclass(frozen=True, slots=True)
class Model(ModelVariant):
    """A model file, or one of its variants with the keys that all variants share."""

    title: str = key(TEXT, "what it is called, for people", required=True)
    extends: YamlScalar | None = key(NameShape("model"), EXTENDS_DOC)
    variants: Named[Tree] = key(
        VARIANTS,
        "models that differ from this file in some keys; the file itself is none then",
    )

    @property
    def words(self) -> dict[str, Value]:
        """The values that all expressions may use. Words of the checkpoint are empty if they are not given."""
        return {**dict.fromkeys(CHECKPOINT.known, ""), SHARED: len(self.no_cache.shared), **self.values}

    @property
    def bare(self) -> tuple[int, ...]:
        """The layers without a cache, including draft layers, ascending."""
        stored = set[int]().union(*(cache.layers for cache in self.caches.values()))
        return tuple(layer for layer in range(self.layers + self.drafts) if layer not in stored)

    @property
    def undeclared(self) -> tuple[int, ...]:
        """The layers without a cache that the file does not declare in no_cache."""
        return tuple(layer for layer in self.bare if layer not in self.no_cache.all)


MODEL = document("model", "a model", "which layers have which kind of cache, with which numbers", Model)
