"""The form of kind files, and the forms that they share with engines and models: parameters, needs, rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvplan.dsl.lang.evaluate import is_true
from kvplan.dsl.lang.nodes import Expr, Storage
from kvplan.dsl.lang.storage import Fragment
from kvplan.dsl.schema.fields import FRAGMENT, LABEL
from kvplan.dsl.schema.forms import (
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
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    FOREIGN,
    STORAGE,
    TEXT,
    NameShape,
    ScalarShape,
    TextShape,
    TokensShape,
    WordShape,
)
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

TYPES = ("int", "dtype", "name", "sizes")
STATE = "state"
STORES = ("tokens", "ring", STATE)
ALL = "all"
LENGTH, CONTEXT = "[a-z][a-z0-9_]*", "context"
WHOSE = NameShape("kind", (*STORES, "default"))
SPLIT = MapShape(ScalarShape("mesh axis"))
AXES: MapShape[Tree] = MapShape(TokensShape())
STORAGE_PARTS: MapShape[Tree] = MapShape(LaterShape(STORAGE), names=LABEL)
STORAGES: MapShape[Tree] = MapShape(EitherShape((STORAGE, STORAGE_PARTS)), names=LABEL)


@dataclass(frozen=True, slots=True)
class Param(FormKeys):
    """A parameter of a kind or an option of an engine; it is required if it has no `default`."""

    name: str = field(default="", kw_only=True)
    type: str = key(
        WordShape(TYPES),
        "what its values are: whole numbers, which is the default; element types; words; sets of sizes",
    )
    default: Expr | None = key(EXPRESSION, "its value where none is given; a parameter without one is required")
    values: tuple[str, ...] = key(ListShape(TextShape("word"), bare=True), "the words that it may be")
    aliases: Named[YamlScalar] = key(MapShape(ScalarShape("word")), "other words, each for one of `values`")
    doc: str = key(TEXT, "what it is, for people")
    unit: str = key(TEXT, "what an `int` counts; a note says if an option in `tokens` is not what blocks have")
    doc_ref: str = key(TEXT, "where it is from", name="doc-ref")


@dataclass(frozen=True, slots=True)
class NeedsRule(FormKeys):
    """The tokens of [first, end) that a reader must have: all, unless `window` or `chunk` is more than 0.

    Then it must have those among the last `window` - 1 + `retain` tokens, or from `end // chunk * chunk` on, and among
    the first `sink`. With `whole`, `end` is first rounded down to a multiple of it.
    """

    window: Expr | None = key(
        EXPRESSION, "those among the last `window` − 1: the window of the next token includes that token itself"
    )
    retain: Expr | None = key(EXPRESSION, "those before the window, this many more")
    chunk: Expr | None = key(
        EXPRESSION, "those in the chunk of `end`, from `end // chunk * chunk` on; none where `end` begins a chunk"
    )
    sink: Expr | None = key(EXPRESSION, "the first tokens of the whole request, besides those of the window or chunk")
    whole: Expr | None = key(
        EXPRESSION,
        "those in whole blocks of so many tokens: for all of the above, `end` is `end // whole * whole`",
    )

    @property
    def limits(self) -> tuple[tuple[str, Expr], ...]:
        """The given limits, by name."""
        every = ((name, getattr(self, name)) for name in NEEDS.known)
        return tuple((name, expr) for name, expr in every if expr is not None)


@dataclass(frozen=True, slots=True)
class Rule(FormKeys):
    """A rule: if `when` holds, or is not given, there is a cache of `kind`, called `name`, with these `params`."""

    kind: str = field(default="", kw_only=True)
    params: Mapping[str, Expr] = field(default_factory=dict, kw_only=True)
    name: str = key(TextShape("name", LABEL.pattern), "what the cache is called; the kind's name if not given")
    when: Expr | None = key(FOREIGN, "where it is false, or asks for what is not there, the rule does not hold")
    covers: tuple[str, ...] = key(
        ListShape(TextShape("key"), bare=True),
        "keys of a configuration about such a cache whose numbers are not needed",
    )
    needs: Named[Expr] = key(
        MapShape(FOREIGN, keys=NameShape("limit")), "limits of its `needs`, if they are not the kind's"
    )

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions of the parameters, limits and condition."""
        return (*self.params.values(), *self.needs.values(), *((self.when,) if self.when else ()))

    @property
    def names(self) -> set[str]:
        """The names whose values the rule asks for."""
        return {name for expr in self.exprs for name in expr.names}


@dataclass(frozen=True, slots=True)
class TensorSpec(FormKeys):
    """A stored tensor: axes by name with their global extents, None for the token axis, which has a row for every
    `tokens_per_row` tokens, or for each token if it is None.
    """

    name: str = field(default="", kw_only=True)
    tokens_per_row: Expr | None = field(default=None, kw_only=True)
    axes: tuple[tuple[str, Expr | None], ...] = key(
        LaterShape(AXES),
        "its axes in logical order, each with its extent; the token axis has `~`",
        required=True,
        default=(),
    )
    dtype: Expr = key(EXPRESSION, "an element type, or an expression for one", required=True)
    when: Expr | None = key(EXPRESSION, "where it is false, the tensor is not stored, and storage expressions skip it")
    split: Mapping[str, str] = key(
        LaterShape(SPLIT), "axis → mesh axis that it is shared over; comes before the kind's", default={}
    )


TENSOR = Form("a tensor", TensorSpec)
FRAGMENTS = MapShape(STORAGE, names=FRAGMENT)


