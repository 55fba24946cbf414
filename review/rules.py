"""The rules of a review: everything that can change between two plans, with a permanent id and a category."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest


class Category(StrEnum):
    """The consequence of a change for running engines. Later ones are more severe, except COST, which moves nothing."""

    TEXT = "TEXT"
    COST = "COST"
    PLAN = "PLAN"
    LAYOUT = "LAYOUT"
    PAIR = "PAIR"


class RolloutVerdict(StrEnum):
    """The action that a change of plans asks of running engines, the gravest last."""

    SAME = "same"
    TEXT = "text"
    RELOAD = "reload"
    ONE_SIDE = "one-side"
    TOGETHER = "together"
    REMOVED = "removed"
    REFUSED = "refused"


# The way in which engines get a new plan if their sides stay the same.
REPLACE = (
    "Replace the old plan in the index (kvplan compile, or push --prune): if it has both, engines take the one with "
    "the lower digest, which may be the old one. Until both sides see the new index, new connections fail with R004: "
    "retry."
)
# Only the verdict of a pair, not one of its rules, tells whether engines restart.
FOLLOW = (
    "Follow the verdict of `kvplan diff`. If it restarts engines, put both plans into one index, then restart what it "
    "names. If no engine restarts, do as `kvplan explain reload` says."
)
# No plan and no proof tells whether a layout file is true.
COMPARE = (
    "If a layout file changed, compare it first: with an engine (`kvplan from-cache`), or a model's file with its "
    f"checkpoint (`kvplan doctor --layout`). {FOLLOW}"
)
RELOAD = f"Connected engines keep the old plan, and those that connect take the new one. {REPLACE}"
# Digests leave out a model's name; these use it.
MODEL_NAMED = (
    "Before engines restart, give `layout` in their configuration the model's new name. A store finds no caches under "
    "it, and `kvplan fleet` pairs only engines of one name."
)
VERDICTS = {
    RolloutVerdict.SAME: "no plan changes: nothing is to be done",
    RolloutVerdict.TEXT: "only texts of plans change: old and new engines can talk",
    RolloutVerdict.RELOAD: f"no engine's memory changes, and none restarts. {RELOAD[:-1]}",
    RolloutVerdict.ONE_SIDE: "the engines of one side change: they restart once one index has both plans; the other "
    "side keeps running",
    RolloutVerdict.TOGETHER: "the engines of both sides change, or their plan_options, and old and new ones "
    "refuse each other: both restart",
    RolloutVerdict.REMOVED: "a pair is removed, and its engines cannot talk any more: merge once no engine uses it",
    RolloutVerdict.REFUSED: "a pair of a deployment is refused and has no plan: correct the deployment, and compare "
    "again",
}


@dataclass(frozen=True, slots=True)
class CategoryMeaning:
    """The texts of a category: what changes, what that means to engines, and what to do about it."""

    brief: str
    more: str
    advice: str

    @property
    def text(self) -> str:
        return f"{self.brief}; {self.more}"


MEANINGS = {
    Category.TEXT: CategoryMeaning(
        "names, comments or options",
        "what an option causes has rules of its own",
        "Nothing: engines do not compare names and comments. What an option causes is reported, too: look there.",
    ),
    Category.COST: CategoryMeaning(
        "more or fewer descriptors or bytes",
        "it fails if they grow by more than `--cost-growth`",
        "Compare the times of old and new with `kvplan advise`; accept the growth, or allow it with --cost-growth.",
    ),
    Category.PLAN: CategoryMeaning(
        "other compile options, reads or notifications",
        "this alone changes no engine's memory, and both sides need the same plan",
        FOLLOW,
    ),
    Category.LAYOUT: CategoryMeaning(
        "memory or tokens differ",
        "the changed side needs the new plan, and an engine without it is refused",
        FOLLOW,
    ),
    Category.PAIR: CategoryMeaning(
        "a pair is new or removed",
        "engines of a removed pair cannot talk",
        "Accept a removed pair once no engine uses it. A new one asks nothing of engines that run.",
    ),
}


@dataclass(frozen=True, slots=True)
class DiffRule:
    """One kind of change. `advice` says what to do about it, if not what the category advises.

    `cause`: an author wrote the change into a layout, a side or a command; other changes follow from it.
    `detail`: a few words for a change that nearly always follows from a change under another rule; else empty.
    """

    id: str
    category: Category
    sentence: str
    cause: bool = False
    detail: str = ""
    advice: str = ""

    @property
    def todo(self) -> str:
        return self.advice or MEANINGS[self.category].advice


TEXT, PLAN, LAYOUT, PAIR, COST = Category.TEXT, Category.PLAN, Category.LAYOUT, Category.PAIR, Category.COST
# An id is never changed, and never used again for anything else.
TABLE = (
    DiffRule("FILE_TEXT", TEXT, "A plan's text changes, and its digest does not.",
             advice="Nothing, unless somebody edited the plan: `compile --check` tells."),
    DiffRule("FILE_NAME", TEXT, "A plan lies in another file.", detail="the file's name"),
    DiffRule("TITLE", TEXT, "The model has another title.", cause=True),
    DiffRule("MODEL_NAME", TEXT, "The model has another name.", cause=True, advice=MODEL_NAMED),
    DiffRule("OPTION", TEXT, "An option of a side has another value; other rules tell what follows.", cause=True,
             advice="Check that the author means it. The verdict of `kvplan diff` says which engines restart with it."),
    DiffRule("PAIR_NEW", PAIR, "A pair that had no plan has one.",
             advice="Nothing. Engines that run keep their plans."),
    DiffRule("PAIR_GONE", PAIR, "A pair has no plan any more: its engines cannot talk.",
             advice="Accept it once no engine uses the pair: `kvplan fleet URL --plans DIR` lists engines."),
    DiffRule("FORMAT", PLAN, "A plan has another format, which kvplan of one side cannot read.", cause=True,
             advice="Compile plans with the release of kvplan that the engines run."),
    DiffRule("COMPILE_OPTION", PLAN, "Another --elect, --strategy or --machine: both sides restart.", cause=True,
             advice="Restart both sides with equal plan_options, as the verdict of `kvplan diff` says."),
    DiffRule("READERS", PLAN, "A decode worker reads from other prefill workers.", detail="which workers are read"),
    DiffRule("READS", PLAN, "A decode worker reads other layers, heads or groups from a prefill worker.",
             detail="what each reads"),
    DiffRule("SPANS_CUT", PLAN, "The same bytes of unchanged pages are read in other spans."),
    DiffRule("STAGES", PLAN, "A read uses a stage or no longer does, or stages other ranges of pages."),
    DiffRule("TOLD", PLAN, "A decode worker notifies other prefill workers from which it reads nothing."),
    DiffRule("WAITS", PLAN, "A prefill worker waits for more or fewer notifications."),
    DiffRule("WORKERS", LAYOUT, "A side has another number of workers.", cause=True),
    DiffRule("CACHE", LAYOUT, "A cache is new or removed.", cause=True),
    DiffRule("SKIPPED", LAYOUT, "An optional cache begins or ceases to be moved.", cause=True),
    DiffRule("LAYERS", LAYOUT, "A cache lies on other layers.", cause=True),
    DiffRule("TENSOR", LAYOUT, "A tensor of a cache is new or removed.", cause=True),
    DiffRule("DTYPE", LAYOUT, "A tensor has elements of another type.", cause=True),
    DiffRule("EXTENT", LAYOUT, "A tensor has more or fewer items on an axis.", cause=True, advice=COMPARE),
    DiffRule("HOLDS", LAYOUT, "A worker holds other items of a split axis.", detail="which items a worker holds"),
    DiffRule("GROUP", LAYOUT, "Layers share other block tables: a group is new or removed."),
    DiffRule("GROUP_KIND", LAYOUT, "A group stores something else, or has another length, table or overlay."),
    DiffRule("BLOCK_TOKENS", LAYOUT, "A block holds more or fewer tokens.",
             advice=f"If `block` did not change, an engine raised it: pages of all groups have equal bytes. {FOLLOW}"),
    DiffRule("KERNEL_BLOCKS", LAYOUT, "A block is made of other kernel blocks."),
    DiffRule("TURNS", LAYOUT, "Workers take turns at other tokens."),
    DiffRule("RING", LAYOUT, "A ring keeps more or fewer tokens."),
    DiffRule("PAGE_BYTES", LAYOUT, "A page has more or fewer bytes."),
    DiffRule("TOKEN_BYTES", LAYOUT, "A token in a page has more or fewer bytes."),
    DiffRule("BLOCK_STRIDE", LAYOUT, "The distance between two blocks in memory changes.",
             detail="the distance between blocks"),
    DiffRule("AXIS_ORDER", LAYOUT, "The axes of a tensor are nested in another order."),
    DiffRule("PLACE", LAYOUT, "A tensor begins at another byte of its page.", detail="where a tensor begins"),
    DiffRule("STEPS", LAYOUT, "The distance between two items of a tensor changes.",
             detail="the distance between items"),
    DiffRule("PLANES", LAYOUT, "A worker has other planes, or numbers them differently.",
             detail="the numbers of KV cache tensors"),
    DiffRule("MEMORY", LAYOUT, "A cache lies in another memory, of the host or of a device.", cause=True),
    DiffRule("GROUP_PAIRS", LAYOUT, "Other groups of the two sides are matched.", detail="which groups meet"),
    DiffRule("PAGE_COPIES", LAYOUT, "Pages are copied whole, or by runs of tokens if the sides' pages differ."),
    DiffRule("NEEDS", LAYOUT, "Other tokens of a request are moved.", cause=True, advice=COMPARE),
    DiffRule("SPANS", LAYOUT, "Spans lie at other places, because a page changes.", detail="where spans lie"),
    DiffRule("DIGEST", LAYOUT, "A plan has another digest, and no other rule tells why."),
    DiffRule("DESCRIPTORS", COST,
             "The busiest decode worker posts more or fewer descriptors for 1,024 tokens or more, or for one state."),
    DiffRule("MOVED_BYTES", COST,
             "The busiest worker of either side moves more or fewer bytes for 1,024 tokens or more, or for one state."),
)  # fmt: skip
RULES = {rule.id: rule for rule in TABLE}
# The rules that fail by default: running engines may notice these changes.
FAILING = tuple(rule.id for rule in TABLE if rule.category is not TEXT and rule.id != "PAIR_NEW")
# The order of changes in a review.
POSITION = {rule.id: number for number, rule in enumerate(TABLE)}


def chosen(word: str) -> tuple[str, ...]:
    """The ids of the rules that a word names: a rule or a category, in any case. Raises BadInput (S027)."""
    name = word.strip().upper()
    if name in MEANINGS:
        return tuple(rule.id for rule in TABLE if rule.category == name)
    if name in RULES:
        return (name,)
    raise BadInput("S027", f"there is no rule or category {word!r}", nearest(name, [*MEANINGS, *sorted(RULES)]))
