"""The rules of a review: everything that can change between two plans, with a permanent id and a category."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest


class Category(StrEnum):
    """What a change means for engines that run. Later ones are more severe, except COST, which moves nothing."""

    TEXT = "TEXT"
    COST = "COST"
    PLAN = "PLAN"
    CONTRACT = "CONTRACT"
    BYTES = "BYTES"


MEANINGS = {
    Category.TEXT: "names, comments, order: engines of before and after can talk",
    Category.COST: "descriptors or bytes up by more than the share that `--cost-share` gives",
    Category.PLAN: "the same bytes by other reads: no engine's memory changes, and both load the new plan",
    Category.CONTRACT: "who waits for whom: both load the new plan",
    Category.BYTES: "a page, a span or a coordinate moves: engines of before and after must not talk",
}


@dataclass(frozen=True, slots=True)
class DiffRule:
    """One kind of change. `detail`: it nearly always follows from a change under another rule.

    `cause`: somebody wrote it into a layout, a side or a command; what is no cause follows.
    """

    id: str
    category: Category
    sentence: str
    cause: bool = False
    detail: bool = False


TEXT, PLAN, BYTES, CONTRACT, COST = Category.TEXT, Category.PLAN, Category.BYTES, Category.CONTRACT, Category.COST
# An id is never changed, and never used again for anything else.
TABLE = (
    DiffRule("FILE_TEXT", TEXT, "A plan's text reads otherwise; its digest is the same."),
    DiffRule("FILE_NAME", TEXT, "A plan lies in another file.", detail=True),
    DiffRule("TITLE", TEXT, "The model has another title."),
    DiffRule("MODEL_NAME", TEXT, "The model has another name.", cause=True),
    DiffRule("OPTION", TEXT, "A side has another value of an option; other rules tell what follows.", cause=True),
    DiffRule("PAIR_NEW", PLAN, "A pair that had no plan has one."),
    DiffRule("COMPILE_OPTION", PLAN, "A plan is compiled with another --elect, --strategy or --machine.", cause=True),
    DiffRule("READERS", PLAN, "A decode worker reads from other prefill workers.", detail=True),
    DiffRule("READS", PLAN, "A decode worker reads other layers, heads or groups from a prefill worker.", detail=True),
    DiffRule("SPANS_CUT", PLAN, "Between pages that did not change the same bytes are read in other spans."),
    DiffRule("STAGES", PLAN, "A read goes by way of a stage, goes so no more, or by other ranges of pages."),
    DiffRule("PAIR_GONE", BYTES, "A pair has no plan any more: engines of it cannot talk."),
    DiffRule("FORMAT", BYTES, "A plan has another format, which kvplan of one side cannot read."),
    DiffRule("WORKERS", BYTES, "A side has another number of workers.", cause=True),
    DiffRule("CACHE", BYTES, "A cache is new or removed.", cause=True),
    DiffRule("SKIPPED", BYTES, "An optional cache is moved that was not, or is not any more.", cause=True),
    DiffRule("LAYERS", BYTES, "A cache lies on other layers.", cause=True),
    DiffRule("TENSOR", BYTES, "A tensor of a cache is new or removed.", cause=True),
    DiffRule("DTYPE", BYTES, "A tensor has elements of another type.", cause=True),
    DiffRule("EXTENT", BYTES, "A tensor has more or fewer items on an axis.", cause=True),
    DiffRule("HOLDS", BYTES, "A worker holds other items of a split axis.", detail=True),
    DiffRule("GROUP", BYTES, "Layers share other block tables: a group is new or removed."),
    DiffRule("GROUP_KIND", BYTES, "A group stores something else, or has another length, table or overlay."),
    DiffRule("BLOCK_TOKENS", BYTES, "A block holds more or fewer tokens."),
    DiffRule("KERNEL_BLOCKS", BYTES, "A block is made of other kernel blocks."),
    DiffRule("TURNS", BYTES, "Workers take turns of the tokens otherwise."),
    DiffRule("RING", BYTES, "A ring keeps more or fewer tokens."),
    DiffRule("PAGE_BYTES", BYTES, "A page has more or fewer bytes."),
    DiffRule("BLOCK_STRIDE", BYTES, "Two blocks lie further apart, or nearer.", detail=True),
    DiffRule("AXIS_ORDER", BYTES, "The axes of a tensor are nested in another order."),
    DiffRule("PLACE", BYTES, "A tensor begins at another byte of its page.", detail=True),
    DiffRule("STEPS", BYTES, "Items of a tensor lie further apart, or nearer.", detail=True),
    DiffRule("PLANES", BYTES, "A worker has other planes, or numbers them otherwise.", detail=True),
    DiffRule("MEMORY", BYTES, "A cache lies in another memory, of the host or of a device.", cause=True),
    DiffRule("GROUP_PAIRS", BYTES, "Other groups of the two sides meet.", detail=True),
    DiffRule("NEEDS", BYTES, "Other tokens of a request are moved.", cause=True),
    DiffRule("SPANS", BYTES, "Spans lie elsewhere, as a page of theirs has changed.", detail=True),
    DiffRule("DIGEST", BYTES, "A plan has another digest for a reason that no other rule tells."),
    DiffRule("TOLD", CONTRACT, "A decode worker tells other prefill workers that it is done, and reads nothing."),
    DiffRule("WAITS", CONTRACT, "A prefill worker waits for more or fewer notifications."),
    DiffRule("DESCRIPTORS", COST, "More or fewer descriptors are posted, of 1,024 tokens, or of a state."),
    DiffRule("MOVED_BYTES", COST, "More or fewer bytes are moved, of 1,024 tokens, or of a state."),
)  # fmt: skip
RULES = {rule.id: rule for rule in TABLE}
# The order of changes in a review.
POSITION = {rule.id: number for number, rule in enumerate(TABLE)}


def chosen(word: str) -> tuple[str, ...]:
    """The ids that a word stands for: a rule's, or all of a category, in any case. Raises BadInput (S027)."""
    name = word.strip().upper()
    if name in MEANINGS:
        return tuple(rule.id for rule in TABLE if rule.category == name)
    if name in RULES:
        return (name,)
    raise BadInput("S027", f"there is no rule or category {word!r}", nearest(name, [*MEANINGS, *sorted(RULES)]))
