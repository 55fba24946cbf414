"""The codes of expressions and their values: E expressions, T types, B values."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.code import ErrorCode, example

EXPRESSIONS: Mapping[str, ErrorCode] = {
    "E001": ErrorCode(
        "an expression has something unexpected",
        "Expressions have whole numbers, names, 'quoted words', true and false, + - * // %, comparison, and, or, not, "
        "'a if c else b', and the functions ceildiv min max gcd lcm bytes multiples sizes least largest rank."
        + example("heads / 2", "heads // 2"),
    ),
    "E002": ErrorCode(
        "an expression ends too early",
        "Something is missing at the end: a value, or a closing bracket." + example("(dim + 1", "(dim + 1)"),
    ),
    "E003": ErrorCode(
        "an unknown function", "The functions are listed under E001." + example("maximum(a, b)", "max(a, b)")
    ),
    "E004": ErrorCode(
        "a function has the wrong arguments",
        "The message says how many it takes. rank takes the name of a mesh axis."
        + example("ceildiv(a)", "ceildiv(a, 4)"),
    ),
    "E005": ErrorCode(
        "an unknown name in an expression",
        "A kind's expressions use its parameters, options of engines, the model's dtype and query_heads. An engine's "
        "use its options and derived values, mesh axes, the model's words, states (how many caches are states), "
        "largest_state, bytes_per_token and listed (how many tensors have shares that the side lists); under 'for', "
        "the kind's parameters too. Those of derive and stride use token_bytes, window, chunk and ring of the cache "
        "that is paged, those of stride page and row too. A word is quoted: 'fp8'."
        + example("dim: head_dims", "dim: head_dim"),
    ),
    "E006": ErrorCode(
        "an expression is too long or nested too deeply",
        "Split it: give the parts names as parameters or derived values." + example("((((…))))", "part + other"),
    ),
    "E007": ErrorCode(
        "expressions need each other in a circle",
        "A default or derived value may use others, as long as none leads back to itself."
        + example("a: {default: b}, b: {default: a}", "a: {default: b}, b: {default: 16}"),
    ),
    "E010": ErrorCode(
        "storage names an unknown tensor",
        "Every word that is not followed by { in a storage expression is a tensor of the kind."
        + example("key[dim]", "k[dim]"),
    ),
    "E011": ErrorCode(
        "storage lacks a tensor",
        "Every tensor of a kind lies somewhere in each storage expression, also one that exists only under a condition."
        + example("token { k[dim] }", "token { k[dim] v[dim] }"),
    ),
    "E012": ErrorCode(
        "storage uses an axis that a tensor does not have",
        "All tensors inside axis { … } have that axis. Besides their own there are block (what the block table counts) "
        "and layer." + example("head { tokens { k[dim] } }", "head { token { k[dim] } }"),
    ),
    "E013": ErrorCode(
        "storage has a tensor twice",
        "A tensor lies in one place." + example("token { k[dim] k[dim] }", "token { k[dim] v[dim] }"),
    ),
    "E014": ErrorCode(
        "a tensor is not under exactly one block",
        "'block' is the loop that the block table indexes; loops outside it make planes, what is inside is a page."
        + example("layer { k[head token dim] }", "layer { block { k[head token dim] } }"),
    ),
    "E015": ErrorCode(
        "a tensor is not under exactly one layer",
        "'layer' is the loop over the layers of a cache, outside or inside block."
        + example("block { k[head token dim] }", "layer { block { k[head token dim] } }"),
    ),
    "E016": ErrorCode(
        "an axis is not looped over exactly once",
        "Every axis of a tensor is looped over once, or in two or more tiles that together make up the axis."
        + example("k[head token dim/8]", "k[head dim/8 token dim%8]"),
    ),
    "E017": ErrorCode(
        "padding iterations outside block",
        "axis+n adds n iterations that hold nothing; they belong to a page, and so lie inside block."
        + example("head+1 { block { … } }", "block { head+1 { … } }"),
    ),
    "E018": ErrorCode(
        "a reserved word is used as a name",
        "pad, align, block and layer mean something in storage expressions. What an engine's expressions measure, such "
        "as page or window, is no name of an option or derived value." + example("axes: {block: 4}", "axes: {slab: 4}"),
    ),
    "E019": ErrorCode(
        "a word of a storage expression takes no argument",
        "Only pad(n) and align(n) do." + example("k(dim)", "k[dim]"),
    ),
    "E020": ErrorCode(
        "a split over an axis that does not exist or is not shared",
        "A split names an axis of a tensor and the mesh axis it is shared over. Tokens are shared out by the engine."
        + example("split: {heads: tp}", "split: {head: tp}"),
    ),
    "E021": ErrorCode(
        "block and layer take no tiles and no padding",
        "How far blocks or layers lie apart is the engine's to say." + example("block+1 { … }", "block { … pad(n) }"),
    ),
    "E022": ErrorCode(
        "bytes are padded outside block",
        "pad and align belong to a page." + example("layer { block { … } pad(8) }", "layer { block { … pad(8) } }"),
    ),
    "E023": ErrorCode(
        "a mapping or list stands where an expression is expected",
        "An expression that begins with a bracket must be quoted." + example("dim: [head_dim]", "dim: head_dim"),
    ),
    "E024": ErrorCode(
        "the token axis is missing, twice or out of place",
        "Where a kind stores tokens, each tensor has one token axis: ~ for a row per token, ~/4 for a row per four "
        "tokens. A state has none."
        + example("axes: {head: heads, dim: dim}", "axes: {head: heads, token: ~, dim: dim}"),
    ),
    "E025": ErrorCode(
        "a function of foreign values where there are none",
        "has first at len count among assumed take apart what a checkpoint's configuration or an engine's dump says. "
        "They are known where such values are read, in 'match', 'config' and 'dump', and nowhere else: what a cache "
        "stores follows from its parameters." + example("dim: first(dim_v, dim)", "dim: dim_v if dim_v else dim"),
    ),
    "E026": ErrorCode(
        "a foreign value is not there",
        "What an expression asks for is missing in the configuration or dump, or is null there. has(x) says whether "
        "there is something, first(a, b) takes what there is."
        + example("window: sliding_window", "window: first(sliding_window, 0)"),
    ),
}
VALUES: Mapping[str, ErrorCode] = {
    "T001": ErrorCode(
        "a value has the wrong type",
        "Nothing is converted: numbers are not words, and only numbers of one type are compared. A condition is true, "
        "false or a number, of which 0 is false." + example("order == 1", "order == 'LBHNC'"),
    ),
    "T002": ErrorCode(
        "an unknown element type",
        "Known are f64 f32 bf16 f16 fp8 fp8_e5m2 u8 i8 i32 u32 i64 and the usual long names of them."
        + example("dtype: bfloat", "dtype: bf16"),
    ),
    "T003": ErrorCode(
        "a parameter has a value of the wrong type",
        "A parameter is an int unless its type says dtype, name or sizes."
        + example("{default: 'four'}", "{default: 4}"),
    ),
    "B001": ErrorCode(
        "a division by zero",
        "The values in play are shown below the expression." + example("a // b, with b = 0", "a // b if b else 0"),
    ),
    "B002": ErrorCode(
        "a number is too large", "Numbers are below 2^63." + example("99999999999 * 99999999999", "99999999999")
    ),
    "B003": ErrorCode(
        "no size divides",
        "largest(sizes, n) gives the largest of the sizes that divides n, and none does. Choose another block, or name "
        "a size that the kernel takes." + example("block=24 with sizes(16, 32)", "block=32"),
    ),
    "B004": ErrorCode(
        "a size is less than 1",
        "The numbers that a model gives make an axis of a tensor empty or negative, whatever the side."
        + example("{heads: 0, dim: 128}", "{heads: 8, dim: 128}"),
    ),
    "B005": ErrorCode(
        "a number of tokens is less than 0",
        "The numbers that a model gives make a limit of 'needs' negative, whatever the side; 0 is no limit."
        + example("needs: {window: 0 - 1}", "needs: {window: 0}"),
    ),
    "B006": ErrorCode(
        "a window and a chunk at once",
        "A token attends to a window or to its chunk; 0 is no limit. Two such caches are two entries of the model's "
        "'caches'." + example("needs: {window: 128, chunk: 64}", "needs: {window: 128}"),
    ),
    "B007": ErrorCode(
        "a list has no such entry",
        "Entries are counted from 0. A configuration whose list has an entry per layer needs one for every layer."
        + example("at(layer_words, layers)", "at(layer_words, layers - 1)"),
    ),
}
