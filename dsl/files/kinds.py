"""Kind files: what a family of caches stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvplan.dsl.files.needs import check_ring, check_tokens, parse_needs
from kvplan.dsl.files.storage_check import check_storage
from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Item, Storage
from kvplan.dsl.lang.storage import parse_items
from kvplan.dsl.model import Kind, TensorSpec
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.schema.fields import (
    KEYWORDS,
    LABEL,
    check_names,
    entries,
    expression,
    fields,
    guarded,
    named,
    scalar,
    shape,
    text,
    word,
    worded,
)
from kvplan.dsl.schema.kind import KIND, LENGTH, STORES, TENSOR
from kvplan.dsl.schema.params import check_defaults, check_dtype, parse_params
from kvplan.dsl.text.diagnostics import Sink, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable

TOKEN = "~"
RESERVED = ("pad", "align", "block", "layer")
CONTEXT = "context"


def parse_kind(sink: Sink, root: YamlTable, name: str, span: SourceSpan, outer: Iterable[str]) -> Kind:
    """A kind, with every error in the sink. `outer` are the names that expressions may use besides parameters."""
    found = fields(sink, root, KIND.what, KIND.known, KIND.required)
    params = parse_params(sink, found.get("params"), "params")
    check_defaults(sink, params, outer)
    known = {*params, *outer}
    store = word(sink, found.get("store"), "store", STORES, "tokens")
    check_tokens(sink, store, "the kind", found)
    check_ring(sink, store, found)
    ring = expression(sink, found.get("ring"), "ring")
    check_names(sink, ring, known, "a number of tokens is expected")
    needs = parse_needs(sink, found.get("needs"), known)
    tensors = _tensors(sink, found.get("tensors"), store, known)
    tensors = _split(sink, found.get("split"), tensors)
    storage = parse_storages(sink, found.get("storage"), tensors, known)
    parse_rules(sink, found.get("match"), "match", lambda _: params, name)
    return Kind(name, text(sink, found.get("title"), "title"), text(sink, found.get("doc"), "doc"),
                params, store, tensors, storage, span, needs if needs and needs.limits else None,
                _length(sink, found.get("length")), ring)  # fmt: skip


def _length(sink: Sink, tree: Tree | None) -> str:
    """The name of the range of tokens that a request gives for such caches (K009)."""
    found = scalar(sink, tree, "length")
    if found and (not re.fullmatch(LENGTH, found.text) or found.text in KEYWORDS):
        help = "lower case letters, digits and _; no word of expressions"
        sink.add("K009", f"'{found.text}' cannot be the name of a length", found.span, help=help)
    return found.text if found else CONTEXT


def _tensors(sink: Sink, tree: Tree | None, store: str, known: set[str]) -> dict[str, TensorSpec]:
    found = {}
    for name, (value, span) in named(sink, tree, "tensors").items():
        if name in RESERVED:
            sink.add(
                "E018", f"'{name}' is a word of storage expressions", span, help="choose another name for the tensor"
            )
            continue
        found[name] = _tensor(sink, name, value, span, store, known)
    return found


def _tensor(sink: Sink, name: str, tree: Tree, span: SourceSpan, store: str, known: set[str]) -> TensorSpec:
    found = fields(sink, tree, f"tensor '{name}'", TENSOR.known, TENSOR.required)
    axes, unit = _axes(sink, name, found.get("axes"), store)
    dtype = worded(expression(sink, found.get("dtype"), "dtype"), {n: dtypes.canonical(n) for n in dtypes.NAMES})
    when = expression(sink, found.get("when"), "when")
    for expr in (*(e for _, e in axes), unit, when):
        check_names(sink, expr, known)
    check_dtype(sink, dtype, known)
    split = _split_of(sink, found.get("split"), dict(axes), f"tensor {name} does not have")
    return TensorSpec(name, axes, dtype or parse_expr("'u8'"), split, span, unit, when)


def _axes(
    sink: Sink, tensor: str, tree: Tree | None, store: str
) -> tuple[tuple[tuple[str, Expr | None], ...], Expr | None]:
    """Axes with extents in order, and the unit of the token axis."""
    axes: list[tuple[str, Expr | None]] = []
    unit, token = None, None
    for name, (value, span) in named(sink, tree, f"axes of {tensor}").items():
        if name in RESERVED:
            sink.add(
                "E018", f"'{name}' is a word of storage expressions", span, help="choose another name for the axis"
            )
            continue
        if not (isinstance(value, YamlScalar) and value.text.startswith(TOKEN)):
            extent = expression(sink, value, f"axis '{name}'")
            # An axis without a good extent is still an axis, so that its uses are not accused, too.
            axes.append((name, extent or parse_expr("1")))
            continue
        if token is not None:
            sink.add("E024", f"tensor {tensor} has two token axes, '{token}' and '{name}'", span)
        token = name
        unit = _unit(sink, value)
        axes.append((name, None))
    _check_token(sink, tensor, tree, token, store)
    return tuple(axes), unit


def _check_token(sink: Sink, tensor: str, tree: Tree | None, token: str | None, store: str) -> None:
    if tree is None or not isinstance(tree, YamlTable):
        return
    if store != "state" and token is None:
        what = "a ring" if store == "ring" else store
        said = f"tensor {tensor} has no token axis, but the kind stores {what}"
        sink.add("E024", said, tree.span, help="add token: ~")
    if store == "state" and token is not None:
        sink.add(
            "E024", f"tensor {tensor} has a token axis, but the kind stores a state", tree.span, help="store: tokens"
        )


def _unit(sink: Sink, value: YamlScalar) -> Expr | None:
    """`~` is a row per token, `~/4` one row per four tokens."""
    rest = value.text[len(TOKEN) :].strip()
    if not rest:
        return None
    if not rest.startswith("/"):
        sink.add("E001", f"expected '~' or '~/n', not '{value.text}'", value.span)
        return None
    size = rest[1:].strip()
    place = value.span.at(value.text.rindex(size), len(size)) if size else value.span
    return guarded(sink, lambda: parse_expr(size, place, value.exact))


def _split_of(sink: Sink, tree: Tree | None, axes: Mapping[str, object], whose: str) -> dict[str, str]:
    found = {}
    for key, value in entries(sink, tree, "split").items():
        over = scalar(sink, value, f"split of '{key.text}'")
        if key.text not in axes:
            sink.add("E020", f"split over axis '{key.text}', which {whose}", key.span, help=nearest(key.text, axes))
        elif axes[key.text] is None:
            sink.add(
                "E020",
                f"the token axis '{key.text}' cannot be split",
                key.span,
                help="engines share out tokens: mesh: tokens",
            )
        elif over:
            found[key.text] = over.text
    return found


def _split(sink: Sink, tree: Tree | None, tensors: dict[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Tensors with the kind's split added; a tensor's own comes first."""
    axes = {name: extent for tensor in tensors.values() for name, extent in tensor.axes}
    common = _split_of(sink, tree, axes, "no tensor has") if tensors else {}
    return {name: _with_split(tensor, common) for name, tensor in tensors.items()}


