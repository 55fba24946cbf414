"""Engine files: where an engine puts things, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvplan.dsl.diagnostics import Sink, nearest
from kvplan.dsl.expr import parse_expr
from kvplan.dsl.fields import (
    LABEL,
    check_names,
    check_sentence,
    entries,
    expression,
    expressions,
    fields,
    guarded,
    items,
    named,
    placeholders,
    scalar,
    text,
    truth,
    word,
    words,
)
from kvplan.dsl.kinds import STORES, parse_storages
from kvplan.dsl.model import Engine, Expr, Groups, Kind, Mesh, Param, Require, Storage
from kvplan.dsl.params import check_circles, check_defaults, parse_params
from kvplan.dsl.reader import Entry, Table, Tree
from kvplan.dsl.source import Span

KEYS = (
    "kvplan", "engine", "extends", "title", "doc", "doc-ref", "versions", "default", "options", "require", "copies",
    "storage", "own", "derive", "stride", "groups", "mesh",
)  # fmt: skip
REQUIRED = ("title", "options", "copies", "storage", "derive", "groups", "mesh")
COPIES = ("consecutive", "round_robin")
FORMS, ASSIGNS = ("by_page", "by_cache"), ("strided", "blocked")
LAYERS = ("even", "remainder_before_last")
MEASURED = ("states", "largest_state", "bytes_per_token")
DERIVED = ("tokens", "kernel_block", "ratio")


@dataclass(frozen=True, slots=True)
class Around:
    """What an engine file may refer to: kinds, and the words that a model gives."""

    kinds: Mapping[str, Kind]
    words: tuple[str, ...]


def merged(base: Table, own: Table) -> Table:
    """`own` laid over `base`: mappings deep, everything else replaced."""
    found = {entry.key.text: entry for entry in base.entries}
    for entry in own.entries:
        under = found.get(entry.key.text)
        value = entry.value
        if under is not None and isinstance(under.value, Table) and isinstance(value, Table):
            value = merged(under.value, value)
        found[entry.key.text] = Entry(entry.key, value)
    return Table(tuple(found.values()), own.span)


def parse_engine(sink: Sink, root: Table, name: str, span: Span, around: Around) -> Engine:
    """An engine, with every error in the sink."""
    found = fields(sink, root, "an engine", KEYS, REQUIRED)
    options = parse_params(sink, found.get("options"), "options")
    derive = expressions(sink, found.get("derive"), "derive")
    mesh = _mesh(sink, found.get("mesh"), span)
    axes = {*mesh.workers, *mesh.derived}
    check_defaults(sink, options, {*axes, *around.words})
    known = {*options, *derive, *axes, *around.words, *MEASURED}
    _check_derive(sink, found.get("derive"), derive, known)
    _check_mesh(sink, mesh, known)
    stride = expressions(sink, found.get("stride"), "stride")
    for expr in stride.values():
        check_names(sink, expr, known)
    truth(sink, found.get("default"), "default")
    return Engine(
        name, text(sink, found.get("title"), "title"), text(sink, found.get("doc-ref"), "doc-ref"),
        text(sink, found.get("versions"), "versions"), options,
        tuple(_require(sink, item, known, around) for item in items(sink, found.get("require"), "require")),
        word(sink, found.get("copies"), "copies", COPIES, COPIES[0]),
        _storage(sink, found.get("storage"), options, around),
        _own(sink, found.get("own"), known, around),
        derive, _groups(sink, found.get("groups"), span), mesh, span, stride,
    )  # fmt: skip


def _check_derive(sink: Sink, tree: Tree | None, derive: Mapping[str, Expr], known: set[str]) -> None:
    for expr in derive.values():
        check_names(sink, expr, known)
    check_circles(sink, derive)
    missing = [name for name in DERIVED if name not in derive]
    if isinstance(tree, Table) and missing and len(derive) == len(tree.entries):
        sink.add(
            "K002",
            f"derive lacks {', '.join(missing)}",
            tree.span,
            help="a side is paged by tokens, kernel_block and ratio",
        )


def _require(sink: Sink, tree: Tree, known: set[str], around: Around) -> Require:
    found = fields(sink, tree, "a requirement", ("that", "say", "for"), ("that", "say"))
    about = scalar(sink, found.get("for"), "for")
    names = set(known)
    if about and about.text not in around.kinds:
        sink.add("K008", f"unknown kind '{about.text}'", about.span, help=nearest(about.text, around.kinds))
    elif about:
        names |= set(kind.params) if (kind := _kind(sink, around, about.text)) else set()
    that = expression(sink, found.get("that"), "that")
    check_names(sink, that, names)
    said = scalar(sink, found.get("say"), "say")
    if said:
        check_sentence(sink, said, names)
    sentence, whose = said.text if said else "", about.text if about else None
    return Require(that or parse_expr("true"), sentence, whose, tree.span)


def _kind(sink: Sink, around: Around, name: str) -> Kind | None:
    """A known kind, or None, its own errors reported, where its file is bad."""
    return guarded(sink, lambda: around.kinds[name])


def _storage(sink: Sink, tree: Tree | None, options: Mapping[str, Param], around: Around) -> dict[str, str]:
    """Kind, store or `default` to the name of a storage expression, in which {option} stands for an option's value."""
    found = {}
    allowed = [*around.kinds, *STORES, "default"]
    for key, value in entries(sink, tree, "storage").items():
        rule = scalar(sink, value, f"storage of '{key.text}'")
        if key.text not in allowed:
            sink.add(
                "K008",
                f"'{key.text}' is neither a kind, a store nor default",
                key.span,
                help=nearest(key.text, allowed),
            )
        elif rule:
            check_sentence(sink, rule, options)
            found[key.text] = rule.text
            if key.text in around.kinds and not placeholders(rule.text):
                _check_stored(sink, rule.text, rule.span, _kind(sink, around, key.text))
    if isinstance(tree, Table) and "default" not in found:
        sink.add("K002", "storage lacks 'default'", tree.span, help="add default: …")
    return found


