"""The form of kind files, and of what engines and models have in common with them: parameters, needs, rules."""

from __future__ import annotations

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    STORAGE,
    TEXT,
    Either,
    Expression,
    Form,
    Key,
    Known,
    Many,
    Named,
    Scalar,
    Word,
    document,
)

TYPES = ("int", "dtype", "name", "sizes")
STORES = ("tokens", "ring", "state")
ALL = "all"
LENGTH = "[a-z][a-z0-9_]*"

PARAM = Form(
    "a parameter",
    (
        Key(
            "type",
            Word(TYPES),
            "what its values are: whole numbers, which is the default; element types; words; sets of sizes",
        ),
        Key("default", EXPRESSION, "its value where none is given; a parameter without one is required"),
        Key("values", Many(Scalar("word"), bare=True), "the words that it may be"),
        Key("aliases", Named(Scalar("word")), "other words, each for one of `values`"),
        Key("doc", TEXT, "what it is, for people"),
    ),
)
NEEDS = Form(
    "needs",
    (
        Key(
            "window",
            EXPRESSION,
            "those among the last `window` − 1: the window of the next token includes that token itself",
        ),
        Key("retain", EXPRESSION, "those before the window, this many more"),
        Key(
            "chunk",
            EXPRESSION,
            "those in the chunk of `end`, from `end // chunk * chunk` on; none where `end` begins a chunk",
        ),
        Key("sink", EXPRESSION, "the first tokens of the whole request, besides those of the window or chunk"),
    ),
)
NEEDED = Either((Word((ALL,)), NEEDS))
RULE = Form(
    "a rule",
    (
        Key("name", Scalar("name", LABEL.pattern), "what the cache is called; the kind's name if not given"),
        Key("when", EXPRESSION, "where it is false, or asks for what is not there, the rule does not hold"),
        Key(
            "covers",
            Many(Scalar("key"), bare=True),
            "keys of a configuration that are about such a cache, and of which no number is needed",
        ),
    ),
    rest=EXPRESSION,
)
TENSOR = Form(
    "a tensor",
    (
        Key(
            "axes",
            Named(Expression(token=True)),
            "its axes in logical order, each with its extent; the token axis has `~`",
            True,
        ),
        Key("dtype", EXPRESSION, "an element type, or an expression for one", True),
        Key("when", EXPRESSION, "where it is false, the tensor is not stored, and storage expressions skip it"),
        Key("split", Named(Scalar("mesh axis")), "axis → mesh axis that it is shared over; comes before the kind's"),
    ),
)
KIND = document(
    "kind",
    "a kind",
    "what a family of caches stores, and the ways in which it can lie in memory",
    Key("params", Named(PARAM), "the numbers and words that a model gives"),
    Key(
        "store",
        Word(STORES),
        "`tokens`: grows with the context; `ring`: the last so many tokens; `state`: one slot per request",
        True,
    ),
    Key("ring", EXPRESSION, "how many tokens a ring keeps; goes with `store: ring`"),
    Key("needs", NEEDED, "which tokens a reader must have: `all`, which is the default, or limits"),
    Key(
        "length",
        Scalar("name", LENGTH),
        "the name of the range of tokens that a request gives for such caches; `context` if not given",
    ),
    Key(
        "split",
        Named(Scalar("mesh axis")),
        "axis → mesh axis that it is shared over. More workers than items hold copies",
    ),
    Key("tensors", Named(TENSOR), "what is stored", True),
    Key(
        "storage",
        Named(Either((STORAGE, Named(STORAGE, label=True))), label=True),
        "in which ways it may lie in memory: a storage expression, or several by name, an allocation each",
        True,
    ),
    Key(
        "match",
        Either((RULE, Many(RULE))),
        "where a checkpoint's configuration has such caches: parameters of the kind as expressions of its values",
    ),
)
WHOSE = Known("kind", (*STORES, "default"))
