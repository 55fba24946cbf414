"""The codes of errors in layout files: permanent, never reused. Y yaml, K keys, E expressions, T types, B values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Code(NamedTuple):
    """One sentence, and a long text with an example."""

    title: str
    text: str


def _pair(wrong: str, right: str) -> str:
    return f"\n\nWrong:\n\n    {wrong}\n\nRight:\n\n    {right}"


YAML: Mapping[str, Code] = {
    "Y001": Code(
        "the file is not YAML",
        "The text could not be read as YAML at all. Often a bracket or quote is left open, or a value begins with a "
        "character that YAML keeps for itself (* & ! % @ `) or contains ': '; quote such a value."
        + _pair("axes: {head: heads, token: ~", "axes: {head: heads, token: ~}"),
    ),
    "Y002": Code(
        "a key is given twice in one mapping",
        "YAML readers differ in which of the two they keep, so neither is taken. Remove one."
        + _pair("{heads: 8, heads: 4}", "{heads: 8}"),
    ),
    "Y003": Code(
        "anchors are not allowed",
        "Every value of a layout file stands where it is used, so that each has one place and reviews show it whole."
        + _pair("k: &key {dtype: bf16}", "k: {dtype: bf16}"),
    ),
    "Y004": Code(
        "aliases are not allowed",
        "See Y003: write the value out where it is used. A value that begins with a star must be quoted."
        + _pair("v: *key", "v: {dtype: bf16}"),
    ),
    "Y005": Code(
        "tags are not allowed",
        "The type of a value follows from its key. A value that begins with an exclamation mark must be quoted."
        + _pair("dim: !!int 128", "dim: 128"),
    ),
    "Y006": Code(
        "several documents in one file",
        "A file describes one thing and is named after it. Move what follows '---' to a file of its own."
        + _pair("kind: a … --- kind: b", "a.yaml with kind: a, and b.yaml with kind: b"),
    ),
    "Y007": Code(
        "the file is not UTF-8",
        "Save it as UTF-8. A byte order mark is accepted and ignored." + _pair("title: caf\\xe9", "title: café"),
    ),
    "Y008": Code(
        "the file is empty",
        "There is nothing but blanks and comments. A layout file begins with its format version."
        + _pair("# to be written", "kvplan: 1"),
    ),
    "Y009": Code(
        "a tab indents a line",
        "YAML has no meaning for tabs at the beginning of a line. Indent with spaces."
        + _pair("<tab>k: {…}", "  k: {…}"),
    ),
    "Y010": Code(
        "a key inside { } has no value",
        "Inside { } a comma ends a value, so that an expression with a comma falls apart into a value and a bare key. "
        "Quote the expression." + _pair("{size: max(a, b)}", '{size: "max(a, b)"}'),
    ),
    "Y011": Code(
        "a key is not a word",
        "Keys are names; lists and mappings cannot be keys." + _pair("[k, v]: {…}", "k: {…}"),
    ),
    "Y012": Code(
        "the file cannot be read",
        "It is not there, is a folder, or may not be read. Paths are relative to the folder that the command runs in."
        + _pair("kvplan check layout/x.yaml", "kvplan check layouts/x.yaml"),
    ),
    "Y013": Code(
        "the file is not a mapping",
        "A layout file is a mapping whose first key is the format version." + _pair("- kvplan", "kvplan: 1"),
    ),
}
KEYS: Mapping[str, Code] = {
    "K001": Code(
        "an unknown key",
        "Keys that are not known are refused, never skipped, for a misspelt key would change a layout silently. The "
        "nearest known key is named. Notes are keys that begin with '-'." + _pair("titel: My model", "title: My model"),
    ),
    "K002": Code(
        "a required key is missing",
        "The message names what is missing, and where."
        + _pair("{kind: …, layers: all}", "{kind: …, layers: all, heads: 8}"),
    ),
    "K003": Code(
        "a value has the wrong shape",
        "A mapping, a list or a single value is expected here, and something else was found."
        + _pair("tensors: [k, v]", "tensors: {k: {…}, v: {…}}"),
    ),
    "K004": Code(
        "the format version is missing or unknown",
        "The first key of every layout file is 'kvplan', the version of the format it is written in; this is version 1."
        + _pair("model: x", "kvplan: 1\n    model: x"),
    ),
    "K005": Code(
        "the file does not say what it describes",
        "After the version comes one of kind, engine, model or deployment, with the name of what the file describes."
        + _pair("modell: x", "model: x"),
    ),
    "K006": Code(
        "a name is not the file's name",
        "Things are found by file name, so that a kind, engine, model or deployment is in a file of its own name."
        + _pair("b.yaml with model: a", "a.yaml with model: a"),
    ),
    "K007": Code(
        "a name is given twice",
        "A file of one's own cannot take the name of a shipped one or of another file: which of them is meant would "
        "depend on the order. Choose another name; an engine may extend another with 'extends'."
        + _pair("engine: NAME, which is shipped", "engine: NAME-ours\n    extends: NAME"),
    ),
    "K008": Code(
        "an unknown kind, engine, model or storage",
        "The name is not among the files that are known: shipped ones, those in folders given with --layouts, those "
        "named on the command line." + _pair("kind: my-kimd", "kind: my-kind"),
    ),
    "K009": Code(
        "a name has letters that names cannot have",
        "Names that expressions use have letters, digits and underscores, and begin with no digit; names of caches "
        "and storage expressions may contain dots and dashes, too. Words of the expression language are no names."
        + _pair("head-dim: 64", "head_dim: 64"),
    ),
    "K010": Code(
        "a value is not one of those allowed",
        "The message lists the allowed values or names the nearest." + _pair("store: token", "store: tokens"),
    ),
    "K011": Code(
        "an engine extends itself",
        "Engines that extend each other in a circle have no base." + _pair("extends: itself", "extends: base"),
    ),
    "K012": Code(
        "a list of layers is wrong",
        "Layers are numbered from 0 to one less than the model's 'layers', in ascending order, each once; 'all' stands "
        "for all of them." + _pair("layers: [5, 5, 99]", "layers: [5, 12]"),
    ),
    "K013": Code(
        "a number is expected",
        "Numbers are decimal, without sign, quotes, underscores, leading zeros or a colon."
        + _pair("layers: 0x20", "layers: 32"),
    ),
    "K014": Code(
        "there is not exactly one default engine",
        "One engine's file says 'default: true'; sides that name no engine run it." + _pair("tp=4", "tp=4,engine=NAME"),
    ),
}
EXPRESSIONS: Mapping[str, Code] = {
    "E001": Code(
        "an expression has something unexpected",
        "Expressions have whole numbers, names, 'quoted words', true and false, + - * // %, comparison, and, or, not, "
        "'a if c else b', and the functions ceildiv min max gcd lcm bytes multiples sizes least largest rank."
        + _pair("heads / 2", "heads // 2"),
    ),
    "E002": Code(
        "an expression ends too early",
        "Something is missing at the end: a value, or a closing bracket." + _pair("(dim + 1", "(dim + 1)"),
    ),
    "E003": Code("an unknown function", "The functions are listed under E001." + _pair("maximum(a, b)", "max(a, b)")),
    "E004": Code(
        "a function has the wrong arguments",
        "The message says how many it takes. rank takes the name of a mesh axis."
        + _pair("ceildiv(a)", "ceildiv(a, 4)"),
    ),
    "E005": Code(
        "an unknown name in an expression",
        "A kind's expressions use its parameters, options of engines, the model's dtype and query_heads. An engine's "
        "use its options and derived values, mesh axes, the model's words, states (how many caches are states), "
        "largest_state and bytes_per_token; under 'for', the kind's parameters too. A word is quoted: 'fp8'."
        + _pair("dim: head_dims", "dim: head_dim"),
    ),
    "E006": Code(
        "an expression is too long or nested too deeply",
        "Split it: give the parts names as parameters or derived values." + _pair("((((…))))", "part + other"),
    ),
    "E007": Code(
        "expressions need each other in a circle",
        "A default or derived value may use others, as long as none leads back to itself."
        + _pair("a: {default: b}, b: {default: a}", "a: {default: b}, b: {default: 16}"),
    ),
    "E010": Code(
        "storage names an unknown tensor",
        "Every word that is not followed by { in a storage expression is a tensor of the kind."
        + _pair("key[dim]", "k[dim]"),
    ),
    "E011": Code(
        "storage lacks a tensor",
        "Every tensor of a kind lies somewhere in each storage expression, also one that exists only under a condition."
        + _pair("token { k[dim] }", "token { k[dim] v[dim] }"),
    ),
    "E012": Code(
        "storage uses an axis that a tensor does not have",
        "All tensors inside axis { … } have that axis. Besides their own there are block (what the block table counts) "
        "and layer." + _pair("head { tokens { k[dim] } }", "head { token { k[dim] } }"),
    ),
    "E013": Code(
        "storage has a tensor twice",
        "A tensor lies in one place." + _pair("token { k[dim] k[dim] }", "token { k[dim] v[dim] }"),
    ),
    "E014": Code(
        "a tensor is not under exactly one block",
        "'block' is the loop that the block table indexes; loops outside it make planes, what is inside is a page."
        + _pair("layer { k[head token dim] }", "layer { block { k[head token dim] } }"),
    ),
    "E015": Code(
        "a tensor is not under exactly one layer",
        "'layer' is the loop over the layers of a cache, outside or inside block."
        + _pair("block { k[head token dim] }", "layer { block { k[head token dim] } }"),
    ),
    "E016": Code(
        "an axis is not looped over exactly once",
        "Every axis of a tensor is looped over once, or in two or more tiles that together make up the axis."
        + _pair("k[head token dim/8]", "k[head dim/8 token dim%8]"),
    ),
    "E017": Code(
        "padding iterations outside block",
        "axis+n adds n iterations that hold nothing; they belong to a page, and so lie inside block."
        + _pair("head+1 { block { … } }", "block { head+1 { … } }"),
    ),
    "E018": Code(
        "a reserved word is used as a name",
        "pad, align, block and layer mean something in storage expressions."
        + _pair("axes: {block: 4}", "axes: {slab: 4}"),
    ),
    "E019": Code(
        "a word of a storage expression takes no argument",
        "Only pad(n) and align(n) do." + _pair("k(dim)", "k[dim]"),
    ),
    "E020": Code(
        "a split over an axis that does not exist or is not shared",
        "A split names an axis of a tensor and the mesh axis it is shared over. Tokens are shared out by the engine."
        + _pair("split: {heads: tp}", "split: {head: tp}"),
    ),
    "E021": Code(
        "block and layer take no tiles and no padding",
        "How far blocks or layers lie apart is the engine's to say." + _pair("block+1 { … }", "block { … pad(n) }"),
    ),
    "E022": Code(
        "bytes are padded outside block",
        "pad and align belong to a page." + _pair("layer { block { … } pad(8) }", "layer { block { … pad(8) } }"),
    ),
    "E023": Code(
        "a mapping or list stands where an expression is expected",
        "An expression that begins with a bracket must be quoted." + _pair("dim: [head_dim]", "dim: head_dim"),
    ),
    "E024": Code(
        "the token axis is missing, twice or out of place",
        "Where a kind stores tokens, each tensor has one token axis: ~ for a row per token, ~/4 for a row per four "
        "tokens. A state has none." + _pair("axes: {head: heads, dim: dim}", "axes: {head: heads, token: ~, dim: dim}"),
    ),
}
VALUES: Mapping[str, Code] = {
    "T001": Code(
        "a value has the wrong type",
        "Nothing is converted: numbers are not words, and only numbers of one type are compared. A condition is true, "
        "false or a number, of which 0 is false." + _pair("order == 1", "order == 'LBHNC'"),
    ),
    "T002": Code(
        "an unknown element type",
        "Known are f64 f32 bf16 f16 fp8 fp8_e5m2 u8 i8 i32 u32 i64 and the usual long names of them."
        + _pair("dtype: bfloat", "dtype: bf16"),
    ),
    "T003": Code(
        "a parameter has a value of the wrong type",
        "A parameter is an int unless its type says dtype, name or sizes." + _pair("{default: 'four'}", "{default: 4}"),
    ),
    "B001": Code(
        "a division by zero",
        "The values in play are shown below the expression." + _pair("a // b, with b = 0", "a // b if b else 0"),
    ),
    "B002": Code(
        "a number is too large", "Numbers are below 2^63." + _pair("99999999999 * 99999999999", "99999999999")
    ),
    "B003": Code(
        "no size divides",
        "largest(sizes, n) gives the largest of the sizes that divides n, and none does. Choose another block, or name "
        "a size that the kernel takes." + _pair("block=24 with sizes(16, 32)", "block=32"),
    ),
    "B004": Code(
        "a size is less than 1",
        "The numbers that a model gives make an axis of a tensor empty or negative, whatever the side."
        + _pair("{heads: 0, dim: 128}", "{heads: 8, dim: 128}"),
    ),
}
CODES: Mapping[str, Code] = {**YAML, **KEYS, **EXPRESSIONS, **VALUES}


def page() -> str:
    """All codes as Markdown, for docs/errors.md."""
    return "\n".join(f"### {code}: {title}\n\n{text}\n" for code, (title, text) in CODES.items())
