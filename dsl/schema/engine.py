"""The form of engine files, and the names that their expressions may ask for."""

from __future__ import annotations

from kvplan.dsl.schema.kind import PARAM, WHOSE
from kvplan.dsl.schema.model import FOUND
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    STORAGE,
    TEXT,
    TRUTH,
    EitherShape,
    Form,
    FormKey,
    ListShape,
    MapShape,
    NameShape,
    ScalarShape,
    WordShape,
    document,
)

COPIES = ("consecutive", "round_robin")
FORMS, ASSIGNS = ("by_page", "by_cache", "by_tokens", "by_reach"), ("strided", "blocked")
OVERLAYS = ("false", "true")
LAYERS = ("even", "remainder_before_last", "remainder_last")
DERIVED = ("tokens", "kernel_block", "ratio")
AXIS = ScalarShape("mesh axis")

REQUIRE = Form(
    "a requirement",
    (
        FormKey("that", EXPRESSION, "what must hold", True),
        FormKey("say", TEXT, "the sentence to refuse with where it does not; `{name}` is replaced by a value", True),
        FormKey(
            "for",
            NameShape("kind"),
            "holds once for every cache of this kind, whose parameters `that` and `say` may use",
        ),
    ),
)
GROUPS = Form(
    "groups",
    (
        FormKey(
            "form",
            WordShape(FORMS, True),
            "which caches share a block table: `by_page`, those that store the same thing per layer; `by_cache`, "
            "none; `by_tokens`, those that are paged alike; `by_reach`, those that need the same blocks once pages "
            "are made alike",
            True,
        ),
        FormKey(
            "assign",
            WordShape(ASSIGNS, True),
            "how a cache's layers are dealt out to groups: in turn, which is the default, or in runs",
        ),
        FormKey(
            "overlay",
            WordShape(OVERLAYS, True),
            "whether groups share memory, from its first byte on; `false` if not given",
        ),
        FormKey(
            "stretch",
            ScalarShape("fraction", "[0-9]+(/[0-9]*)?"),
            "`by_page` takes its size from the smallest bucket, or from the largest where that is less than `stretch`"
            " times the smallest; 1 if not given",
        ),
        FormKey(
            "block",
            EXPRESSION,
            "tokens of a cache's block before pages are made alike; those derived if not given (`by_reach`)",
        ),
        FormKey(
            "page",
            MapShape(EXPRESSION, keys=WHOSE),
            "by kind, store or `default`: bytes that a page has at least (`by_reach`)",
        ),
        FormKey("inside", EXPRESSION, "whether layers lie inside blocks (`by_reach`)"),
        FormKey("rigid", EXPRESSION, "whether a cache's page may hold more tokens, but no padding (`by_reach`)"),
    ),
)
MESH = Form(
    "mesh",
    (
        FormKey("workers", ListShape(AXIS, bare=True), "the axes of the grid of workers, outermost first", True),
        FormKey(
            "derived",
            MapShape(EXPRESSION),
            "axes computed from a worker's `rank(axis)`; their sizes are keys of a side, too",
        ),
        FormKey(
            "layers", WordShape(LAYERS, True), "how a pipeline shares layers out where they do not come out even", True
        ),
        FormKey(
            "tokens", ListShape(AXIS, bare=True), "axes that tokens go round on, outermost first, `chunk` at a time"
        ),
        FormKey("chunk", EXPRESSION, "tokens that a worker takes per turn; goes with `tokens`"),
    ),
)
DUMP = Form(
    "dump",
    (
        FormKey("dtype", EXPRESSION, "the model's element type"),
        FormKey(
            "query_heads",
            EXPRESSION,
            "query heads of the whole model, or of a part of it that kinds are checked against",
        ),
        FormKey("caches", ListShape(FOUND), "rules, of which the first that holds says what a layer stores", True),
    ),
)
ENGINE = document(
    "engine",
    "an engine",
    "which of the ways that kinds know an engine uses, how it pages, groups and shards",
    FormKey("extends", NameShape("engine"), "the engine whose keys hold where this file does not say otherwise"),
    FormKey("versions", TEXT, "which releases it describes, for people"),
    FormKey("default", TRUTH, "`true` in one engine's file: sides that name no engine run it; not inherited"),
    FormKey("options", MapShape(PARAM), "what a side may set", True),
    FormKey("require", ListShape(REQUIRE), "conditions without which a side is refused"),
    FormKey(
        "copies",
        WordShape(COPIES, True),
        "where an axis has fewer items than workers: `consecutive`, worker i of t holds item i·n//t; `round_robin`, i"
        " mod n",
        True,
    ),
    FormKey(
        "storage",
        MapShape(TEXT, keys=WHOSE, must=("default",)),
        "kind, store or `default` → name of the storage expression, in which `{option}` is replaced by an option's "
        "value",
        True,
    ),
    FormKey(
        "own",
        MapShape(MapShape(EitherShape((STORAGE, MapShape(STORAGE, label=True))), label=True), keys=NameShape("kind")),
        "kind → name → storage expressions of this engine only",
    ),
    FormKey(
        "derive",
        MapShape(EXPRESSION, must=DERIVED),
        "`tokens` of a logical block, `kernel_block`, `ratio`, and whatever they need",
        True,
    ),
    FormKey(
        "stride",
        MapShape(EXPRESSION, keys=WHOSE),
        "kind, store or `default` → bytes between two blocks; without it, the page",
    ),
    FormKey("groups", GROUPS, "how layers form groups, each with a block table", True),
    FormKey("mesh", MESH, "how workers are arranged, and what is shared out over them", True),
    FormKey(
        "dump",
        DUMP,
        "how `kvplan from-cache` makes a model of what the engine prints: expressions over a layer's spec, the options "
        "in force and the mesh",
    ),
)
