"""Engine files: where an engine puts things, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kvplan.dsl.files.documents import described
from kvplan.dsl.files.policy import check_mesh, check_options, read_groups
from kvplan.dsl.files.storages import read_storages
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Choice, Expr, Storage
from kvplan.dsl.model import DumpRules, Engine, Instead, Kind, Param, ValueDoc
from kvplan.dsl.rules.params import WANTED, check_circles, check_defaults, read_params
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.schema.engine import (
    DERIVED,
    ENGINE,
    GROUPS,
    INSTEAD,
    MESH,
    REQUIRED_OF,
    CaseKeys,
    DumpKeys,
    EngineKeys,
    LayoutChoice,
    Requirement,
    Serve,
)
from kvplan.dsl.schema.fields import check_names, check_sentence, entries, guarded, placeholders
from kvplan.dsl.schema.kind import WHOSE
from kvplan.dsl.schema.names import ALIKE, KERNELS, MEASURED, PAGED, PLACED, WORDS
from kvplan.dsl.schema.shapes import EXPRESSION, NameShape
from kvplan.dsl.text.diagnostics import DslError, Sink, nearest, nearest_or_all
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

ALONE = "an engine that extends another replaces it by an expression alone"
# The kinds that an engine file may refer to.
Kinds = Mapping[str, Kind]
# Without these every name in an engine's file would be unknown.
NAMING = ("mesh", "options", "derive")
# What is replaced in the commands of `serve`.
# Beside options and mesh axes, what a condition of `serve` may ask: whether the engine decodes.
DECODES = "decodes"
STARTED, ROUTED = ("model", "host", "port", "role"), ("port", "prefill", "prefill_port", "decode", "decode_port")


def parse_engine(sink: Sink, root: YamlTable, name: str, kinds: Kinds) -> Engine:
    """An engine, with every error in the sink. Raises DslError where one would make others everywhere."""
    keys = ENGINE.read(sink, root)
    if not all(isinstance(keys.given.get(each, root), YamlTable) for each in NAMING):
        raise DslError(*sink.errors)
    _check_versions(sink, keys)
    options = read_params(sink, keys.options)
    derived = {name: read_derived(sink, name, tree) for name, tree in keys.derive.items()}
    derive = {name: expr for name, (expr, _) in derived.items() if expr is not None}
    _check_measured(sink, (*keys.options, *keys.derive))
    for form, given in ((ENGINE, keys), (GROUPS, keys.groups), (MESH, keys.mesh)):
        check_options(sink, form, given, options)
    axes = {*keys.mesh.workers, *keys.mesh.derived}
    for each in (each for each in (*keys.options, *keys.derive) if each in axes):
        sink.add("K007", f"'{each}' is an axis of the mesh", each.span, help="choose another name")
    told = given_words(options).values()
    check_defaults(sink, options, {*axes, *WORDS, *told, *([KERNELS] if keys.kernels else [])})
    known = {*options, *told, *derive, *axes, *WORDS, *MEASURED}
    for value in derive.values():
        check_names(sink, value, {*known, *PAGED, *ALIKE})
    check_circles(sink, derive)
    check_mesh(sink, keys.mesh, known)
    for rule in (keys.groups.block, keys.groups.inside, keys.groups.rigid):
        check_names(sink, rule, {*known, *PAGED})
    serve = keys.serve if keys.serve.tree is not None else None
    _check_serve(sink, keys.serve, (*axes, *options))
    for each in keys.serve.require:
        _check_requirement(sink, each, {*axes, *options, DECODES}, kinds, measured=())
    for kind in keys.probed.kinds:
        described(sink, "kind", kind, kinds)
    for each in keys.require:
        _check_requirement(sink, each, known, kinds)
    for each in keys.expect:
        _check_requirement(sink, each, {*WORDS}, kinds, measured=())
    page = _by_cache(sink, keys.groups.page, {*known, *PAGED}, kinds)
    return Engine(
        name=name,
        title=keys.title,
        doc_ref=keys.doc_ref,
        versions=keys.versions,
        package=keys.package,
        platforms=keys.platforms,
        options=options,
        require=keys.require,
        expect=keys.expect,
        copies=keys.copies,
        storage=_storage(sink, keys, options, kinds),
        own=_own(sink, keys, known, kinds),
        derive=derive,
        groups=read_groups(sink, keys.groups, page),
        mesh=keys.mesh,
        stride=_by_cache(sink, keys.stride, {*known, *PAGED, *ALIKE, *PLACED}, kinds),
        kernels=_kernels(sink, keys.kernels, {*axes, *WORDS}, kinds),
        memory=_by_cache(sink, keys.memory, {*options, *told, *axes, *WORDS}, kinds, "a memory is expected"),
        dump=_dump(sink, keys.dump, kinds) if keys.dump.tree is not None else None,
        docs={name: doc for name, (_, doc) in derived.items()},
        doc=keys.doc,
        legend=keys.legend,
        probed=keys.probed,
        serve=serve,
        choices=_choices(sink, keys.choices, options, serve),
        flags=_flags(sink, keys.flags, serve, (*axes, *options, *derive)),
        aside={spelled(flag): why for flag, why in keys.aside.items()},
        instead=_instead(sink, keys.instead, {*options, *told, *axes, *WORDS}, kinds),
    )


def _check_versions(sink: Sink, keys: EngineKeys) -> None:
    """Report releases that are none (K003), where an engine is found by them."""
    tree = keys.given.get("versions")
    if keys.package and tree is not None:
        help = f"an engine of the package {keys.package!r} is found by them"
        _check_releases(sink, "versions", keys.versions, tree, help)


def _check_releases(sink: Sink, what: str, text: str, tree: Tree, help: str = "") -> None:
    """Report K003 for a text that names no releases."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        sink.add("K003", f"{what} must be releases as '>=0.32,<0.33', not '{text}'", tree.span, help=help)


