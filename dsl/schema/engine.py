"""The form of engine files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvplan.dsl.lang.nodes import Expr, Storage
from kvplan.dsl.schema.config import FOUND, WORDS
from kvplan.dsl.schema.forms import (
    EXTENDS_DOC,
    DocumentKeys,
    EitherShape,
    Form,
    FormKeys,
    LaterShape,
    ListShape,
    MapShape,
    MaybeShape,
    document,
    key,
)
from kvplan.dsl.schema.kind import LEGEND, LEGEND_DOC, PARAM, STORAGES, WHOSE, Param
from kvplan.dsl.schema.requirement import REQUIRE, Requirement
from kvplan.dsl.schema.serve import CHOICE, SERVE, LayoutChoice, Serve, Setting
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    FOREIGN,
    SENTENCE,
    TEXT,
    TRUTH,
    FractionShape,
    NameShape,
    ScalarShape,
    WordShape,
)
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

COPIES = ("consecutive", "round_robin")
SHARES = ("even", "any")
EVEN = SHARES[0]
FORMS, ASSIGNS = ("by_page", "by_cache", "by_tokens", "by_retention"), ("strided", "blocked")
OVERLAYS = ("false", "true")
LAYERS = ("even", "remainder_before_last", "remainder_last")
MUST = ("tokens", "kernel_block", "ratio")
DUMP_WORDS_DOC = "names for what a layer's print says, in this order; each may use those before it"
AXES = ListShape(ScalarShape("mesh axis"), bare=True)
BY_CACHE = MapShape(EXPRESSION, keys=WHOSE)
OPTIONS = MapShape(PARAM)
OWN = MapShape(STORAGES, keys=NameShape("kind"))
FLAGS = MapShape(ListShape(ScalarShape("flag"), bare=True))


@dataclass(frozen=True, slots=True)
class DerivedCase(FormKeys):
    when: Expr | None = key(EXPRESSION, "where it is true, and no case before it is")
    value: Expr | None = key(EXPRESSION, "the value there; goes with `when`", name="is")
    otherwise: Expr | None = key(EXPRESSION, "the value in all other cases, alone in the last one", name="else")


CASE = Form("a case", DerivedCase)


@dataclass(frozen=True, slots=True)
class DerivedValue(FormKeys):
    """A value that an engine derives: one expression, or cases. Only the last case has `else`."""

    doc: str = key(TEXT, "what it is, for people")
    unit: str = key(TEXT, "what it counts, for people")
    doc_ref: str = key(TEXT, "where it is from", name="doc-ref")
    fixed: str = key(TEXT, "why no side may give it: what it follows from; without it a side may")
    value: Expr | None = key(EXPRESSION, "the value", name="is")
    cases: tuple[DerivedCase, ...] = key(ListShape(CASE), "or its values; the first whose `when` is true counts")


@dataclass(frozen=True, slots=True)
class GroupRules(FormKeys):
    """The rules that form groups of layers. `form`, `assign` and `overlay` may be `{option}`; `stretch` is a numerator
    and a denominator."""

    form: str = key(
        WordShape(FORMS, option=True),
        "which caches share a block table: `by_page`, those that store the same thing per layer; `by_cache`, "
        "none; `by_tokens`, those with equal pages; `by_retention`, those that need the same blocks once pages "
        "are made equal",
        required=True,
    )
    assign: str = key(
        WordShape(ASSIGNS, option=True),
        "how a cache's layers are dealt out to groups: in turn, which is the default, or in runs",
    )
    overlay: str = key(
        WordShape(OVERLAYS, option=True),
        "whether groups share memory, from its first byte on; `false` if not given",
    )
    stretch: tuple[int, int] = key(
        FractionShape(),
        "`by_page` takes its size from the smallest bucket, or from the largest where that is less than `stretch`"
        " times the smallest; 1 if not given",
    )
    block: Expr | None = key(
        EXPRESSION, "tokens of a cache's block before pages are made equal; those derived if not given (`by_retention`)"
    )
    page: Named[Expr] = key(BY_CACHE, "by kind, store or `default`: bytes that a page has at least (`by_retention`)")
    inside: Expr | None = key(EXPRESSION, "whether layers lie inside blocks (`by_retention`)")
    rigid: Expr | None = key(EXPRESSION, "if true, a page grows by tokens only and is never padded (`by_retention`)")


@dataclass(frozen=True, slots=True)
class MeshRules(FormKeys):
    """The axes of the worker grid, outermost first; axes derived from a worker's coordinates; the pipeline rule.

    `derived` maps an axis to the worker's coordinate on it (`rank(tp) % dcp`); its size is a key of a side. `tokens`
    names the derived or worker axes over which tokens are shared out, outermost first; `interleave` is the number of
    consecutive tokens of one worker. `layers` may be `{option}`.
    """

    workers: tuple[YamlScalar, ...] = key(AXES, "the axes of the grid of workers, outermost first", required=True)
    derived: Named[Expr] = key(
        MapShape(EXPRESSION), "axes computed from a worker's `rank(axis)`; their sizes are keys of a side, too"
    )
    layers: str = key(
        WordShape(LAYERS, option=True),
        "how a pipeline shares layers out where they do not come out even",
        required=True,
    )
    tokens: tuple[YamlScalar, ...] = key(
        AXES,
        "axes that tokens go round on, outermost first, `interleave` at a time",
    )
    interleave: Expr | None = key(
        EXPRESSION, "tokens that a worker has before the next one's begin; goes with `tokens`"
    )


@dataclass(frozen=True, slots=True)
class Instead(FormKeys):
    """A kind that an engine stores in place of another; it stores nothing if `kind` is empty. `params` and all
    expressions are over the parameters of the replaced kind, the model's words, the mesh and the options.
    """

    params: Mapping[str, Expr] = field(default_factory=dict, kw_only=True)

    when: Expr = key(EXPRESSION, "where it is true, the engine stores the other kind", required=True)
    kind: str = key(NameShape("kind"), "the other kind; without it the engine stores no such cache", default="")
    beside: str = key(NameShape("kind"), "only in models that have caches of this kind, too", default="")
    needs: tuple[Requirement, ...] = key(
        ListShape(REQUIRE), "conditions over the same names without which a side is refused then"
    )

    @property
    def read(self) -> frozenset[str]:
        """The names that the rule reads where it applies."""
        return frozenset[str]().union(
            *(expr.names for expr in self.params.values()), *(n.that.names for n in self.needs)
        )


@dataclass(frozen=True, slots=True)
class DumpRules(FormKeys):
    """Rules for the dump of a layer: `dtype` and `query_heads` of the model, and its cache, by the first rule that
    holds.

    `caches` are parsed only when a dump is read, because they may refer to every kind.
    """

    dtype: Expr | None = key(FOREIGN, "the model's element type")
    words: Named[Expr] = key(WORDS, DUMP_WORDS_DOC)
    query_heads: Expr | None = key(
        FOREIGN, "query heads of the whole model, or of a part of it that kinds are checked against"
    )
    caches: tuple[Tree, ...] = key(
        ListShape(LaterShape(FOUND)), "rules; the first that holds says what a layer stores", required=True
    )


@dataclass(frozen=True, slots=True)
class Probed(FormKeys):
    """A probe that verified page layouts on a running engine: the kinds, the release, the date and the method."""

    kinds: tuple[YamlScalar, ...] = key(
        ListShape(NameShape("kind"), bare=True), "the kinds whose pages were probed", required=True
    )
    version: str = key(TEXT, "the release", required=True)
    date: str = key(TEXT, "when", required=True)
    how: str = key(TEXT, "with which function, on what, for which sizes", required=True)


PROBED = Form("a probe", Probed)
DERIVED = Form("a derived value", DerivedValue)
VALUE = EitherShape((EXPRESSION, DERIVED), short="is")
GROUPS = Form("groups", GroupRules)
MESH = Form("mesh", MeshRules)
INSTEAD = Form("what is stored instead", Instead, rest=EXPRESSION)
INSTEADS = MapShape(EitherShape((INSTEAD, ListShape(INSTEAD))), keys=NameShape("kind"))
DUMP = Form("dump", DumpRules)


@dataclass(frozen=True, slots=True)
class Engine(DocumentKeys):
    """An engine: where it puts bytes. Rules by kind, store or `default` are looked up in this order. `copies` may be
    `{option}`.

    `own` and `instead` are read by kind, when that kind is used. `flags` and `aside` are `spelled`; `derive` has the
    values of `docs`.
    """

    derive: Mapping[str, Expr] = field(default_factory=dict, kw_only=True)
    extends: YamlScalar | None = key(NameShape("engine"), EXTENDS_DOC)
    versions: str = key(TEXT, "which releases it describes, as `>=0.32,<0.33`")
    package: str = key(TEXT, "the Python package of the engine: its connector takes the file that is for it")
    platforms: tuple[YamlScalar, ...] = key(
        ListShape(ScalarShape("platform"), bare=True),
        "the platforms on which it is as the file says, by the engine's own names, such as `cuda`; not inherited",
    )
    default: bool = key(TRUTH, "`true` in one engine's file: sides that name no engine run it; not inherited")
    options: Named[Param] = key(OPTIONS, "what a side may set", required=True)
    require: tuple[Requirement, ...] = key(ListShape(REQUIRE), "conditions without which a side is refused")
    expect: tuple[Requirement, ...] = key(
        ListShape(REQUIRE), "conditions over a model's own numbers; where one is false, `kvplan check` warns (W003)"
    )
    copies: str = key(
        WordShape(COPIES, option=True),
        "where an axis has fewer items than workers: `consecutive`, worker i of t holds item i·n//t; `round_robin`, i"
        " mod n",
        required=True,
    )
    shares: str = key(
        WordShape(SHARES),
        "`even`: a side is refused unless workers hold equal shares of each split axis, or each item as many copies;"
        " `any`: worker i of t holds items i·n//t to (i+1)·n//t, or what the side lists. Not inherited",
    )
    storage: Named[YamlScalar] = key(
        MapShape(SENTENCE, keys=WHOSE, must=("default",)),
        "kind, store or `default` → name of the storage expression, in which `{option}` is replaced by an option's "
        "value",
        required=True,
    )
    own: Mapping[str, Mapping[str, Storage]] = key(
        LaterShape(OWN), "kind → name → storage expressions of this engine only", default={}
    )
    instead: Mapping[str, tuple[Instead, ...]] = key(
        LaterShape(INSTEADS),
        "kind → another kind that the engine stores in its place, full heads for latents for instance, or nothing; of a"
        " list the first that holds",
        default={},
    )
    kernels: Named[Expr] = key(
        MapShape(EXPRESSION, keys=WHOSE, must=("default",)),
        "kind, store or `default` → block sizes that the attention kernels of such caches accept. Those of a kind"
        " may use its parameters. `kernels` in an option's default is what the kernels of all caches accept",
    )
    docs: Named[DerivedValue] = key(
        MapShape(VALUE, must=MUST),
        "`tokens` of a logical block, `kernel_block`, `ratio`, and whatever they need",
        required=True,
        name="derive",
    )
    stride: Named[Expr] = key(BY_CACHE, "kind, store or `default` → bytes between two blocks; without it, the page")
    memory: Named[Expr] = key(
        BY_CACHE,
        "kind, store or `default` → where the blocks of such caches lie: `'host'`, `'device'`, or in both, the first"
        " blocks in the first one: `'device+host'`, `'host+device'`. `''`, as without a rule: together with all other"
        " undeclared caches. A side may declare it for one cache: `memory.NAME=host`",
    )
    groups: GroupRules = key(GROUPS, "how layers form groups, each with a block table", required=True)
    mesh: MeshRules = key(MESH, "how workers are arranged, and what is shared out over them", required=True)
    legend: Named[str] = key(LEGEND, LEGEND_DOC)
    probed: Probed = key(
        PROBED,
        "that the engine's own write function was seen to put tokens where the file says (`kvplan from-cache --probe`);"
        " not inherited",
    )
    serve: Serve | None = key(
        MaybeShape(SERVE),
        "how the engine is started with a connector of kvplan's, for `kvplan doctor`; nothing where it has none",
    )
    choices: Named[LayoutChoice] = key(
        MapShape(CHOICE),
        "option of a side → what `kvplan advise` compares: options that say where bytes lie, and not which",
    )
    flags: Mapping[str, str] = key(
        LaterShape(FLAGS),
        "key of a side → the engine's flags and variables for it, which a side also accepts; those of `serve` need"
        " not be repeated",
        default={},
    )
    aside: Mapping[str, str] = key(
        MapShape(TEXT), "flag of the engine that no side has → why; it is refused with that sentence"
    )
    dump: DumpRules | None = key(
        MaybeShape(DUMP),
        "how `kvplan from-cache` makes a model of what the engine prints: expressions over a layer's spec, the options "
        "in force and the mesh",
    )

    def setting(self, option: str) -> Setting:
        """The engine's setting for an option of a side, without a name if its file has none."""
        served = self.serve.settings.get(option) if self.serve else None
        return served or (self.choices[option].setting if option in self.choices else Setting())

    def alias(self, option: str, value: object) -> str:
        """The first other word for a value of an option, `nhd`; empty if there is none."""
        aliases = self.options[option].aliases if option in self.options else {}
        return next((word for word, meant in aliases.items() if meant == value), "")


ENGINE = document(
    "engine",
    "an engine",
    "which of the ways that kinds know an engine uses, how it pages, groups and shards",
    Engine,
)
