"""Every code the compiler and the command line say no with: one sentence, and what to know about it.

Permanent and never reused. S sides and options, Q requests, C pairs that are refused, P proofs that do not hold.
"""

from __future__ import annotations

from collections.abc import Mapping

Codes = Mapping[str, tuple[str, str]]

SIDES: Codes = {
    "S001": ("an item of a side is not key=value", "A side is written tp=4,order=nhd: keys and values with commas."),
    "S002": ("a side gives a key twice", "Which of the two was meant cannot be known. Give it once."),
    "S003": ("a side stands for several", "/ makes a product of sides; here one side is needed."),
    "S004": ("a value of a side is not a whole number", "Sizes are decimal whole numbers, without signs or units."),
    "S005": ("an unknown key of a side", "Keys are mesh axes, the engine's options, and what the engine derives."),
    "S006": (
        "a rule that kvplan does not know",
        "Engine files name algorithms for groups and pipelines from a fixed set.",
    ),
    "S007": (
        "a list of layers per stage does not add up",
        "layers=31+30 has one number per stage, all layers together.",
    ),
    "S008": ("options that need each other", "The defaults go round in a circle. Give one of them in the side."),
    "S009": ("not a value of this option", "The option takes words from a list; the message says which."),
    "S010": ("an option without default was not given", "The engine cannot tell what it is. Give it in the side."),
    "S011": ("too many workers on one side", "The product of the mesh's sizes is beyond what a plan can hold."),
    "S012": (
        "a tensor has no usable type or size",
        "Types are element types, sizes whole numbers from 1, once resolved.",
    ),
    "S013": ("one name for two split axes", "Split axes of a cache that have unlike extents need names of their own."),
    "S014": (
        "the engine asks for a storage that the kind lacks",
        "Add the storage to the kind, or choose another order.",
    ),
    "S015": ("an unknown compile option or value", "elect and strategy belong to a compilation, not to a side."),
    "S021": (
        "no plan, folder or revision of that name",
        "Give the path of a plan, a folder of plans or REVISION:PATH.",
    ),
    "S022": ("no code of that name", "docs/errors.md lists all codes."),
    "S023": ("a command line that cannot be read", "`kvplan COMMAND --help` shows the options and what they take."),
}

REQUESTS: Codes = {
    "Q001": ("the request is not JSON", "docs/trace.md shows a request."),
    "Q002": ("a request's mapping has wrong keys", "A key is unknown, missing or given twice, or it is no mapping."),
    "Q003": ("a side's tables are not a mapping", "prefill and decode map the names of groups to their tables."),
    "Q004": ("the token range is wrong", "tokens is [first needed, end], which may be equal: nothing is copied then."),
    "Q005": ("ids are not a list", "A block table lists block ids by position, null where there is no block."),
    "Q006": ("not a whole number from 0 up", "Ids, slots, positions and tokens are whole numbers below 2^31."),
    "Q007": ("an unknown group", "`kvplan explain MODEL` lists the groups of a side; sides may group differently."),
    "Q008": ("a group has no table", "Every group that has a layer in common with the other side needs its table."),
    "Q009": ("a table of the wrong sort", "Groups that store tokens have first and ids, states have slot and at."),
    "Q010": ("a state stands after other tokens", "A state cannot be trimmed: `at` is the end of the token range."),
    "Q011": (
        "a block table is too short",
        "Every position that holds a token of the range needs a block that is there.",
    ),
    "Q012": ("a block beyond the pool", "The side's blocks= says how many logical blocks there are."),
    "Q013": (
        "a block is given twice",
        "A block holds one position, also among groups that overlay the same memory.",
    ),
    "Q020": ("the tables do not fit the plan", "A block table ends before the tokens that are asked for."),
    "Q021": ("an id beyond the pool", "The side's blocks= says how many logical blocks there are."),
}

