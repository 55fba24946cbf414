"""Read engine files: where an engine puts bytes, as data. `engine_kinds` reads their rules for kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kvplan.dsl.files.engine_kinds import Kinds, engine_names, own_storages, side_names, stored_instead
from kvplan.dsl.files.lazy import LazyMap
from kvplan.dsl.files.policy import check_mesh, check_options
from kvplan.dsl.lang.nodes import Choice, Expr
from kvplan.dsl.rules.params import check_circles, check_defaults, read_params
from kvplan.dsl.schema.engine import ENGINE, FLAGS, GROUPS, INSTEADS, MESH, OWN, DerivedCase, DerivedValue, Engine
from kvplan.dsl.schema.fields import check_names, check_sentence
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.schema.names import ALIKE, KERNELS, MEASURED, PAGED, PLACED
from kvplan.dsl.schema.serve import LayoutChoice
from kvplan.dsl.text.diagnostics import DslError, Sink, nearest, nearest_or_all
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable

ALONE = "an engine that extends another replaces it by an expression alone"
# If one of these is no mapping, every name in the engine's file would be unknown.
NAMING = ("mesh", "options", "derive")
# The placeholders in the commands of `serve`.
STARTED, ROUTED = ("model", "host", "port", "role"), ("port", "prefill", "prefill_port", "decode", "decode_port")


def parse_engine(sink: Sink, root: YamlTable, name: str, kinds: Kinds) -> Engine:
    """The engine, with every error in the sink except those in rules for kinds, which `check_kinds` reports.

    Raises DslError if an error would cause others everywhere.
    """
    keys = ENGINE.read(sink, root)
    if not all(isinstance(keys.given.get(each, root), YamlTable) for each in NAMING):
        raise DslError(*sink.errors)
    derive = {name: expr for name, value in keys.docs.items() if (expr := _expression(sink, name, value)) is not None}
    engine = replace(keys, name=name, options=read_params(sink, keys.options), derive=derive)
    _check_versions(sink, engine)
    _check_names(sink, engine)
    _check_serve(sink, engine)
    own = OWN.read(sink, keys.written("own"), "own")
    instead = INSTEADS.read(sink, keys.written("instead"), "instead")
    return replace(
        engine,
        own=LazyMap(own, lambda kind: own_storages(engine, own, kind, kinds)),
        instead=LazyMap(instead, lambda kind: stored_instead(engine, instead, kind, kinds)),
        choices=_choices(sink, engine),
        flags=_flags(sink, engine),
        aside={spelled(flag): why for flag, why in keys.aside.items()},
    )


def _check_names(sink: Sink, engine: Engine) -> None:
    """Report names in options, derived values, mesh and groups that are used already (E018, K007), or unknown."""
    mesh, groups = engine.mesh, engine.groups
    _check_measured(sink, (*engine.options, *engine.docs))
    for form, given in ((ENGINE, engine), (GROUPS, groups), (MESH, mesh)):
        check_options(sink, form, given, engine.options)
    known, axes = engine_names(engine), {*mesh.workers, *mesh.derived}
    for each in (each for each in (*engine.options, *engine.docs) if each in axes):
        sink.add("K007", f"'{each}' is an axis of the mesh", each.span, help="choose another name")
    check_defaults(sink, engine.options, side_names(engine) | {*([KERNELS] if engine.kernels else [])})
    for value in engine.derive.values():
        check_names(sink, value, {*known, *PAGED, *ALIKE})
    check_circles(sink, engine.derive)
    check_mesh(sink, mesh, known)
    for rule in (groups.block, groups.inside, groups.rigid):
        check_names(sink, rule, {*known, *PAGED})


def _check_versions(sink: Sink, engine: Engine) -> None:
    """Report invalid releases (K003) of an engine that is found by them."""
    tree = engine.given.get("versions")
    if engine.package and tree is not None:
        help = f"an engine of the package {engine.package!r} is found by them"
        _check_releases(sink, "versions", engine.versions, tree, help)


def _check_releases(sink: Sink, what: str, text: str, tree: Tree, help: str = "") -> None:
    """Report a text that names no releases (K003)."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        sink.add("K003", f"{what} must be releases as '>=0.32,<0.33', not '{text}'", tree.span, help=help)


def _check_measured(sink: Sink, names: Iterable[YamlScalar]) -> None:
    """Report options and derived values that a measured name would hide (E018)."""
    for name in names:
        if name in (KERNELS, *MEASURED, *PAGED, *ALIKE, *PLACED):
            sink.add("E018", f"'{name}' is measured by the compiler", name.span, help="choose another name")


