"""Read kind files: what a family of caches stores."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kvplan.dsl.files.needs import check_ring, check_tokens, parse_needs
from kvplan.dsl.files.storages import RESERVED, Inherited, read_fragments, read_storages
from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.lang.storage import Fragment
from kvplan.dsl.rules.params import check_defaults, check_dtype, read_params
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.schema.fields import KEYWORDS, check_names, check_sentence, guarded, worded
from kvplan.dsl.schema.kind import (
    AXES,
    FRAGMENTS,
    KIND,
    LENGTH,
    SPLIT,
    STORAGES,
    VARIANTS,
    Kind,
    KindDoubt,
    KindVariant,
    Param,
    TensorSpec,
)
from kvplan.dsl.schema.shapes import EXPRESSION
from kvplan.dsl.text.diagnostics import Sink, listed, nearest, nearest_or_all
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar, YamlTable

TOKEN = "~"


@dataclass(frozen=True, slots=True)
class RecordScope:
    """The common scope of a kind's records: the store, names for expressions, the kind's split axes, and the mesh axes
    of all engines."""

    store: str
    known: set[str]
    split: Mapping[YamlScalar, YamlScalar]
    mesh: Collection[str]


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """The tensors and fragments of a kind or a variant; `texts` and `storage` are as they are written."""

    tensors: Mapping[str, TensorSpec]
    texts: Named[YamlScalar]
    fragments: Mapping[str, Fragment]
    storage: Named[Tree]


def parse_kind(sink: Sink, root: YamlTable, name: str, outer: Iterable[str], mesh: Collection[str]) -> Kind:
    """The kind, with every error in the sink. `outer` are the names that expressions may use besides parameters, `mesh`
    the mesh axes of all engines."""
    kind = KIND.read(sink, root)
    params = read_params(sink, kind.params)
    known = {*params, *given_words(params).values(), *outer}
    check_defaults(sink, params, known)
    # An invalid store was reported; nothing else is checked against it.
    store = kind.store if kind.word("store") == kind.store else ""
    if store:
        check_tokens(sink, store, "the kind", kind.given)
        check_ring(sink, store, kind.given)
    check_names(sink, kind.ring, known, "a number of tokens is expected")
    check_names(sink, kind.per_layer, known, "a number of caches is expected")
    _check_length(sink, kind.word("length"))
    for doubt in kind.doubts:
        _check_doubt(sink, doubt, params, known)
    needs, scope = parse_needs(sink, kind.written("needs"), known), RecordScope(store, known, kind.split, mesh)
    base = _record(sink, kind, scope)
    variants = VARIANTS.read(sink, kind.written("variants"), "variants")
    return replace(
        kind,
        name=name,
        params=params,
        tensors=base.tensors,
        storage=read_storages(sink, base.storage, base.tensors, known, base.fragments),
        needs=needs if needs and needs.limits else None,
        match=parse_rules(sink, kind.written("match"), "match", lambda _: params, name),
        fragments=base.fragments,
        variants=tuple(_variant(sink, variant, own, base, scope) for variant, own in variants.items()),
    )


def _record(sink: Sink, keys: Kind | KindVariant, scope: RecordScope) -> WrittenRecord:
    texts = FRAGMENTS.read(sink, keys.written("fragments"), "fragments")
    storage = STORAGES.read(sink, keys.written("storage"), "storage")
    tensors = _tensors(sink, keys.tensors, scope)
    return WrittenRecord(tensors, texts, read_fragments(sink, texts, keys.tensors), storage)


def _check_doubt(sink: Sink, keys: KindDoubt, params: Mapping[str, Param], known: set[str]) -> None:
    check_names(sink, keys.when, known)
    check_sentence(sink, keys.say, known)
    if keys.of is not None and keys.of not in params:
        sink.add("K008", f"unknown parameter '{keys.of}'", keys.of.span, help=nearest(keys.of, params))


def _variant(
    sink: Sink, name: YamlScalar, variant: KindVariant, base: WrittenRecord, scope: RecordScope
) -> KindVariant:
    """A variant with its fragments and storage expressions laid over the kind's. Reports K008 if no storage fits."""
    check_names(sink, variant.when, scope.known)
    own = _record(sink, variant, scope)
    fragments = {**read_fragments(Sink(), base.texts, ()), **own.fragments}
    inherited = {storage: tree for storage, tree in base.storage.items() if storage not in own.storage}
    lenient = Inherited({*inherited}, {*base.tensors} - {*own.tensors})
    storage = read_storages(sink, {**inherited, **own.storage}, own.tensors, scope.known, fragments, lenient)
    if own.tensors and not storage:
        help = f"give it a fragment or a storage expression with a place for {listed([*own.tensors], 'and')}"
        sink.add("K008", f"no storage has a place for the tensors of variant '{name}'", name.span, help=help)
    return replace(variant, name=name, tensors=own.tensors, storage=storage, fragments=fragments)


def _check_length(sink: Sink, name: YamlScalar | None) -> None:
    """Report an invalid name of a length (K009), the range of tokens that a request gives for such caches."""
    if name is not None and (not re.fullmatch(LENGTH, name) or name in KEYWORDS):
        help = "lower case letters, digits and _; no word of expressions"
        sink.add("K009", f"'{name}' cannot be the name of a length", name.span, help=help)