def _check_measured(sink: Sink, names: Iterable[YamlScalar]) -> None:
    """Report options and derived values that a measured name would hide (E018)."""
    for name in names:
        if name in (KERNELS, *MEASURED, *PAGED, *ALIKE, *PLACED):
            sink.add("E018", f"'{name}' is measured by the compiler", name.span, help="choose another name")


def _check_requirement(
    sink: Sink, keys: Requirement, known: set[str], kinds: Kinds, measured: Collection[str] = (*PAGED, *ALIKE)
) -> None:
    """Report unknown kinds and names; of a cache `measured` is known beside its parameters."""
    about = [described(sink, "kind", name, kinds) for name in keys.kinds if name not in REQUIRED_OF.words]
    names = {*known, *measured} if keys.kinds else known
    # What a requirement asks of several kinds all of them have, and caches of one store need have nothing.
    params = [{*kind.params} for kind in about if kind]
    common = set.intersection(*params) if params and len(about) == len(keys.kinds) else set()
    common |= {*given_words(common).values()}
    check_names(sink, keys.that, names | common)
    check_sentence(sink, keys.say, names | common)


def _by_cache(
    sink: Sink,
    given: Mapping[YamlScalar, Expr],
    known: set[str],
    kinds: Kinds,
    wanted: str = "a number of bytes is expected",
) -> dict[str, Expr]:
    """Kind, store or `default` to what is `wanted`."""
    for expr in given.values():
        check_names(sink, expr, known, wanted)
    return {whose: expr for whose, expr in given.items() if _is_whose(sink, whose, kinds)}


def _kernels(sink: Sink, given: Mapping[YamlScalar, Expr], known: set[str], kinds: Kinds) -> dict[str, Expr]:
    """Kind, store or `default` to a set of block sizes, of which those of a kind may use its parameters."""
    about = {whose: described(sink, "kind", whose, kinds) if whose in kinds else None for whose in given}
    for whose, expr in given.items():
        kind = about[whose]
        check_names(sink, expr, {*known, *(kind.params if kind else ())}, WANTED["sizes"])
    return {whose: expr for whose, expr in given.items() if _is_whose(sink, whose, kinds)}