@dataclass(frozen=True, slots=True)
class KindVariant(FormKeys):
    """A record that a kind stores if `when` is true: its tensors, and storage expressions with a place for them."""

    name: str = field(default="", kw_only=True)
    when: Expr = key(EXPRESSION, "an expression of parameters and of a side's options", required=True)
    doc: str = key(TEXT, "what such a record is, for people")
    doc_ref: str = key(TEXT, "where it is from", name="doc-ref")
    tensors: Named[TensorSpec] = key(MapShape(TENSOR), "what is stored, in place of the kind's tensors", required=True)
    fragments: Mapping[str, Fragment] = key(
        LaterShape(FRAGMENTS), "fragments that are other ones than the kind's, or more", default={}
    )
    storage: Mapping[str, Storage] = key(
        LaterShape(STORAGES),
        "storage expressions that are other ones than the kind's, or more; of the kind's it has those in which all its "
        "tensors have a place",
        default={},
    )


@dataclass(frozen=True, slots=True)
class KindDoubt(FormKeys):
    """A warning about a model's numbers if `when` holds, and, if there is an `of`, the model gives that parameter.

    A side whose option sets `of` is refused.
    """

    when: Expr = key(EXPRESSION, "an expression of parameters and of the model's words", required=True)
    say: YamlScalar = key(TEXT, "the sentence; `{name}` is replaced by a value", required=True)
    of: YamlScalar | None = key(
        NameShape("parameter"),
        "the parameter it is about: warns if the model gives it, refuses a side that sets it (C110)",
    )


PARAM = Form("a parameter", Param)
DOUBT = Form("a doubt", KindDoubt)
NEEDS = Form("needs", NeedsRule)
NEEDED = EitherShape((WordShape((ALL,)), NEEDS))
RULE = Form("a rule", Rule, rest=FOREIGN)
KIND_VARIANT = Form("a kind's variant", KindVariant)
VARIANTS = MapShape(KIND_VARIANT, names=LABEL)
OTHER_NAMES = MapShape(TEXT, names=LABEL)
LEGEND = MapShape(TEXT, names=LABEL)
LEGEND_DOC = "what letters in names stand for, for people"


@dataclass(frozen=True, slots=True)
class Kind(DocumentKeys):
    """A cache kind. `needs` is None for all tokens. `tensors` and `storage` belong to the record called `variant`; to
    the kind's own record if that is empty.
    """

    variant: str = field(default="", kw_only=True)
    extends: YamlScalar | None = key(NameShape("kind"), EXTENDS_DOC)
    other_names: Named[str] = key(
        OTHER_NAMES,
        "names by which people call it → what they are in its words, for the error of an unknown kind",
    )
    params: Named[Param] = key(MapShape(PARAM), "the numbers and words that a model gives")
    store: str = key(
        WordShape(STORES),
        "`tokens`: grows with the context; `ring`: the last so many tokens; `state`: one slot per request",
        required=True,
    )
    ring: Expr | None = key(EXPRESSION, "how many tokens a ring keeps; goes with `store: ring`")
    needs: NeedsRule | None = key(
        LaterShape(NEEDED), "which tokens a reader must have: `all`, which is the default, or limits"
    )
    per_layer: Expr | None = key(
        EXPRESSION,
        "how many such caches a layer has. Kinds that give it keep keys and values of the same tokens: `check` warns of"
        " a layer that has more of them (W005)",
    )
    length: str = key(
        ScalarShape("name", LENGTH),
        "the name of the range of tokens that a request gives for such caches; `context` if not given",
        default=CONTEXT,
    )
    split: Named[YamlScalar] = key(
        SPLIT,
        "axis → an engine's mesh axis that it is divided among. More workers than items hold copies; shares are equal"
        " unless the engine's file says `shares: any`",
    )
    tensors: Named[TensorSpec] = key(MapShape(TENSOR), "what is stored", required=True)
    fragments: Mapping[str, Fragment] = key(
        LaterShape(FRAGMENTS),
        "pieces of storage expressions by name, with a name for loops in brackets where they take some",
        default={},
    )
    storage: Mapping[str, Storage] = key(
        LaterShape(STORAGES),
        "in which ways it may lie in memory: a storage expression, or several by name, an allocation each; or `= NAME`,"
        " another one of them",
        required=True,
        default={},
    )
    variants: tuple[KindVariant, ...] = key(
        LaterShape(VARIANTS),
        "records that are other ones than what the file says: the first whose `when` is true",
        default=(),
    )
    legend: Named[str] = key(LEGEND, LEGEND_DOC)
    doubts: tuple[KindDoubt, ...] = key(
        ListShape(DOUBT), "numbers of a model that are possible, but usually not meant: `kvplan check` warns of them"
    )
    match: tuple[Rule, ...] = key(
        LaterShape(EitherShape((RULE, ListShape(RULE)))),
        "where a checkpoint's configuration has such caches: parameters of the kind as expressions of its values",
        default=(),
    )

    @property
    def every_tensor(self) -> dict[str, TensorSpec]:
        """The tensors of all records by name; a variant's have its condition."""
        others = [(variant.when, spec) for variant in self.variants for spec in variant.tensors.values()]
        return {**{spec.name: replace(spec, when=when) for when, spec in others}, **self.tensors}

    def stored_as(self, env: Mapping[str, object]) -> Kind:
        """The kind with the tensors and the storage of the record for these values. Raises DslError."""
        chosen = next((variant for variant in self.variants if is_true(variant.when, env)), None)
        return self.as_variant(chosen) if chosen else self

    def as_variant(self, variant: KindVariant) -> Kind:
        return replace(self, tensors=variant.tensors, storage=variant.storage, variant=variant.name)


KIND = document("kind", "a kind", "what a family of caches stores, and the ways in which it can lie in memory", Kind)
