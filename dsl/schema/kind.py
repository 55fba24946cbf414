"""The form of kind files, and of what engines and models have in common with them: parameters, needs, rules."""

from __future__ import annotations

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    STORAGE,
    TEXT,
    EitherShape,
    ExpressionShape,
    Form,
    FormKey,
    ListShape,
    MapShape,
    NameShape,
    ScalarShape,
    WordShape,
    document,
)

TYPES = ("int", "dtype", "name", "sizes")
STORES = ("tokens", "ring", "state")
ALL = "all"
LENGTH = "[a-z][a-z0-9_]*"

PARAM = Form(
    "a parameter",
    (
        FormKey(
            "type",
            WordShape(TYPES),
            "what its values are: whole numbers, which is the default; element types; words; sets of sizes",
        ),
        FormKey("default", EXPRESSION, "its value where none is given; a parameter without one is required"),
        FormKey("values", ListShape(ScalarShape("word"), bare=True), "the words that it may be"),
        FormKey("aliases", MapShape(ScalarShape("word")), "other words, each for one of `values`"),
        FormKey("doc", TEXT, "what it is, for people"),
    ),
)
NEEDS = Form(
    "needs",
    (
        FormKey(
            "window",
            EXPRESSION,
            "those among the last `window` − 1: the window of the next token includes that token itself",
        ),
        FormKey("retain", EXPRESSION, "those before the window, this many more"),
        FormKey(
            "chunk",
            EXPRESSION,
            "those in the chunk of `end`, from `end // chunk * chunk` on; none where `end` begins a chunk",
        ),
        FormKey("sink", EXPRESSION, "the first tokens of the whole request, besides those of the window or chunk"),
    ),
)
NEEDED = EitherShape((WordShape((ALL,)), NEEDS))
RULE = Form(
    "a rule",
    (
        FormKey("name", ScalarShape("name", LABEL.pattern), "what the cache is called; the kind's name if not given"),
        FormKey("when", EXPRESSION, "where it is false, or asks for what is not there, the rule does not hold"),
        FormKey(
            "covers",
            ListShape(ScalarShape("key"), bare=True),
            "keys of a configuration that are about such a cache, and of which no number is needed",
        ),
    ),
    rest=EXPRESSION,
)
TENSOR = Form(
    "a tensor",
    (
        FormKey(
            "axes",
            MapShape(ExpressionShape(token=True)),
            "its axes in logical order, each with its extent; the token axis has `~`",
            True,
        ),
        FormKey("dtype", EXPRESSION, "an element type, or an expression for one", True),
        FormKey("when", EXPRESSION, "where it is false, the tensor is not stored, and storage expressions skip it"),
        FormKey(
            "split",
            MapShape(ScalarShape("mesh axis")),
            "axis → mesh axis that it is shared over; comes before the kind's",
        ),
    ),
)
KIND = document(
    "kind",
    "a kind",
    "what a family of caches stores, and the ways in which it can lie in memory",
    FormKey("params", MapShape(PARAM), "the numbers and words that a model gives"),
    FormKey(
        "store",
        WordShape(STORES),
        "`tokens`: grows with the context; `ring`: the last so many tokens; `state`: one slot per request",
        True,
    ),
    FormKey("ring", EXPRESSION, "how many tokens a ring keeps; goes with `store: ring`"),
    FormKey("needs", NEEDED, "which tokens a reader must have: `all`, which is the default, or limits"),
    FormKey(
        "length",
        ScalarShape("name", LENGTH),
        "the name of the range of tokens that a request gives for such caches; `context` if not given",
    ),
    FormKey(
        "split",
        MapShape(ScalarShape("mesh axis")),
        "axis → mesh axis that it is shared over. More workers than items hold copies",
    ),
    FormKey("tensors", MapShape(TENSOR), "what is stored", True),
    FormKey(
        "storage",
        MapShape(EitherShape((STORAGE, MapShape(STORAGE, label=True))), label=True),
        "in which ways it may lie in memory: a storage expression, or several by name, an allocation each",
        True,
    ),
    FormKey(
        "match",
        EitherShape((RULE, ListShape(RULE))),
        "where a checkpoint's configuration has such caches: parameters of the kind as expressions of its values",
    ),
)
WHOSE = NameShape("kind", (*STORES, "default"))