def _is_whose(sink: Sink, key: YamlScalar, kinds: Kinds) -> bool:
    """Whether a key says which caches a rule is for; else K008."""
    allowed = [*kinds, *WHOSE.words]
    if key not in allowed:
        message, help = f"'{key}' is neither a kind, a store nor default", nearest(key, allowed)
        sink.add("K008", message, key.span, help=help)
    return key in allowed


def _storage(sink: Sink, keys: EngineKeys, options: Mapping[str, Param], kinds: Kinds) -> Mapping[str, str]:
    """Kind, store or `default` to the name of a storage expression, in which {option} stands for an option's value."""
    found = {whose: rule for whose, rule in keys.storage.items() if _is_whose(sink, whose, kinds)}
    for whose, rule in found.items():
        check_sentence(sink, rule, options)
        kind = described(sink, "kind", whose, kinds) if whose in kinds and not placeholders(rule) else None
        known = {*kind.storage, *keys.own.get(kind.name, ())} if kind else set()
        if kind and rule not in known:
            help = nearest(rule, sorted(known))
            sink.add("K008", f"kind '{kind.name}' has no storage '{rule}'", rule.span, help=help)
    return found


def _own(sink: Sink, keys: EngineKeys, known: set[str], kinds: Kinds) -> dict[str, dict[str, Storage]]:
    """The engine's own storage expressions, by kind and name; of a record's tensors those it lacks drop out."""
    about = {name: described(sink, "kind", name, kinds) for name in keys.own}
    return {
        name: read_storages(sink, keys.own[name], kind.every_tensor, {*known, *kind.params}, kind.fragments)
        for name, kind in about.items()
        if kind
    }


def _instead(
    sink: Sink, given: Mapping[YamlScalar, Tree], known: set[str], kinds: Kinds
) -> dict[str, tuple[Instead, ...]]:
    """What the engine stores in place of kinds, by kind."""
    rules = {name: tree.items if isinstance(tree, YamlList) else (tree,) for name, tree in given.items()}
    read = {name: [_stored_instead(sink, name, rule, known, kinds) for rule in own] for name, own in rules.items()}
    return {str(name): tuple(rule for rule in own if rule is not None) for name, own in read.items()}


def _stored_instead(sink: Sink, name: YamlScalar, tree: Tree, known: set[str], kinds: Kinds) -> Instead | None:
    what = f"what is stored for '{name}'"
    chosen = NameShape("kind").read(sink, entries(sink, tree, what).get("kind"), "kind")
    kind, other = (described(sink, "kind", each, kinds) if each is not None else None for each in (name, chosen))
    if kind is None or (chosen is not None and other is None):
        return None
    params = other.params if other else {}
    required = [param.name for param in params.values() if param.default is None]
    keys = INSTEAD.read(sink, tree, what, params, required)
    names = {*known, *kind.params}
    trees = {param: keys.given[param] for param in params if param in keys.given}
    exprs = {param: EXPRESSION.read(sink, value, f"'{param}'") for param, value in trees.items()}
    for expr in (keys.when, *exprs.values(), *(each.that for each in keys.needs)):
        check_names(sink, expr, names)
    for each in keys.needs:
        check_sentence(sink, each.say, names)
    beside = described(sink, "kind", keys.beside, kinds) if keys.beside is not None else None
    found = {n: expr for n, expr in exprs.items() if expr is not None}
    return Instead(other.name if other else "", keys.when, found, keys.needs, beside.name if beside else "")


def _check_serve(sink: Sink, serve: Serve, known: Sequence[str]) -> None:
    for sentence, names in ((serve.command, STARTED), (serve.router, ROUTED)):
        if sentence:
            check_sentence(sink, sentence, names)
    if serve.tree is not None and "releases" in serve.given:
        _check_releases(sink, "releases", serve.releases, serve.given["releases"])
    for name in serve.settings:
        if name not in known:
            message = f"'{name}' is neither a mesh axis nor an option"
            sink.add("K008", message, name.span, help=nearest(name, known))


