"""Read the storage expressions of a kind, or of an engine for a kind: expand fragments, follow other names, check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kvplan.dsl.files.storage_check import check_storage
from kvplan.dsl.lang.nodes import Item, Storage
from kvplan.dsl.lang.storage import Fragment, leaves, parse_items
from kvplan.dsl.schema.fields import guarded, shown
from kvplan.dsl.schema.kind import STORAGE_PARTS, TensorSpec
from kvplan.dsl.text.diagnostics import Sink, nearest
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar, YamlTable

RESERVED = ("pad", "align", "block", "layer")
# `LBNHC: = LBHNC`: another name for a storage expression.
SAME = "="
Parts = tuple[tuple[str | None, tuple[Item, ...]], ...]


@dataclass(frozen=True, slots=True)
class Inherited:
    """The names of storage expressions that a variant inherits from its kind, and the kind's tensors that it lacks.

    A variant does not inherit one that misses a tensor of the variant, or that places a tensor which the variant lacks.
    A name that is no tensor of either is an error.
    """

    names: set[str]
    left_out: set[str]

    def fits(self, storage: Storage, tensors: Mapping[str, TensorSpec]) -> bool:
        placed = {leaf.tensor for _, items in storage.parts for leaf in leaves(items)}
        needed = {name for name, spec in tensors.items() if spec.when is None}
        wrong = placed - {*tensors} - self.left_out
        return storage.name not in self.names or bool(wrong) or (needed <= placed and not placed & self.left_out)


def read_fragments(
    sink: Sink, given: Mapping[YamlScalar, YamlScalar], tensors: Iterable[YamlScalar]
) -> dict[str, Fragment]:
    """Fragments by name, `F(loops)` as F. Reports names that are words or tensors (E018)."""
    taken = {*RESERVED, *tensors}
    found = {}
    for key, value in given.items():
        name, _, loop = key.removesuffix(")").partition("(")
        if name in taken:
            what = "a word of storage expressions" if name in RESERVED else "a tensor"
            sink.add("E018", f"'{name}' is {what}", key.span, help="choose another name for the fragment")
            continue
        found[name] = Fragment(loop, value, value.span, value.exact)
    for fragment in found.values():
        # Fragments with loops are parsed when they are used.
        if not fragment.loop:
            guarded(sink, partial(parse_items, fragment.text, fragment.span, fragment.exact, found))
    return found


def read_storages(
    sink: Sink,
    given: Named[Tree],
    tensors: Mapping[str, TensorSpec],
    known: set[str],
    fragments: Mapping[str, Fragment],
    inherited: Inherited | None = None,
) -> dict[str, Storage]:
    """Storage expressions by name, checked against the tensors; `inherited` ones only if they fit.

    An error in a fragment is reported once.
    """
    own = Sink()
    found: dict[str, Storage] = {}
    for name in given:
        parts = _parts(own, name, given, fragments)
        storage = Storage(name, parts, name.span) if parts is not None else None
        if storage is None or (inherited and not inherited.fits(storage, tensors)):
            continue
        found[name] = storage
        if tensors and not _is_other_name(given[name]):
            check_storage(own, storage, tensors, known | {"kernel_block", "kernel_page"})
    sink.errors += {(fault.code, fault.span): fault for fault in reversed(own.errors)}.values()
    return found


def _is_other_name(tree: Tree) -> bool:
    return isinstance(tree, YamlScalar) and tree.startswith(SAME)


def _parts(sink: Sink, name: str, given: Named[Tree], fragments: Mapping[str, Fragment]) -> Parts | None:
    """The allocations of a storage expression; None, with an error, if it cannot be read."""
    tree = given[name]
    if isinstance(tree, YamlScalar) and tree.startswith(SAME):
        return _parts_of_other(sink, tree, given, fragments)
    if not isinstance(tree, YamlTable):
        items = _items(sink, tree, fragments)
        return ((None, items),) if items is not None else None
    trees = STORAGE_PARTS.read(sink, tree, f"storage '{name}'")
    parts = {part: _items(sink, value, fragments) for part, value in trees.items()}
    good = {part: items for part, items in parts.items() if items is not None}
    return tuple(good.items()) if len(good) == len(parts) else None


def _parts_of_other(
    sink: Sink, tree: YamlScalar, given: Named[Tree], fragments: Mapping[str, Fragment]
) -> Parts | None:
    """The allocations of the storage that `= NAME` stands for. Reports K008; errors in that storage are its own."""
    wanted = tree.removeprefix(SAME).strip()
    others = [name for name, value in given.items() if not _is_other_name(value)]
    if wanted not in others:
        place = tree.span.at(tree.index(wanted), len(wanted)) if wanted and tree.exact else tree.span
        sink.add("K008", f"no storage '{wanted}' that is written out", place, help=nearest(wanted, others))
        return None
    return _parts(Sink(), wanted, given, fragments)


def _items(sink: Sink, tree: Tree, fragments: Mapping[str, Fragment]) -> tuple[Item, ...] | None:
    if isinstance(tree, YamlScalar):
        return guarded(sink, partial(parse_items, tree, tree.span, tree.exact, fragments))
    sink.add("E023", f"expected a storage expression, not {shown(tree)}", tree.span, help="layer { block { … } }")
    return None