def _check_serve(sink: Sink, engine: Engine) -> None:
    """Report unknown placeholders in commands (E005), invalid releases (K003), and settings of unknown keys (K008)."""
    serve, known = engine.serve, _side_keys(engine)
    if serve is None:
        return
    for sentence, names in ((serve.command, STARTED), (serve.router, ROUTED)):
        check_sentence(sink, sentence, names)
    if "releases" in serve.given:
        _check_releases(sink, "releases", serve.releases, serve.given["releases"])
    _check_keys(sink, serve.settings, known)
    for setting in serve.settings.values():
        check_sentence(sink, setting.argument, ("value",))


def _side_keys(engine: Engine) -> list[str]:
    return [*engine.mesh.workers, *engine.mesh.derived, *engine.options]


def _check_keys(sink: Sink, given: Iterable[YamlScalar], known: Sequence[str]) -> None:
    """Report unknown keys of a side (K008)."""
    for name in given:
        if name not in known:
            message = f"'{name}' is neither a mesh axis nor an option"
            sink.add("K008", message, name.span, help=nearest(name, known))


def _choices(sink: Sink, engine: Engine) -> dict[str, LayoutChoice]:
    """The choices by option, with their settings. Reports unknown options and values."""
    told = engine.serve.settings if engine.serve else {}
    choices: dict[str, LayoutChoice] = {}
    for name, choice in engine.choices.items():
        option = engine.options.get(name)
        if option is None:
            sink.add("K008", f"'{name}' is no option", name.span, help=nearest(name, engine.options))
            continue
        _check_values(sink, choice.values, option)
        told_apart = choice.setting.tree is not None
        choices[name] = choice if told_apart else replace(choice, setting=told.get(name, choice.setting))
    return choices


def _check_values(sink: Sink, values: Iterable[YamlScalar], option: Param) -> None:
    """Report values that are not among the listed ones of an option (K010)."""
    for value in values:
        if option.values and value not in option.values:
            message = f"'{option.name}' cannot be '{value}'"
            sink.add("K010", message, value.span, help=nearest_or_all(value, option.values))


def spelled(flag: str) -> str:
    """A flag or a variable as a plain word: `--block-size`, `block-size` and `BLOCK_SIZE` give the same."""
    return flag.lstrip("-").replace("-", "_").lower()


def _flags(sink: Sink, engine: Engine) -> dict[str, str]:
    """The keys of a side by the engine's words for them. Reports unknown keys (K008)."""
    given = FLAGS.read(sink, engine.written("flags"), "flags")
    _check_keys(sink, given, [*_side_keys(engine), *engine.derive])
    settings = engine.serve.settings.items() if engine.serve else ()
    told = {spelled(setting.flag or setting.variable): name for name, setting in settings}
    return {**told, **{spelled(word): name for name, words in given.items() for word in words}}


def _expression(sink: Sink, name: str, value: DerivedValue) -> Expr | None:
    """The expression of a derived value. Reports one that has neither or both of `is` and `cases` (K017)."""
    given = [key for key in ("is", "cases") if key in value.given]
    if len(given) != 1:
        message = f"'{name}' has {'both' if given else 'neither'} 'is' {'and' if given else 'nor'} 'cases'"
        sink.add("K017", message, value.span, help=f"a value is one expression, or has cases; {ALONE}")
    return _chosen(sink, name, value.cases) if value.cases else value.value


def _chosen(sink: Sink, name: str, cases: Sequence[DerivedCase]) -> Expr | None:
    """The cases of a value as one expression: `a if p else b if q else c`. Reports malformed cases (K017)."""
    *others, last = cases
    good = [_is_case(sink, name, case, ("when", "is")) for case in others]
    if not _is_case(sink, name, last, ("else",)) or not all(good) or last.otherwise is None:
        return None
    value = last.otherwise
    for case in reversed(others):
        if case.when is None or case.value is None:
            return None
        tree = Choice(case.when.tree, case.value.tree, value.tree, case.when.span)
        value = Expr(f"{case.value.text} if {case.when.text} else {value.text}", tree, case.when.span)
    return value


def _is_case(sink: Sink, name: str, case: DerivedCase, wanted: tuple[str, ...]) -> bool:
    """Whether a case has exactly the `wanted` keys. Reports K017 if not; unknown keys were reported before."""
    if {*case.given} == {*wanted}:
        return True
    if case.tree is not None and isinstance(case.tree, YamlTable):
        what = "the last case" if "else" in wanted else "a case"
        has = " and ".join(f"'{key}'" for key in wanted)
        sink.add("K017", f"{what} of '{name}' has {has}, and nothing else", case.tree.span)
    return False