def _tensors(sink: Sink, given: Mapping[YamlScalar, TensorSpec], scope: RecordScope) -> dict[str, TensorSpec]:
    """Tensors by name, with the kind's split added; a tensor's own split wins."""
    good = {name: tensor for name, tensor in given.items() if _is_free(sink, name, "tensor")}
    tensors = {name: _tensor(sink, name, tensor, scope) for name, tensor in good.items()}
    axes = {axis: extent for tensor in tensors.values() for axis, extent in tensor.axes}
    common = _split(sink, scope.split, axes, "no tensor has", scope.mesh) if tensors else {}
    return {name: _with_split(tensor, common) for name, tensor in tensors.items()}


def _is_free(sink: Sink, name: YamlScalar, what: str) -> bool:
    """Whether a name is no word of storage expressions. Reports E018 if it is one."""
    if name in RESERVED:
        message = f"'{name}' is a word of storage expressions"
        sink.add("E018", message, name.span, help=f"choose another name for the {what}")
    return name not in RESERVED


def _tensor(sink: Sink, name: YamlScalar, keys: TensorSpec, scope: RecordScope) -> TensorSpec:
    axes, tokens_per_row = _axes(sink, name, keys, scope.store)
    dtype = worded(keys.dtype, {word: dtypes.canonical(word) for word in dtypes.NAMES})
    for expr in (*(extent for _, extent in axes), tokens_per_row, keys.when):
        check_names(sink, expr, scope.known)
    check_dtype(sink, dtype, scope.known)
    own = SPLIT.read(sink, keys.written("split"), "split")
    split = _split(sink, own, dict(axes), f"tensor {name} does not have", scope.mesh)
    return replace(keys, name=name, axes=axes, dtype=dtype or keys.dtype, split=split, tokens_per_row=tokens_per_row)


def _axes(
    sink: Sink, tensor: str, keys: TensorSpec, store: str
) -> tuple[tuple[tuple[str, Expr | None], ...], Expr | None]:
    """The axes with their extents, in order, and the tokens in a row of the token axis."""
    axes: list[tuple[str, Expr | None]] = []
    tokens_per_row, token = None, None
    for name, extent in AXES.read(sink, keys.written("axes"), "axes").items():
        if not _is_free(sink, name, "axis"):
            continue
        if not (isinstance(extent, YamlScalar) and extent.startswith(TOKEN)):
            # An axis with a bad extent still exists, so that its uses are not reported, too.
            axes.append((name, EXPRESSION.read(sink, extent, f"axis '{name}'") or parse_expr("1")))
            continue
        if token is not None:
            sink.add("E024", f"tensor {tensor} has two token axes, '{token}' and '{name}'", name.span)
        token, tokens_per_row = name, _tokens_per_row(sink, extent)
        axes.append((name, None))
    _check_token(sink, tensor, keys.given.get("axes"), token, store)
    return tuple(axes), tokens_per_row


def _check_token(sink: Sink, tensor: str, axes: Tree | None, token: str | None, store: str) -> None:
    """Report a missing token axis, or one of a state (E024)."""
    if not store or not isinstance(axes, YamlTable) or (store == "state") == (token is None):
        return
    what = "a ring" if store == "ring" else "a state" if store == "state" else store
    has, help = ("no", "add token: ~") if token is None else ("a", "store: tokens")
    sink.add("E024", f"tensor {tensor} has {has} token axis, but the kind stores {what}", axes.span, help=help)


def _tokens_per_row(sink: Sink, extent: YamlScalar) -> Expr | None:
    """The tokens in a row: None for `~`, one row per token; 4 for `~/4`."""
    rest = extent[len(TOKEN) :].strip()
    if not rest:
        return None
    if not rest.startswith("/"):
        sink.add("E001", f"expected '~' or '~/n', not '{extent}'", extent.span)
        return None
    size = rest[1:].strip()
    place = extent.span.at(extent.rindex(size), len(size)) if size else extent.span
    return guarded(sink, lambda: parse_expr(size, place, extent.exact))


def _split(
    sink: Sink,
    given: Mapping[YamlScalar, YamlScalar],
    axes: Mapping[str, Expr | None],
    whose: str,
    mesh: Collection[str],
) -> dict[str, str]:
    """Mesh axes by axis. Reports E020 for an unknown axis or the token axis, K008 for an unknown mesh axis."""
    split: dict[str, str] = {}
    for axis, over in given.items():
        if axis not in axes:
            help = nearest(axis, axes)
            sink.add("E020", f"split over axis '{axis}', which {whose}", axis.span, help=help)
        elif axes[axis] is None:
            help = "engines share out tokens: mesh: tokens"
            sink.add("E020", f"the token axis '{axis}' cannot be split", axis.span, help=help)
        elif over not in mesh:
            help = nearest_or_all(over, sorted(mesh))
            sink.add("K008", f"no engine has a mesh axis '{over}'", over.span, help=help)
        else:
            split[axis] = str(over)
    return split


def _with_split(tensor: TensorSpec, common: Mapping[str, str]) -> TensorSpec:
    own = {axis: over for axis, over in common.items() if axis in dict(tensor.axes)}
    return replace(tensor, split={**own, **tensor.split})
