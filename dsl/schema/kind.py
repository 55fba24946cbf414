"""The form of kind files, and of what engines and models have in common with them: parameters, needs, rules."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import FRAGMENT, LABEL
from kvplan.dsl.schema.shapes import (
    CONDITION,
    EXPRESSION,
    EXTENDS_DOC,
    FOREIGN,
    STORAGE,
    TEXT,
    DocumentKeys,
    EitherShape,
    Form,
    FormKeys,
    LaterShape,
    ListShape,
    MapShape,
    NameShape,
    ScalarShape,
    TextShape,
    TokensShape,
    WordShape,
    document,
    key,
)
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

TYPES = ("int", "dtype", "name", "sizes")
STORES = ("tokens", "ring", "state")
ALL = "all"
LENGTH = "[a-z][a-z0-9_]*"
WHOSE = NameShape("kind", (*STORES, "default"))
SPLIT = MapShape(ScalarShape("mesh axis"))
STORAGE_PARTS: MapShape[Tree] = MapShape(LaterShape(STORAGE), names=LABEL)
STORAGES: MapShape[Tree] = MapShape(EitherShape((STORAGE, STORAGE_PARTS)), names=LABEL)


@dataclass(frozen=True, slots=True)
class ParamKeys(FormKeys):
    type: str = key(
        WordShape(TYPES),
        "what its values are: whole numbers, which is the default; element types; words; sets of sizes",
    )
    default: Expr | None = key(EXPRESSION, "its value where none is given; a parameter without one is required")
    values: tuple[str, ...] = key(ListShape(TextShape("word"), bare=True), "the words that it may be")
    aliases: Named[YamlScalar] = key(MapShape(ScalarShape("word")), "other words, each for one of `values`")
    doc: str = key(TEXT, "what it is, for people")
    doc_ref: str = key(TEXT, "where it is from", name="doc-ref")


@dataclass(frozen=True, slots=True)
class NeedsRule(FormKeys):
    """The tokens of [first, end) that a reader must have: all, unless `window` or `chunk` is more than 0.

    Then those of the last `window` - 1 + `retain` tokens, or from `end // chunk * chunk` on, and of the first `sink`.
    With `whole`, `end` is a multiple of that first.
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
        """What is given, by name."""
        exprs = {
            "window": self.window,
            "retain": self.retain,
            "chunk": self.chunk,
            "sink": self.sink,
            "whole": self.whole,
        }
        return tuple((name, expr) for name, expr in exprs.items() if expr is not None)


@dataclass(frozen=True, slots=True)
class RuleKeys(FormKeys):
    name: YamlScalar | None = key(
        ScalarShape("name", LABEL.pattern), "what the cache is called; the kind's name if not given"
    )
    when: Expr | None = key(FOREIGN, "where it is false, or asks for what is not there, the rule does not hold")
    covers: tuple[str, ...] = key(
        ListShape(TextShape("key"), bare=True),
        "keys of a configuration about such a cache whose numbers are not needed",
    )


@dataclass(frozen=True, slots=True)
class TensorKeys(FormKeys):
    axes: Named[Tree] = key(
        MapShape(TokensShape()),
        "its axes in logical order, each with its extent; the token axis has `~`",
        required=True,
    )
    dtype: Expr | None = key(EXPRESSION, "an element type, or an expression for one", required=True)
    when: Expr | None = key(EXPRESSION, "where it is false, the tensor is not stored, and storage expressions skip it")
    split: Named[YamlScalar] = key(SPLIT, "axis → mesh axis that it is shared over; comes before the kind's")


TENSOR = Form("a tensor", TensorKeys)
FRAGMENTS = MapShape(STORAGE, names=FRAGMENT)


@dataclass(frozen=True, slots=True)
class KindVariantKeys(FormKeys):
    when: Expr = key(CONDITION, "an expression of parameters and of a side's options", required=True)
    doc: str = key(TEXT, "what such a record is, for people")
    doc_ref: str = key(TEXT, "where it is from", name="doc-ref")
    tensors: Named[TensorKeys] = key(MapShape(TENSOR), "what is stored, in place of the kind's tensors", required=True)
    fragments: Named[YamlScalar] = key(FRAGMENTS, "fragments that are other ones than the kind's, or more")
    storage: Named[Tree] = key(
        STORAGES,
        "storage expressions that are other ones than the kind's, or more; of the kind's it has those in which all its "
        "tensors have a place",
    )


@dataclass(frozen=True, slots=True)
class KindDoubt(FormKeys):
    """A sentence about a model's numbers where `when` holds; where `of` is given only, if there is one."""

    when: Expr = key(CONDITION, "an expression of parameters and of the model's words", required=True)
    say: YamlScalar = key(TEXT, "the sentence; `{name}` is replaced by a value", required=True)
    of: YamlScalar | None = key(NameShape("parameter"), "the parameter that has to be given for that")


PARAM = Form("a parameter", ParamKeys)
DOUBT = Form("a doubt", KindDoubt)
NEEDS = Form("needs", NeedsRule)
NEEDED = EitherShape((WordShape((ALL,)), NEEDS))
RULE = Form("a rule", RuleKeys, rest=FOREIGN)
KIND_VARIANT = Form("a kind's variant", KindVariantKeys)
LEGEND = MapShape(TEXT, names=LABEL)
LEGEND_DOC = "what letters in names stand for, for people"


@dataclass(frozen=True, slots=True)
class KindKeys(DocumentKeys):
    extends: YamlScalar | None = key(NameShape("kind"), EXTENDS_DOC)
    params: Named[ParamKeys] = key(MapShape(PARAM), "the numbers and words that a model gives")
    store: str = key(
        WordShape(STORES),
        "`tokens`: grows with the context; `ring`: the last so many tokens; `state`: one slot per request",
        required=True,
    )
    ring: Expr | None = key(EXPRESSION, "how many tokens a ring keeps; goes with `store: ring`")
    needs: Tree | None = key(NEEDED, "which tokens a reader must have: `all`, which is the default, or limits")
    length: YamlScalar | None = key(
        ScalarShape("name", LENGTH),
        "the name of the range of tokens that a request gives for such caches; `context` if not given",
    )
    split: Named[YamlScalar] = key(
        SPLIT, "axis → an engine's mesh axis that it is shared over. More workers than items hold copies"
    )
    tensors: Named[TensorKeys] = key(MapShape(TENSOR), "what is stored", required=True)
    fragments: Named[YamlScalar] = key(
        FRAGMENTS, "pieces of storage expressions by name, with a name for loops in brackets where they take some"
    )
    storage: Named[Tree] = key(
        STORAGES,
        "in which ways it may lie in memory: a storage expression, or several by name, an allocation each; or `= NAME`,"
        " another one of them",
        required=True,
    )
    variants: Named[KindVariantKeys] = key(
        MapShape(KIND_VARIANT, names=LABEL),
        "records that are other ones than what the file says: the first whose `when` is true",
    )
    legend: Named[str] = key(LEGEND, LEGEND_DOC)
    doubts: tuple[KindDoubt, ...] = key(
        ListShape(DOUBT), "numbers of a model that are possible, but usually not meant: `kvplan check` warns of them"
    )
    match: Tree | None = key(
        EitherShape((RULE, ListShape(RULE))),
        "where a checkpoint's configuration has such caches: parameters of the kind as expressions of its values",
    )


KIND = document(
    "kind", "a kind", "what a family of caches stores, and the ways in which it can lie in memory", KindKeys
)
