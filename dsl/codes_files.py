"""The codes of files and their keys: Y yaml, K keys."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.code import ErrorCode, example

YAML: Mapping[str, ErrorCode] = {
    "Y001": ErrorCode(
        "the file is not YAML",
        "The text could not be read as YAML at all. Often a bracket or quote is left open, or a value begins with a "
        "character that YAML keeps for itself (* & ! % @ `) or contains ': '; quote such a value."
        + example("axes: {head: heads, token: ~", "axes: {head: heads, token: ~}"),
    ),
    "Y002": ErrorCode(
        "a key is given twice in one mapping",
        "YAML readers differ in which of the two they keep, so neither is taken. Remove one."
        + example("{heads: 8, heads: 4}", "{heads: 8}"),
    ),
    "Y003": ErrorCode(
        "anchors are not allowed",
        "Every value of a layout file stands where it is used, so that each has one place and reviews show it whole."
        + example("k: &key {dtype: bf16}", "k: {dtype: bf16}"),
    ),
    "Y004": ErrorCode(
        "aliases are not allowed",
        "See Y003: write the value out where it is used. A value that begins with a star must be quoted."
        + example("v: *key", "v: {dtype: bf16}"),
    ),
    "Y005": ErrorCode(
        "tags are not allowed",
        "The type of a value follows from its key. A value that begins with an exclamation mark must be quoted."
        + example("dim: !!int 128", "dim: 128"),
    ),
    "Y006": ErrorCode(
        "several documents in one file",
        "A file describes one thing and is named after it. Move what follows '---' to a file of its own."
        + example("kind: a … --- kind: b", "a.yaml with kind: a, and b.yaml with kind: b"),
    ),
    "Y007": ErrorCode(
        "the file is not UTF-8",
        "Save it as UTF-8. A byte order mark is accepted and ignored." + example("title: caf\\xe9", "title: café"),
    ),
    "Y008": ErrorCode(
        "the file is empty",
        "There is nothing but blanks and comments. A layout file begins with its format version."
        + example("# to be written", "kvplan: 1"),
    ),
    "Y009": ErrorCode(
        "a tab indents a line",
        "YAML has no meaning for tabs at the beginning of a line. Indent with spaces."
        + example("<tab>k: {…}", "  k: {…}"),
    ),
    "Y010": ErrorCode(
        "a key inside { } has no value",
        "Inside { } a comma ends a value, so that an expression with a comma falls apart into a value and a bare key. "
        "Quote the expression." + example("{size: max(a, b)}", '{size: "max(a, b)"}'),
    ),
    "Y011": ErrorCode(
        "a key is not a word",
        "Keys are names; lists and mappings cannot be keys." + example("[k, v]: {…}", "k: {…}"),
    ),
    "Y012": ErrorCode(
        "the file cannot be read",
        "It is not there, is a folder, or may not be read. Paths are relative to the folder that the command runs in."
        + example("kvplan check layout/x.yaml", "kvplan check layouts/x.yaml"),
    ),
    "Y013": ErrorCode(
        "the file is not a mapping",
        "A layout file is a mapping whose first key is the format version." + example("- kvplan", "kvplan: 1"),
    ),
}
KEYS: Mapping[str, ErrorCode] = {
    "K001": ErrorCode(
        "an unknown key",
        "Keys that are not known are refused, never skipped, for a misspelt key would change a layout silently. The "
        "nearest known key is named. Notes are keys that begin with '-'."
        + example("titel: My model", "title: My model"),
    ),
    "K002": ErrorCode(
        "a required key is missing",
        "The message names what is missing, and where."
        + example("{kind: …, layers: all}", "{kind: …, layers: all, heads: 8}"),
    ),
    "K003": ErrorCode(
        "a value has the wrong shape",
        "A mapping, a list or a single value is expected here, and something else was found."
        + example("tensors: [k, v]", "tensors: {k: {…}, v: {…}}"),
    ),
    "K004": ErrorCode(
        "the format version is missing or unknown",
        "The first key of every layout file is 'kvplan', the version of the format it is written in; this is version 1."
        + example("model: x", "kvplan: 1\n    model: x"),
    ),
    "K005": ErrorCode(
        "the file does not say what it describes",
        "After the version comes one of kind, engine, model, deployment or config, with the name of what it describes."
        + example("modell: x", "model: x"),
    ),
    "K006": ErrorCode(
        "a name is not the file's name",
        "Things are found by file name, so that a kind, engine, model or deployment is in a file of its own name."
        + example("b.yaml with model: a", "a.yaml with model: a"),
    ),
    "K007": ErrorCode(
        "a name is given twice",
        "A file of one's own cannot take the name of a shipped one or of another file: which of them is meant would "
        "depend on the order. Choose another name; an engine may extend another with 'extends'."
        + example("engine: NAME, which is shipped", "engine: NAME-ours\n    extends: NAME"),
    ),
    "K008": ErrorCode(
        "an unknown kind, engine, model or storage",
        "The name is not among the files that are known: shipped ones, those in folders given with --layouts, those "
        "named on the command line." + example("kind: my-kimd", "kind: my-kind"),
    ),
    "K009": ErrorCode(
        "a name has letters that names cannot have",
        "Names that expressions use have letters, digits and underscores, and begin with no digit; names of caches "
        "and storage expressions may contain dots and dashes, too; those of lengths have no capital letters. Words of "
        "the expression language are no names." + example("head-dim: 64", "head_dim: 64"),
    ),
    "K010": ErrorCode(
        "a value is not one of those allowed",
        "The message lists the allowed values or names the nearest. Where an option's value is used, '{option}', every "
        "value that the option may have must be allowed." + example("store: token", "store: tokens"),
    ),
    "K011": ErrorCode(
        "a file extends itself",
        "Files that extend each other in a circle have no base." + example("extends: itself", "extends: base"),
    ),
    "K012": ErrorCode(
        "a list of layers is wrong",
        "Layers are numbered from 0 to one less than the model's 'layers', in ascending order, each once; 'all' stands "
        "for all of them, 'drafts' for the draft layers that follow them, and an expression of 'layer' for those it "
        "is true for. Ranges are expressions, too: layer < 4, or [0, 1, 2, 3]."
        + example("layers: [5, 5, 99]", "layers: [5, 12]"),
    ),
    "K013": ErrorCode(
        "a number is expected",
        "Numbers are decimal, without sign, quotes, underscores, leading zeros or a colon."
        + example("layers: 0x20", "layers: 32"),
    ),
    "K014": ErrorCode(
        "there is not exactly one default engine",
        "One engine's file says 'default: true'; sides that name no engine run it."
        + example("tp=4", "tp=4,engine=NAME"),
    ),
    "K015": ErrorCode(
        "something is said about tokens where there are none",
        "A state stands after all tokens of its request and is moved whole: it needs no tokens and has no length. "
        "Only a ring keeps as many tokens as its 'ring' says."
        + example("store: state\n    needs: {window: 128}", "store: state"),
    ),
    "K016": ErrorCode(
        "a family is no model",
        "A file with 'variants' describes one model for each of them; the file's own name stands for all of these only "
        "where several models may be given." + example("kvplan explain FAMILY …", "kvplan explain VARIANT …"),
    ),
}
