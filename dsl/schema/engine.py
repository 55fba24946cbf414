"""The form of engine files, and the names that their expressions may ask for."""

from __future__ import annotations

from kvplan.dsl.schema.kind import PARAM, WHOSE
from kvplan.dsl.schema.model import FOUND
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    STORAGE,
    TEXT,
    TRUTH,
    Either,
    Form,
    Key,
    Known,
    Many,
    Named,
    Scalar,
    Word,
    document,
)

COPIES = ("consecutive", "round_robin")
FORMS, ASSIGNS = ("by_page", "by_cache", "by_tokens", "by_reach"), ("strided", "blocked")
OVERLAYS = ("false", "true")
LAYERS = ("even", "remainder_before_last", "remainder_last")
DERIVED = ("tokens", "kernel_block", "ratio")
AXIS = Scalar("mesh axis")

REQUIRE = Form(
    "a requirement",
    (
        Key("that", EXPRESSION, "what must hold", True),
        Key("say", TEXT, "the sentence to refuse with where it does not; `{name}` is replaced by a value", True),
        Key("for", Known("kind"), "holds once for every cache of this kind, whose parameters `that` and `say` may use"),
    ),
)
GROUPS = Form(
    "groups",
    (
        Key(
            "form",
            Word(FORMS, True),
            "which caches share a block table: `by_page`, those that store the same thing per layer; `by_cache`, "
            "none; `by_tokens`, those that are paged alike; `by_reach`, those that need the same blocks once pages "
            "are made alike",
            True,
        ),
        Key(
            "assign",
            Word(ASSIGNS, True),
            "how a cache's layers are dealt out to groups: in turn, which is the default, or in runs",
        ),
        Key(
            "overlay", Word(OVERLAYS, True), "whether groups share memory, from its first byte on; `false` if not given"
        ),
        Key(
            "stretch",
            Scalar("fraction", "[0-9]+(/[0-9]*)?"),
            "`by_page` takes its size from the smallest bucket, or from the largest where that is less than `stretch`"
            " times the smallest; 1 if not given",
        ),
        Key(
            "block",
            EXPRESSION,
            "tokens of a cache's block before pages are made alike; those derived if not given (`by_reach`)",
        ),
        Key(
            "page",
            Named(EXPRESSION, keys=WHOSE),
            "by kind, store or `default`: bytes that a page has at least (`by_reach`)",
        ),
        Key("inside", EXPRESSION, "whether layers lie inside blocks (`by_reach`)"),
        Key("rigid", EXPRESSION, "whether a cache's page may hold more tokens, but no padding (`by_reach`)"),
    ),
)
MESH = Form(
    "mesh",
    (
        Key("workers", Many(AXIS, bare=True), "the axes of the grid of workers, outermost first", True),
        Key(
            "derived",
            Named(EXPRESSION),
            "axes computed from a worker's `rank(axis)`; their sizes are keys of a side, too",
        ),
        Key("layers", Word(LAYERS, True), "how a pipeline shares layers out where they do not come out even", True),
        Key("tokens", Many(AXIS, bare=True), "axes that tokens go round on, outermost first, `chunk` at a time"),
        Key("chunk", EXPRESSION, "tokens that a worker takes per turn; goes with `tokens`"),
    ),
)
DUMP = Form(
    "dump",
    (
        Key("dtype", EXPRESSION, "the model's element type"),
        Key(
            "query_heads",
            EXPRESSION,
            "query heads of the whole model, or of a part of it that kinds are checked against",
        ),
        Key("caches", Many(FOUND), "rules, of which the first that holds says what a layer stores", True),
    ),
)
ENGINE = document(
    "engine",
    "an engine",
    "which of the ways that kinds know an engine uses, how it pages, groups and shards",
    Key("extends", Known("engine"), "the engine whose keys hold where this file does not say otherwise"),
    Key("versions", TEXT, "which releases it describes, for people"),
    Key("default", TRUTH, "`true` in one engine's file: sides that name no engine run it; not inherited"),
    Key("options", Named(PARAM), "what a side may set", True),
    Key("require", Many(REQUIRE), "conditions without which a side is refused"),
    Key(
        "copies",
        Word(COPIES, True),
        "where an axis has fewer items than workers: `consecutive`, worker i of t holds item i·n//t; `round_robin`, i"
        " mod n",
        True,
    ),
    Key(
        "storage",
        Named(TEXT, keys=WHOSE, must=("default",)),
        "kind, store or `default` → name of the storage expression, in which `{option}` is replaced by an option's "
        "value",
        True,
    ),
    Key(
        "own",
        Named(Named(Either((STORAGE, Named(STORAGE, label=True))), label=True), keys=Known("kind")),
        "kind → name → storage expressions of this engine only",
    ),
    Key(
        "derive",
        Named(EXPRESSION, must=DERIVED),
        "`tokens` of a logical block, `kernel_block`, `ratio`, and whatever they need",
        True,
    ),
    Key(
        "stride",
        Named(EXPRESSION, keys=WHOSE),
        "kind, store or `default` → bytes between two blocks; without it, the page",
    ),
    Key("groups", GROUPS, "how layers form groups, each with a block table", True),
    Key("mesh", MESH, "how workers are arranged, and what is shared out over them", True),
    Key(
        "dump",
        DUMP,
        "how `kvplan from-cache` makes a model of what the engine prints: expressions over a layer's spec, the options "
        "in force and the mesh",
    ),
)
