"""The forms of model, deployment and config files."""

from __future__ import annotations

from kvplan.dsl.schema.kind import NEEDED, RULE
from kvplan.dsl.schema.shapes import (
    DTYPE,
    EXPRESSION,
    TEXT,
    TRUTH,
    Either,
    Form,
    Key,
    Known,
    Many,
    Named,
    Scalar,
    Whole,
    document,
)

FAMILY = "variants"
# What a variant cannot differ in: it is said once in a file.
ONCE = ("kvplan", "model", FAMILY)
# Layers that a model may have, and draft layers: a slip of a digit must not take all memory.
MOST_LAYERS = 1000
HELD = Either((Many(Whole()), EXPRESSION))

CACHE = Form(
    "a cache",
    (
        Key("kind", Known("kind"), "what is stored", True),
        Key(
            "layers",
            HELD,
            "which layers have it: `all`, `drafts`, a list of numbers, or an expression of `layer`",
            True,
        ),
        Key("needs", NEEDED, "which tokens a reader must have, instead of what the kind says"),
        Key("optional", TRUTH, "whether it is skipped, and reported, where one side lacks it"),
        Key(
            "when",
            EXPRESSION,
            "an expression of a side's options; where it is false, the side does not store the cache",
        ),
    ),
    rest=EXPRESSION,
)
REMARK = Form(
    "a remark",
    (Key("when", EXPRESSION, "where it is said", True), Key("say", TEXT, "the sentence; `{name}` is replaced", True)),
)
FOUND = Form("a cache's rule", (Key("kind", Known("kind"), "what is stored", True), *RULE.keys), rest=EXPRESSION)
WORDS = Key(
    "words", Named(EXPRESSION), "names for what a configuration says, in this order; each may use those before it"
)
REMARKS = Key("remarks", Many(REMARK), "sentences to say to whoever reads a configuration")
OWN = Form(
    "config",
    (
        WORDS,
        Key(
            "caches",
            Named(Either((FOUND, Many(FOUND))), label=True),
            "rules for caches, which come before those of the kinds",
        ),
        REMARKS,
    ),
)
MODEL_KEYS = (
    Key(
        "match",
        Named(Either((TEXT, Many(TEXT))), keys=Known("key")),
        "keys of a checkpoint's configuration by which the model is known, each with its value or a list of values",
    ),
    Key("dtype", DTYPE, "element type of the model; an engine's cache type defaults to it", True),
    Key("query_heads", Whole(), "what engines check sharding against"),
    Key("layers", Whole(1, MOST_LAYERS), "how many layers the model has, with caches or without", True),
    Key(
        "drafts",
        Whole(0, MOST_LAYERS),
        "how many draft layers follow them, 0 if not given; they run on the last stage of a pipeline",
    ),
    Key("caches", Named(CACHE, label=True), "what its layers store", True),
    Key("config", OWN, "how a configuration of such a model is read where the kinds' `match` does not say it"),
)
VARIANT = Form(
    "a variant",
    (
        Key("title", TEXT, "what it is called, for people"),
        Key("doc", TEXT, "more, for people"),
        Key("doc-ref", TEXT, "where its numbers come from"),
        *MODEL_KEYS,
    ),
)
MODEL = document(
    "model",
    "a model",
    "which layers have which kind of cache, with which numbers",
    *MODEL_KEYS,
    Key(
        FAMILY,
        Named(VARIANT, label=True),
        "models that differ from this file in some keys; the file itself is none then",
    ),
)
PLAN = Form(
    "a plan",
    (
        Key(
            "models",
            Many(Known("model"), bare=True),
            "names, or paths that begin at the deployment file's folder",
            True,
        ),
        Key("prefill", Many(Scalar("side"), bare=True), "sides that have the cache", True),
        Key("decode", Many(Scalar("side"), bare=True), "sides that need it", True),
        Key("options", Named(TEXT, keys=Known("option")), "options of `kvplan compile`"),
    ),
)
DEPLOYMENT = document(
    "deployment",
    "a deployment",
    "which pairs of sides are to be compiled",
    Key("plans", Many(PLAN), "what is compiled: all models times all pairs of sides", True),
)
CONFIG = document(
    "config",
    "a config",
    "how the configurations of one format are read, whatever the model",
    Key("inside", Many(Scalar("name"), bare=True), "mappings in which the numbers of a model may stand"),
    Key("match", Many(Scalar("name"), bare=True), "keys that tell one model from another; the first must hold"),
    Key("words", WORDS.shape, WORDS.doc, True),
    REMARKS,
    Key("faults", Many(REMARK), "sentences to refuse a configuration with"),
    Key("about", Many(Scalar("pattern"), bare=True), "what keys look like that are about caches; `*` is any letters"),
    Key("aside", Many(Scalar("pattern"), bare=True), "keys that look so and are not about what is stored"),
)
