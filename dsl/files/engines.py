"""Engine files: where an engine puts things, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.dsl.files.kinds import parse_storages
from kvplan.dsl.files.policy import check_mesh, choice, parse_groups, parse_mesh
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Storage
from kvplan.dsl.model import Engine, GroupRules, Kind, Param, Requirement
from kvplan.dsl.rules.dump_rules import parse_dump
from kvplan.dsl.schema.engine import COPIES, DERIVED, ENGINE, REQUIRE
from kvplan.dsl.schema.fields import (
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
)
from kvplan.dsl.schema.kind import WHOSE
from kvplan.dsl.schema.names import ALIKE, MEASURED, PAGED, PLACED
from kvplan.dsl.schema.params import check_circles, check_defaults, parse_params
from kvplan.dsl.text.diagnostics import Sink, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What an engine file may refer to: kinds, and the words that a model gives."""

    kinds: Mapping[str, Kind]
    words: tuple[str, ...]


def parse_engine(sink: Sink, root: YamlTable, name: str, span: SourceSpan, around: EngineContext) -> Engine:
    """An engine, with every error in the sink."""
    found = fields(sink, root, ENGINE.what, ENGINE.known, ENGINE.required)
    options = parse_params(sink, found.get("options"), "options")
    derive = expressions(sink, found.get("derive"), "derive")
    _check_measured(sink, {**{n: p.span for n, p in options.items()}, **{n: e.tree.span for n, e in derive.items()}})
    mesh = parse_mesh(sink, found.get("mesh"), span, options)
    axes = {*mesh.workers, *mesh.derived}
    check_defaults(sink, options, {*axes, *around.words})
    known = {*options, *derive, *axes, *around.words, *MEASURED}
    _check_derive(sink, found.get("derive"), derive, {*known, *PAGED, *ALIKE})
    check_mesh(sink, mesh, known)
    truth(sink, found.get("default"), "default")
    return Engine(
        name, text(sink, found.get("title"), "title"), text(sink, found.get("doc-ref"), "doc-ref"),
        text(sink, found.get("versions"), "versions"), options,
        tuple(_require(sink, item, known, around) for item in items(sink, found.get("require"), "require")),
        choice(sink, found.get("copies"), "copies", COPIES, options),
        _storage(sink, found.get("storage"), options, around),
        _own(sink, found.get("own"), known, around),
        derive, _groups(sink, found.get("groups"), span, options, {*known, *PAGED}, around), mesh, span,
        _by_cache(sink, found.get("stride"), "stride", {*known, *PAGED, *ALIKE, *PLACED}, around),
        parse_dump(sink, found.get("dump"), around.kinds),
    )  # fmt: skip


def _check_measured(sink: Sink, names: Mapping[str, SourceSpan]) -> None:
    """Report options and derived values that a measured name would hide (E018)."""
    for name, span in names.items():
        if name in (*MEASURED, *PAGED, *ALIKE, *PLACED):
            sink.add("E018", f"'{name}' is measured by the compiler", span, help="choose another name")


def _check_derive(sink: Sink, tree: Tree | None, derive: Mapping[str, Expr], known: set[str]) -> None:
    for expr in derive.values():
        check_names(sink, expr, known)
    check_circles(sink, derive)
    missing = [name for name in DERIVED if name not in derive]
    if isinstance(tree, YamlTable) and missing and len(derive) == len(tree.entries):
        sink.add(
            "K002",
            f"derive lacks {', '.join(missing)}",
            tree.span,
            help="a side is paged by tokens, kernel_block and ratio",
        )


def _require(sink: Sink, tree: Tree, known: set[str], around: EngineContext) -> Requirement:
    found = fields(sink, tree, REQUIRE.what, REQUIRE.known, REQUIRE.required)
    about = scalar(sink, found.get("for"), "for")
    names = set(known)
    if about and about.text not in around.kinds:
        sink.add("K008", f"unknown kind '{about.text}'", about.span, help=nearest(about.text, around.kinds))
    elif about:
        names |= {*PAGED, *ALIKE, *(kind.params if (kind := _kind(sink, around, about.text)) else ())}
    that = expression(sink, found.get("that"), "that")
    check_names(sink, that, names)
    said = scalar(sink, found.get("say"), "say")
    if said:
        check_sentence(sink, said, names)
    sentence, whose = said.text if said else "", about.text if about else None
    return Requirement(that or parse_expr("true"), sentence, whose, tree.span)


def _kind(sink: Sink, around: EngineContext, name: str) -> Kind | None:
    """A known kind, or None, its own errors reported, where its file is bad."""
    return guarded(sink, lambda: around.kinds[name])


def _groups(
    sink: Sink,
    tree: Tree | None,
    span: SourceSpan,
    options: Mapping[str, Param],
    known: set[str],
    around: EngineContext,
) -> GroupRules:
    groups = parse_groups(sink, tree, span, options)
    for expr in (groups.block, groups.inside, groups.rigid):
        check_names(sink, expr, known)
    pages = next((e.value for e in tree.entries if e.key.text == "page"), None) if isinstance(tree, YamlTable) else None
    return replace(groups, page=_by_cache(sink, pages, "page", known, around))


def _by_cache(sink: Sink, tree: Tree | None, what: str, known: set[str], around: EngineContext) -> dict[str, Expr]:
    """Kind, store or `default` to a number of bytes."""
    given = entries(sink, tree, what)
    found = {k.text: expression(sink, v, f"{what} of '{k.text}'") for k, v in given.items() if _whose(sink, k, around)}
    for expr in found.values():
        check_names(sink, expr, known, "a number of bytes is expected")
    return {key: expr for key, expr in found.items() if expr is not None}


def _whose(sink: Sink, key: YamlScalar, around: EngineContext) -> bool:
    """Whether a key says which caches a rule is for; else K008."""
    allowed = [*around.kinds, *WHOSE.words]
    if key.text not in allowed:
        message, help = f"'{key.text}' is neither a kind, a store nor default", nearest(key.text, allowed)
        sink.add("K008", message, key.span, help=help)
    return key.text in allowed


def _storage(sink: Sink, tree: Tree | None, options: Mapping[str, Param], around: EngineContext) -> dict[str, str]:
    """Kind, store or `default` to the name of a storage expression, in which {option} stands for an option's value."""
    found = {}
    for key, value in entries(sink, tree, "storage").items():
        rule = scalar(sink, value, f"storage of '{key.text}'")
        if _whose(sink, key, around) and rule:
            check_sentence(sink, rule, options)
            found[key.text] = rule.text
            if key.text in around.kinds and not placeholders(rule.text):
                _check_stored(sink, rule.text, rule.span, _kind(sink, around, key.text))
    if isinstance(tree, YamlTable) and "default" not in found:
        sink.add("K002", "storage lacks 'default'", tree.span, help="add default: …")
    return found


def _check_stored(sink: Sink, name: str, span: SourceSpan, kind: Kind | None) -> None:
    if kind is not None and name not in kind.storage:
        sink.add("K008", f"kind '{kind.name}' has no storage '{name}'", span, help=nearest(name, kind.storage))


def _own(sink: Sink, tree: Tree | None, known: set[str], around: EngineContext) -> dict[str, dict[str, Storage]]:
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