def _with_split(tensor: TensorSpec, common: Mapping[str, str]) -> TensorSpec:
    own = {axis: over for axis, over in common.items() if axis in dict(tensor.axes)}
    split = {**own, **tensor.split}
    return TensorSpec(tensor.name, tensor.axes, tensor.dtype, split, tensor.span, tensor.tokens_per_row, tensor.when)


def parse_storages(
    sink: Sink, tree: Tree | None, tensors: Mapping[str, TensorSpec], known: set[str]
) -> dict[str, Storage]:
    """Storage expressions by name, checked against the tensors."""
    found = {}
    for name, (value, span) in named(sink, tree, "storage", LABEL).items():
        parts = _parts(sink, name, value)
        if parts is None:
            continue
        found[name] = Storage(name, parts, span)
        if tensors:
            check_storage(sink, found[name], tensors, known | {"kernel_block"})
    return found


def _parts(sink: Sink, name: str, tree: Tree) -> tuple[tuple[str | None, tuple[Item, ...]], ...] | None:
    if isinstance(tree, YamlTable):
        parts = {
            part: _items(sink, value) for part, (value, _) in named(sink, tree, f"storage '{name}'", LABEL).items()
        }
        good = {part: items for part, items in parts.items() if items is not None}
        return tuple(good.items()) if len(good) == len(parts) else None
    items = _items(sink, tree)
    return ((None, items),) if items is not None else None


def _items(sink: Sink, tree: Tree) -> tuple[Item, ...] | None:
    if isinstance(tree, YamlScalar):
        return guarded(sink, lambda: parse_items(tree.text, tree.span, tree.exact))
    sink.add("E023", f"expected a storage expression, not {shape(tree)}", tree.span, help="layer { block { … } }")
    return None