REFUSED: Codes = {
    "C101": ("a size in a storage expression is none", "Tiles, pads and extra iterations are whole numbers."),
    "C106": ("a page is beyond what a plan can address", "A page must be smaller than 2^44 bytes."),
    "C102": ("a page is larger than its block stride", "Blocks would overlap; the engine's stride rule is wrong."),
    "C103": (
        "a loop over tensors of unlike extents",
        "All tensors under one loop have the same number of items there.",
    ),
    "C104": ("a tile does not divide its axis", "Tiles divide the number of items that one worker holds."),
    "C105": ("the tiles of an axis do not chain", "The loops of an axis go over every item once: dim/8 with dim%8."),
    "C110": (
        "the engine cannot run this model on this mesh",
        "A condition of the engine file fails; its values follow.",
    ),
    "C111": ("more stages than layers", "A pipeline stage has at least one layer."),
    "C112": ("a coordinate outside its mesh axis", "The engine's rule for a derived axis gives what is not a rank."),
    "C113": (
        "the kernel block does not divide the logical block",
        "Use a divisor: a logical block is whole kernel blocks.",
    ),
    "C114": (
        "a derived number makes no sense",
        "Tokens, blocks and strides are whole numbers; look at the derive rules.",
    ),
    "C115": ("turns of tokens do not fit the blocks", "Turns divide a kernel block, or a kernel block divides them."),
    "C118": ("the engine cannot derive its blocks", "An expression of the engine file has no value for this side."),
    "C116": ("rows of several tokens", "The tensor has one row per several tokens: a range of tokens may cut one."),
    "C120": ("the token axis is tiled", "Tables step from token to token; a tile makes the step uneven."),
    "C130": ("the sides run different models", "Compile one model at a time."),
    "C131": ("only one side has a cache", "Mark the cache optional in the model to skip it."),
    "C132": ("a cache is not the same on both sides", "Layers, axes and their extents have to be equal."),
    "C133": ("unlike record formats", "The sides store other tensors for the same cache; use one format on both."),
    "C134": ("unlike element types", "kvplan moves bytes, it does not convert. Use one type on both sides."),
}

PROOFS: Codes = {
    "P001": ("a span cuts an element", "Spans begin and end between elements."),
    "P002": ("the plan is for another side", "The sides that stand in the plan are not those that were bound."),
    "P003": ("not one list of reads per decode worker", "The plan has too many or too few."),
    "P004": ("a share of the tokens is not read", "Every worker that holds tokens in turns has to be read."),
    "P005": ("a read from a worker that has none of it", "The prefill worker does not exist or lacks the group."),
    "P006": ("a read names an unknown pair", "Pairs of groups stand in the plan once, by name."),
    "P007": ("a read says it holds what it does not", "The intervals of a read are those that both workers hold."),
    "P008": ("readers are spread unevenly", "Holders of the same interval get the same number of readers, within one."),
    "P019": ("the plan's frame is not the pair's", "Its model, its digests or what it skips are not what was bound."),
    "P009": ("a prefill worker is never told", "Every worker is read or named as notify-only, or it keeps its blocks."),
    "P010": ("something is written outside its tensor", "A nest runs beyond an axis, or over one that is not there."),
    "P011": ("bytes are written twice", "Every byte that is needed is written exactly once."),
    "P012": ("bytes are not written", "Every byte that is needed is written exactly once."),
    "P013": ("a loop or token step is not what it says", "One step moves one axis by one amount, the same every time."),
    "P014": ("a span names other tensors", "The names in a table are those of the bytes that move."),
    "P015": ("a span pairs unlike coordinates", "Each byte comes from the same layer, head, token and element."),
    "P016": (
        "a span begins or ends in padding",
        "Padding is crossed only between data, and only where it faces padding.",
    ),
    "P017": ("a span leaves its page", "Spans lie inside one page on both sides."),
    "P018": ("the plan does not say what was proved", "The sentence in the header is recomputed and compared."),
}
CODES: Codes = {**SIDES, **REQUESTS, **REFUSED, **PROOFS}