def _check_stored(sink: Sink, name: str, span: Span, kind: Kind | None) -> None:
    if kind is not None and name not in kind.storage:
        sink.add("K008", f"kind '{kind.name}' has no storage '{name}'", span, help=nearest(name, kind.storage))


def _own(sink: Sink, tree: Tree | None, known: set[str], around: Around) -> dict[str, dict[str, Storage]]:
    """The engine's own storage expressions, by kind and name."""
    found = {}
    for name, (value, span) in named(sink, tree, "own", LABEL).items():
        if name not in around.kinds:
            sink.add("K008", f"unknown kind '{name}'", span, help=nearest(name, around.kinds))
            continue
        kind = _kind(sink, around, name)
        if kind is not None:
            found[name] = parse_storages(sink, value, kind.tensors, {*known, *kind.params})
    return found


def _groups(sink: Sink, tree: Tree | None, span: Span) -> Groups:
    found = fields(sink, tree, "groups", ("form", "assign", "overlay", "stretch"), ("form",)) if tree else {}
    form = word(sink, found.get("form"), "form", FORMS, FORMS[0])
    assign = word(sink, found.get("assign"), "assign", ASSIGNS, ASSIGNS[0])
    overlay = truth(sink, found.get("overlay"), "overlay")
    return Groups(form, assign, overlay, _fraction(sink, found.get("stretch")), tree.span if tree else span)


def _fraction(sink: Sink, tree: Tree | None) -> tuple[int, int]:
    found = scalar(sink, tree, "stretch")
    if found is None:
        return 1, 1
    over, _, under = found.text.partition("/")
    if over.isdecimal() and (under or "1").isdecimal() and int(under or 1) and int(over) >= int(under or 1):
        return int(over), int(under or 1)
    sink.add("K013", f"stretch must be a fraction from 1, not '{found.text}'", found.span, help="write it as 3/2")
    return 1, 1


def _mesh(sink: Sink, tree: Tree | None, span: Span) -> Mesh:
    known = ("workers", "derived", "layers", "tokens", "chunk")
    found = fields(sink, tree, "mesh", known, ("workers", "layers")) if tree else {}
    derived = expressions(sink, found.get("derived"), "derived")
    workers = words(sink, found.get("workers"), "workers")
    axes = {*workers, *derived}
    tokens = scalar(sink, found.get("tokens"), "tokens")
    if tokens and tokens.text not in axes:
        sink.add("K008", f"unknown mesh axis '{tokens.text}'", tokens.span, help=nearest(tokens.text, axes))
    layers = word(sink, found.get("layers"), "layers", LAYERS, LAYERS[0])
    chunk = expression(sink, found.get("chunk"), "chunk")
    if tokens and chunk is None and tree:
        sink.add("K002", "mesh lacks 'chunk'", tree.span, help="say how many tokens a worker takes per turn")
    return Mesh(workers, derived, layers, tokens.text if tokens else None, chunk, tree.span if tree else span)


def _check_mesh(sink: Sink, mesh: Mesh, known: Iterable[str]) -> None:
    ranks = {f"rank({axis})" for axis in mesh.workers}
    for expr in mesh.derived.values():
        check_names(sink, expr, {*mesh.workers, *mesh.derived, *ranks})
    check_names(sink, mesh.chunk, known)
