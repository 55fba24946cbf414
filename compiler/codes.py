"""Every code the compiler and the command line say no with: one sentence, and what to know about it.

Permanent and never reused. S sides and options, Q requests, C pairs that are refused, P proofs that fail, D dumps.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.codes_dumps import DUMPS
from kvplan.compiler.codes_proofs import PROOFS

Codes = Mapping[str, tuple[str, str]]

SIDES: Codes = {
    "S001": ("an item of a side is not key=value", "A side is written tp=4,order=nhd: keys and values with commas."),
    "S002": ("a side gives a key twice", "Which of the two was meant cannot be known. Give it once."),
    "S003": ("a side stands for several", "/ makes a product of sides; here one side is needed."),
    "S004": ("a value of a side is not a whole number", "Sizes are decimal whole numbers, without signs or units."),
    "S005": ("an unknown key of a side", "Keys are mesh axes, the engine's options, and what the engine derives."),
    "S006": ("a rule that kvplan does not know", "Groups and pipelines have algorithms by name, from a fixed set."),
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
        "a storage that no kind has",
        "An option of the side names the storage expressions of the engine's caches, and none has that name. `kvplan "
        "explain` and the kinds' files have the names.",
    ),
    "S015": ("an unknown compile option or value", "elect and strategy belong to a compilation, not to a side."),
    "S016": ("a cache that cannot be left out", "without= names caches that the model's file marks as optional."),
    "S017": ("shares that do not add up", "share.CACHE.AXIS=3+5 has one number per worker, all items together."),
    "S018": ("what a cache needs makes no sense", "A window or a chunk, and numbers of tokens from 0 up."),
    "S019": (
        "two groups of one name",
        "Groups are named by their caches, `name.0`, `name.1` … where the layers of one take several. Caches with dots "
        "and numbers in their names may collide with that: give them other names.",
    ),
    "S021": (
        "no plan, folder or revision of that name",
        "Give the path of a plan, a folder of plans or REVISION:PATH.",
    ),
    "S022": ("no code of that name", "docs/errors.md lists all codes."),
    "S023": ("a command line that cannot be read", "`kvplan COMMAND --help` shows the options and what they take."),
    "S024": ("no worker of that number", "--worker names a decode worker of a pair of sides, counted from 0."),
}

REQUESTS: Codes = {
    "Q001": ("the request is not JSON", "docs/trace.md shows a request."),
    "Q002": ("a request's mapping has wrong keys", "A key is unknown, missing or given twice, or it is no mapping."),
    "Q003": ("a side's tables are not a mapping", "prefill and decode map the names of groups to their tables."),
    "Q004": ("the token range is wrong", "tokens is [first needed, end], which may be equal: nothing is copied then."),
    "Q005": ("ids are not a list", "A block table lists block ids by position, null where there is no block."),
    "Q006": ("not a whole number from 0 up", "Ids, slots, positions and tokens are whole numbers below 2^31."),
    "Q007": (
        "an unknown group",
        "The request has a table for a group that this side does not have; the two sides may form groups "
        "differently, so a name of one may be unknown on the other. `kvplan explain MODEL --decode SIDE` lists "
        "the groups of a side.",
    ),
    "Q008": (
        "a group has no table",
        "Every group that has a layer in common with the other side needs its table, or nobody knows where its "
        "tokens lie. Give its ids, or the slot of its state.",
    ),
    "Q009": (
        "a table of the wrong sort",
        "A group that stores tokens has a block for every position, `first` and `ids`; a state lies in one slot, "
        "`slot` and `at`. Write the other of the two.",
    ),
    "Q010": (
        "a state stands after other tokens",
        "A state is the sum of all tokens before it and cannot be trimmed, so `at` is the end of the token range "
        "on both sides. Ask for the tokens up to where the state stands, or give the slot that stands at the end. A "
        "ring that is written stands at the end, too; one that is read may stand after more tokens.",
    ),
    "Q011": (
        "a block table is too short",
        "Every position that holds a needed token has to have a block, on both sides: what a missing block held "
        "cannot be read, or has no place. Positions that hold nothing needed, such as those before a window, may "
        "be null or absent. Give the missing ids, or ask for fewer tokens.",
    ),
    "Q016": (
        "a ring with too few or too many blocks",
        "A ring has a fixed number of blocks, behind the last of which positions begin again, so that the place of a "
        "token depends on how many there are. Give the ids of all of them, in order, null for one that is not there.",
    ),
    "Q017": (
        "a ring that has gone on",
        "A ring keeps the last tokens only, and each token that is written overwrites the one a whole ring before it. "
        "What is needed was overwritten before the tokens after which the ring stands: ask sooner, or for a range that "
        "ends later.",
    ),
    "Q012": (
        "a block beyond the pool",
        "The side's `blocks` says how many logical blocks its pool has, ids begin with 0, and behind the last "
        "lies other memory. Give the id that is meant, or the pool's true size.",
    ),
    "Q013": (
        "a block is given twice",
        "A block holds one position of one group, also among groups that overlay the same memory: of two "
        "positions one would have the other's tokens. Give every position a block of its own, and null where "
        "there is none.",
    ),
    "Q014": (
        "tokens for a length that no cache has",
        "Most caches have the context's length, which `tokens` gives; only a kind that names a `length` of its "
        "own is given tokens under `lengths`. Leave the name out, or mend it.",
    ),
    "Q015": (
        "a length without tokens",
        "A cache with a length of its own, such as a cross attention's, does not grow with the context, so "
        "`tokens` says nothing about it. Give its range under `lengths`.",
    ),
    "Q020": (
        "the tables do not fit the plan",
        "A block table ends before the tokens that are asked for. A guard: the request is checked against both "
        "sides first, which is Q011. Give ids for every block position of the tokens.",
    ),
    "Q021": (
        "an id beyond the pool",
        "The side's `blocks` says how many logical blocks there are. A guard: the request is checked against both "
        "sides first, which is Q012. Give the id that is meant, or the pool's true size.",
    ),
    "Q030": ("a list of copies is not JSON", "Its text cannot be parsed; docs/trace.md has the format."),
    "Q031": ("a list of copies of another shape", "Keys are unknown, missing or twice, or it is no list of copies."),
    "Q032": ("a number of a copy is out of range", "Workers and offsets are from 0 up, bytes from 1, all within 2^48."),
    "Q033": ("a copy names an unknown worker", "Workers are numbered from 0, in the engine's order."),
    "Q034": ("a copy names an unknown plane", "`kvplan trace --format json` lists the planes of every worker."),
    "Q035": ("a copy beyond the pool", "The side's blocks= says how many logical blocks there are."),
}

REFUSED: Codes = {
    "C101": (
        "a size in a storage expression is none",
        "A tile, a pad or a number of extra iterations comes out as something that is not a whole number from 0 "
        "up, so that nothing has a place behind it. The message has the expression and its value: mend it in the "
        "kind, or the size that it uses in the model.",
    ),
    "C106": (
        "a page is beyond what a plan can address",
        "A plan gives a place in a page as a number below 2^44, and a page or its block stride is longer than "
        "that. It is most likely a slip: look at the sizes of this cache in the model, and at the options of the "
        "side.",
    ),
    "C102": (
        "a page is larger than its block stride",
        "The engine's `stride` puts two blocks closer together than a page is long, so that one would overwrite "
        "the other. Mend the rule: a stride is `page` and whatever padding follows it.",
    ),
    "C103": (
        "a loop over tensors of unlike extents",
        "A loop of a storage expression runs as often as its axis has items, and the tensors under it have unlike "
        "numbers of them on one worker. Give each of them a loop of its own.",
    ),
    "C104": (
        "a tile does not divide its axis",
        "A tile is a fixed number of items, and the part of the axis that one worker holds is no multiple of it: "
        "the last tile would be cut. Choose a tile that divides it, or a mesh that leaves a worker a multiple of "
        "the tile.",
    ),
    "C105": (
        "the tiles of an axis do not chain",
        "Tiles are the digits of an index, and together they reach every item once, as dim/8 with dim%8 does. "
        "Here some item has no place, or two. Let each tile count in the whole of the next smaller one.",
    ),
    "C110": (
        "the engine cannot run this model on this mesh",
        "The engine's file says under `require` what it can run, and one of its conditions does not hold: its own "
        "sentence is the message, and the line below has the condition with its values. Choose a mesh or an "
        "option with which it holds.",
    ),
    "C111": (
        "more stages than layers",
        "The engine's rule gives every stage a layer, so there cannot be more stages than layers. Use a smaller "
        "number of stages.",
    ),
    "C112": (
        "a coordinate outside its mesh axis",
        "The engine's file computes a worker's rank on a derived axis, and it comes out as no rank of that axis: "
        "what the worker holds is then unknown. Mend the rule under `derived` of the engine's `mesh`, or give the "
        "axis the size that the rule expects.",
    ),
    "C113": (
        "the kernel block does not divide the logical block",
        "Block tables name logical blocks, the attention kernel addresses kernel blocks, and `ratio` kernel "
        "blocks make one logical block. With any other size an id would not say where its tokens lie. Use a "
        "`kernel_block` that divides the logical block, and leave `ratio` to the engine.",
    ),
    "C114": (
        "a derived number makes no sense",
        "The engine's rules for this side give a block, a ratio or a turn that is no whole number from 1 up, or a "
        "stride that is no number of bytes. Choose an option with which they do, or mend the rule in the engine's "
        "file.",
    ),
    "C119": (
        "a ring is no whole number of blocks",
        "A ring of blocks begins again behind its last block, so that it holds as many tokens as all of its blocks. "
        "Give the cache blocks that divide its ring: most engines have one block for a ring.",
    ),
    "C120": (
        "a ring keeps less than is needed",
        "A ring keeps the last tokens of a request and nothing else. What its readers need, a window or a chunk, has "
        "to be there at once, and a row of several tokens that is not full yet takes the place of the oldest one; the "
        "first tokens of a request are gone. Make the ring larger, or say which tokens are needed.",
    ),
    "C118": (
        "the engine cannot derive its blocks",
        "A rule under `derive` has no value for this side: none of the kernel's block sizes divides the block, or "
        "something is divided by zero. The line below has what is in play. Choose a block or an option with which "
        "the rule has a value.",
    ),
    "C116": (
        "a block or a turn cuts a row of several tokens",
        "The tensor has one row for several tokens, and a kernel block, or a worker's turn of the tokens, ends "
        "inside a row: no block holds that row whole. Use blocks and turns of whole rows.",
    ),
    "C121": (
        "the engine has no storage for a cache",
        "An engine's file says by which of a kind's storage expressions it stores a cache, and the kind has none of "
        "that name, or one without a place for what is stored: that engine cannot store that cache. Where an option "
        "chooses the storage, choose another. Where an engine of yours has one of its own, write it under `own` in "
        "its file, which may begin with `extends`; or add it to the kind, if the kind is yours.",
    ),
    "C130": (
        "the sides run different models",
        "A plan moves the caches of one model, and the caches of two are not the same thing. A guard for "
        "programs: on the command line both sides have one model. Bind both sides with the same model.",
    ),
    "C131": (
        "only one side has a cache",
        "What decode needs cannot be read where it is not stored, and leaving it out unsaid would be a silent "
        "fault. A cache with a condition (`when`) is stored where the side's options are so: give both sides those "
        "options. A cache that is marked `optional: true` in the model is skipped, and the plan says so.",
    ),
    "C132": (
        "a cache is not the same on both sides",
        "Layers, axes and their extents have to be equal, or a coordinate of one side does not exist on the "
        "other. Sizes may depend on an option of the side; unlike layers are met by programs only. Give both "
        "sides the same options, and bind them from the same files.",
    ),
    "C133": (
        "unlike record formats",
        "The sides store other tensors for the same cache, such as plain elements here, and elements with their "
        "scales there. kvplan does not quantise, and does not restore what was quantised. Use one format on both "
        "sides; the line below has the option.",
    ),
    "C135": (
        "the workers of a side do not hold a cache together",
        "Where tokens are shared out over the same workers as the heads, a worker holds some heads of some "
        "tokens, and the other tokens of those heads are nowhere, on decode as on prefill. What is not stored cannot "
        "be read. Share tokens out over copies only, as many ways as each head has copies or fewer, or over an axis "
        "of their own.",
    ),
    "C136": (
        "the two sides have no cache in common",
        "All caches that one side has are optional and missing on the other, so that nothing would move. Leave out "
        "fewer caches with `without`, or give both sides options with which they store the same: the line below says "
        "what each lacks, and why.",
    ),
    "C137": (
        "decode needs tokens that prefill lets go",
        "What a cache needs is worked out for either side, since a window's retained tokens may depend on options. A "
        "prefill worker frees what lies outside its own window, so that decode must not need more. Give both sides "
        "the same options.",
    ),
    "C138": (
        "pages cannot be made alike",
        "Caches that take blocks from one pool have pages of as many bytes: a smaller page holds more tokens where "
        "it divides the largest one, and is padded otherwise. The engine says that this one may not be padded. Where "
        "nothing but windows is in the way they keep all their blocks; chunks and states cannot. Use another block, or "
        "an order in which layers lie inside blocks, where pages of all sizes lie side by side.",
    ),
    "C134": (
        "unlike element types",
        "Both sides store the tensor, as unlike types. kvplan moves bytes, it does not convert: read as another "
        "type they are other numbers. Use one type on both sides; the line below has the option.",
    ),
}

CODES: Codes = {**SIDES, **REQUESTS, **REFUSED, **PROOFS, **DUMPS}
