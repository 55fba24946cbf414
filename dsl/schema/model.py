"""The forms of model, deployment and config files."""

from __future__ import annotations

from kvplan.dsl.schema.kind import NEEDED, RULE
from kvplan.dsl.schema.shapes import (
    DTYPE,
    EXPRESSION,
    TEXT,
    TRUTH,
    EitherShape,
    Form,
    FormKey,
    ListShape,
    MapShape,
    NameShape,
    ScalarShape,
    WholeShape,
    document,
)

FAMILY = "variants"
# What a variant cannot differ in: it is said once in a file.
ONCE = ("kvplan", "model", FAMILY)
# Layers that a model may have, and draft layers: a slip of a digit must not take all memory.
MOST_LAYERS = 1000
HELD = EitherShape((ListShape(WholeShape()), EXPRESSION))

CACHE = Form(
    "a cache",
    (
        FormKey("kind", NameShape("kind"), "what is stored", True),
        FormKey(
            "layers",
            HELD,
            "which layers have it: `all`, `drafts`, a list of numbers, or an expression of `layer`",
            True,
        ),
        FormKey("needs", NEEDED, "which tokens a reader must have, instead of what the kind says"),
        FormKey("optional", TRUTH, "whether it is skipped, and reported, where one side lacks it"),
        FormKey(
            "when",
            EXPRESSION,
            "an expression of a side's options; where it is false, the side does not store the cache",
        ),
    ),
    rest=EXPRESSION,
)
REMARK = Form(
    "a remark",
    (
        FormKey("when", EXPRESSION, "where it is said", True),
        FormKey("say", TEXT, "the sentence; `{name}` is replaced", True),
    ),
)
FOUND = Form(
    "a cache's rule", (FormKey("kind", NameShape("kind"), "what is stored", True), *RULE.keys), rest=EXPRESSION
)
WORDS = FormKey(
    "words", MapShape(EXPRESSION), "names for what a configuration says, in this order; each may use those before it"
)
REMARKS = FormKey("remarks", ListShape(REMARK), "sentences to say to whoever reads a configuration")
OWN = Form(
    "config",
    (
        WORDS,
        FormKey(
            "caches",
            MapShape(EitherShape((FOUND, ListShape(FOUND))), label=True),
            "rules for caches, which come before those of the kinds",
        ),
        REMARKS,
    ),
)
MODEL_KEYS = (
    FormKey(
        "match",
        MapShape(EitherShape((TEXT, ListShape(TEXT))), keys=NameShape("key")),
        "keys of a checkpoint's configuration by which the model is known, each with its value or a list of values",
    ),
    FormKey("dtype", DTYPE, "element type of the model; an engine's cache type defaults to it", True),
    FormKey("query_heads", WholeShape(), "what engines check sharding against"),
    FormKey("layers", WholeShape(1, MOST_LAYERS), "how many layers the model has, with caches or without", True),
    FormKey(
        "drafts",
        WholeShape(0, MOST_LAYERS),
        "how many draft layers follow them, 0 if not given; they run on the last stage of a pipeline",
    ),
    FormKey("caches", MapShape(CACHE, label=True), "what its layers store", True),
    FormKey("config", OWN, "how a configuration of such a model is read where the kinds' `match` does not say it"),
)
VARIANT = Form(
    "a variant",
    (
        FormKey("title", TEXT, "what it is called, for people"),
        FormKey("doc", TEXT, "more, for people"),
        FormKey("doc-ref", TEXT, "where its numbers come from"),
        *MODEL_KEYS,
    ),
)
MODEL = document(
    "model",
    "a model",
    "which layers have which kind of cache, with which numbers",
    *MODEL_KEYS,
    FormKey(
        FAMILY,
        MapShape(VARIANT, label=True),
        "models that differ from this file in some keys; the file itself is none then",
    ),
)
PLAN = Form(
    "a plan",
    (
        FormKey(
            "models",
            ListShape(NameShape("model"), bare=True),
            "names, or paths that begin at the deployment file's folder",
            True,
        ),
        FormKey("prefill", ListShape(ScalarShape("side"), bare=True), "sides that have the cache", True),
        FormKey("decode", ListShape(ScalarShape("side"), bare=True), "sides that need it", True),
        FormKey("options", MapShape(TEXT, keys=NameShape("option")), "options of `kvplan compile`"),
    ),
)
DEPLOYMENT = document(
    "deployment",
    "a deployment",
    "which pairs of sides are to be compiled",
    FormKey("plans", ListShape(PLAN), "what is compiled: all models times all pairs of sides", True),
)
CONFIG = document(
    "config",
    "a config",
    "how the configurations of one format are read, whatever the model",
    FormKey("inside", ListShape(ScalarShape("name"), bare=True), "mappings in which the numbers of a model may stand"),
    FormKey(
        "match", ListShape(ScalarShape("name"), bare=True), "keys that tell one model from another; the first must hold"
    ),
    FormKey("words", WORDS.shape, WORDS.doc, True),
    REMARKS,
    FormKey("faults", ListShape(REMARK), "sentences to refuse a configuration with"),
    FormKey(
        "about",
        ListShape(ScalarShape("pattern"), bare=True),
        "what keys look like that are about caches; `*` is any letters",
    ),
    FormKey(
        "aside", ListShape(ScalarShape("pattern"), bare=True), "keys that look so and are not about what is stored"
    ),
)