def _choices(
    sink: Sink, given: Mapping[YamlScalar, LayoutChoice], options: Mapping[str, Param], serve: Serve | None
) -> dict[str, LayoutChoice]:
    """What may be set otherwise. Reports options and values that there are not."""
    told = serve.settings if serve else {}
    choices: dict[str, LayoutChoice] = {}
    for name, keys in given.items():
        option = options.get(name)
        if option is None:
            sink.add("K008", f"'{name}' is no option", name.span, help=nearest(name, options))
            continue
        _check_values(sink, keys.values, option)
        told_apart = keys.setting.tree is not None
        choices[name] = keys if told_apart else replace(keys, setting=told.get(name, keys.setting))
    return choices


def _check_values(sink: Sink, values: Iterable[YamlScalar], option: Param) -> None:
    """Report values that an option with named ones has not (K010)."""
    for value in values:
        if option.values and value not in option.values:
            message = f"'{option.name}' cannot be '{value}'"
            sink.add("K010", message, value.span, help=nearest_or_all(value, option.values))


def spelled(flag: str) -> str:
    """A flag or a variable as a word: `--block-size`, `block-size` and `BLOCK_SIZE` are the same."""
    return flag.lstrip("-").replace("-", "_").lower()


def _flags(
    sink: Sink, given: Mapping[YamlScalar, tuple[YamlScalar, ...]], serve: Serve | None, known: Sequence[str]
) -> dict[str, str]:
    """The engine's words for keys of a side. Reports K008 for keys that there are not."""
    for name in given:
        if name not in known:
            message = f"'{name}' is neither a mesh axis nor an option"
            sink.add("K008", message, name.span, help=nearest(name, known))
    settings = serve.settings.items() if serve else ()
    told = {spelled(setting.flag or setting.variable): name for name, setting in settings}
    return {**told, **{spelled(word): name for name, words in given.items() for word in words}}


def _dump(sink: Sink, keys: DumpKeys, kinds: Kinds) -> DumpRules:
    """How an engine's dump is read."""

    def params_of(name: str) -> Mapping[str, Param] | None:
        kind = guarded(sink, lambda: kinds[name]) if name in kinds else None
        return kind.params if kind else None

    caches = parse_rules(sink, keys.given.get("caches"), "a rule of a dump", params_of)
    return DumpRules(keys.dtype, keys.query_heads, caches, tuple(keys.words.items()))


def read_derived(sink: Sink, name: str, tree: Tree) -> tuple[Expr | None, ValueDoc]:
    """A derived value and what is said of it. Reports K017 for one that has no value, or two."""
    if not isinstance(tree, YamlTable):
        return EXPRESSION.read(sink, tree, f"'{name}'"), ValueDoc()
    keys = DERIVED.read(sink, tree, f"'{name}'")
    given = [key for key in ("is", "cases") if key in keys.given]
    if len(given) != 1:
        message = f"'{name}' has {'both' if given else 'neither'} 'is' {'and' if given else 'nor'} 'cases'"
        sink.add("K017", message, tree.span, help=f"a value is one expression, or has cases; {ALONE}")
    value = _chosen(sink, name, keys.cases) if keys.cases else keys.value
    cases = tuple((_text(case.when), _text(case.value or case.otherwise)) for case in keys.cases)
    return value, ValueDoc(keys.doc, keys.unit, keys.doc_ref, cases, keys.fixed)


def _text(expr: Expr | None) -> str:
    return " ".join(expr.text.split()) if expr else ""


def _chosen(sink: Sink, name: str, cases: Sequence[CaseKeys]) -> Expr | None:
    """The cases of a value as one expression: `a if p else b if q else c`. Reports K017 for cases that are none."""
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


def _is_case(sink: Sink, name: str, case: CaseKeys, wanted: tuple[str, ...]) -> bool:
    """Whether a case has the keys that one in its place has; others of its keys were reported before."""
    if {*case.given} == {*wanted}:
        return True
    if case.tree is not None and isinstance(case.tree, YamlTable):
        what = "the last case" if "else" in wanted else "a case"
        has = " and ".join(f"'{key}'" for key in wanted)
        sink.add("K017", f"{what} of '{name}' has {has}, and nothing else", case.tree.span)
    return False
