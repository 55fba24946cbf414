"""All layout files that are known: the shipped ones, those of `--layouts` folders, those named by path.

A file is parsed when something of it is asked for, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeVar

from kvplan.dsl.files.conditions import OptionWords
from kvplan.dsl.files.deployment import parse_deployment
from kvplan.dsl.files.documents import SORTS, identify, open_document
from kvplan.dsl.files.engines import EngineContext, parse_engine
from kvplan.dsl.files.kinds import parse_kind
from kvplan.dsl.files.lazy_files import LazyFiles
from kvplan.dsl.files.models import ModelReferences, parse_model
from kvplan.dsl.files.variants import check_variants, names_in, place, variant
from kvplan.dsl.lang import dtypes
from kvplan.dsl.model import Deployment, Engine, Kind, Model, Param
from kvplan.dsl.rules.config_rules import ConfigRules, parse_reading
from kvplan.dsl.schema.engine import OPTIONS
from kvplan.dsl.schema.fields import entries, guarded
from kvplan.dsl.schema.model import FAMILY
from kvplan.dsl.schema.params import read_params
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, listed, nearest
from kvplan.dsl.text.overlay import merged, without
from kvplan.dsl.text.source import SourceSpan, inline, shown
from kvplan.dsl.text.yaml_reader import YamlDocument, YamlScalar, YamlTable

T = TypeVar("T")
FOLDERS = {"kinds": "kind", "engines": "engine", "models": "model", "configs": "config"}
# Words that a model gives to every expression.
WORDS = ("dtype", "query_heads")


@dataclass(frozen=True)
class Library:
    """Kinds, engines and models by name."""

    paths: Mapping[str, Mapping[str, Path]]

    @cached_property
    def kinds(self) -> LazyFiles[Kind]:
        return LazyFiles("kind", self.paths["kind"], lambda name: self._parsed("kind", name, self._kind))

    @cached_property
    def engines(self) -> LazyFiles[Engine]:
        return LazyFiles("engine", self.paths["engine"], lambda name: self._parsed("engine", name, self._engine))

    @cached_property
    def models(self) -> LazyFiles[Model]:
        return LazyFiles("model", self.paths["model"], lambda name: self._parsed("model", name, self._model))

    @cached_property
    def readings(self) -> LazyFiles[ConfigRules]:
        return LazyFiles("config", self.paths["config"], lambda name: self._parsed("config", name, _config))

    def kind(self, name: str) -> Kind:
        return self.kinds.find(name)

    def engine(self, name: str) -> Engine:
        return self.engines.find(name)

    def model(self, name: str) -> Model:
        """A model. Raises DslError: K008 where there is none of that name, K016 where it is a family's."""
        if name not in self.models and (family := self.family(name)):
            said, help = f"'{name}' is a family", f"its models are {listed(family, 'and')}; {self._asked(family[0])}"
            raise DslError(Diagnostic("K016", said, inline(name, "<argument>"), (), help))
        return self.models.find(name)

    def _asked(self, name: str) -> str:
        """How a model of a family is asked for."""
        return "give one by name" + ("" if self.shipped("model", name) else ", with --layouts DIR")

    def family(self, name: str) -> tuple[str, ...]:
        """The models of the file `name`.yaml, in its order; none if there is no such file."""
        found = {path.stem: path for path in self.paths["model"].values()}
        return names_in(found[name]) if name in found else ()

    def shipped(self, sort: str, name: str) -> bool:
        """Whether the file of that name comes with kvplan."""
        with as_file(files("kvplan.layouts")) as folder:
            return self.paths[sort][name].resolve().is_relative_to(folder.resolve())

    @cached_property
    def default_engine(self) -> str:
        """The engine whose file says `default: true`. Raises DslError (K014) unless there is exactly one."""
        chosen = [name for name in self.engines if _says_default(self._root("engine", name))]
        if len(chosen) != 1:
            found = listed(chosen, "and") if chosen else "no engine"
            help = "give engine=… in the side, or mark one engine 'default: true'"
            raise DslError(
                Diagnostic("K014", f"{found} marked as the default", inline("default", "<layouts>"), (), help)
            )
        return chosen[0]

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The names that a kind's expressions may use besides its own: options of every engine, and a model's words."""
        options = (self._root("engine", name).get("options") for name in self.engines)
        names = {entry.key.text for option in options if isinstance(option, YamlTable) for entry in option.entries}
        return tuple(sorted({*names, *WORDS}))

    @cached_property
    def spoken(self) -> OptionWords:
        """What conditions over options may say; files that cannot be read say nothing."""
        found: dict[str, tuple[Param, ...]] = {}
        words = {value for kind in self._readable for param in kind.params.values() for value in param.values}
        for root in (guarded(Sink(), partial(self._whole, name)) for name in self.engines):
            keys = OPTIONS.read(Sink(), root.get("options") if root else None, "options")
            for param in read_params(Sink(), keys).values():
                found[param.name] = (*found.get(param.name, ()), param)
            for own in entries(Sink(), root.get("own") if root else None, "own").values():
                words |= {key.text for key in entries(Sink(), own, "own")}
        return OptionWords(found, self.storages | words | frozenset(dtypes.NAMES))

    @cached_property
    def storages(self) -> frozenset[str]:
        """The names of storage expressions, whatever they store; files that cannot be read have none."""
        return frozenset(name for kind in self._readable for name in kind.storage)

    @cached_property
    def _readable(self) -> tuple[Kind, ...]:
        every = (guarded(Sink(), partial(self.kind, name)) for name in self.kinds)
        return tuple(kind for kind in every if kind)

    def errors(self, path: Path) -> list[Diagnostic]:
        """Every error of one file."""
        sink = Sink()
        try:
            document = open_document(path)
        except DslError as error:
            return list(error.diagnostics)
        sink.found.extend(document.errors)
        sort, name = identify(sink, document)
        if sort and name:
            self._parse(sink, sort, document, name)
        return sink.found

    def deployment(self, path: Path) -> Deployment:
        """A deployment file. Raises DslError."""
        document, sink = open_document(path), Sink()
        sink.found.extend(document.errors)
        sort, name = identify(sink, document)
        if sort not in (None, "deployment"):
            sink.add(
                "K005",
                f"expected a deployment, not a {sort}",
                document.root.span,
                help="it begins with deployment: NAME",
            )
        made = parse_deployment(sink, document.root, name, self.models) if name else None
        if sink.found or made is None:
            raise DslError(*sink.found)
        return made

    def _parse(self, sink: Sink, sort: str, document: YamlDocument, name: str) -> object:
        if sort == "deployment":
            return parse_deployment(sink, document.root, name, self.models)
        parse = {"kind": self._kind, "engine": self._engine, "model": self._models, "config": _config}[sort]
        try:
            return parse(sink, document, name)
        except DslError as error:
            sink.take(error)
            return None

    def _parsed(self, sort: str, name: str, parse: Callable[[Sink, YamlDocument, str], T]) -> T:
        document, sink = open_document(self.paths[sort][name]), Sink()
        sink.found.extend(document.errors)
        found, _ = identify(sink, document)
        if found not in (None, sort):
            sink.add(
                "K005", f"expected a {sort}, not a {found}", document.root.span, help=f"it begins with {sort}: NAME"
            )
        made = parse(sink, document, name)
        if sink.found:
            raise DslError(*sink.found)
        return made

    def _kind(self, sink: Sink, document: YamlDocument, name: str) -> Kind:
        return parse_kind(sink, document.root, name, self.outer)

    def _model(self, sink: Sink, document: YamlDocument, name: str) -> Model:
        known, root = ModelReferences(self.kinds, self.outer, lambda: self.spoken), document.root
        check_variants(sink, root.get(FAMILY))
        return parse_model(sink, variant(root, name), name, place(root, name), known)

    def _models(self, sink: Sink, document: YamlDocument, _: str) -> None:
        """Every model of a file; a mistake of a family is told once."""
        for name in names_in(document.path):
            self._model(sink, document, name)
        sink.found[:] = dict.fromkeys(sink.found)

    def _engine(self, sink: Sink, document: YamlDocument, name: str) -> Engine:
        root = self._extended(document.root, (name,))
        return parse_engine(sink, root, name, EngineContext(self.kinds, WORDS))

    def _whole(self, name: str) -> YamlTable:
        """An engine's file with all that it extends."""
        return self._extended(self._root("engine", name), (name,))

    def _extended(self, root: YamlTable, chain: tuple[str, ...]) -> YamlTable:
        base = root.get("extends")
        if not isinstance(base, YamlScalar):
            return root
        if base.text in chain:
            circle = " -> ".join((*chain, base.text))
            raise DslError(Diagnostic("K011", f"engine '{chain[-1]}' extends itself: {circle}", base.span))
        if base.text not in self.engines:
            help = nearest(base.text, self.engines)
            raise DslError(Diagnostic("K008", f"unknown engine '{base.text}'", base.span, (), help))
        under = self._extended(self._root("engine", base.text), (*chain, base.text))
        # Which engine is the default is a fact about one file.
        return merged(without(under, "default", "extends"), root)

    def _root(self, sort: str, name: str) -> YamlTable:
        return open_document(self.paths[sort][name]).root


def _config(sink: Sink, document: YamlDocument, name: str) -> ConfigRules:
    return parse_reading(sink, document.root, name)


def _says_default(root: YamlTable) -> bool:
    said = root.get("default")
    return isinstance(said, YamlScalar) and said.text == "true"


def load(paths: Sequence[Path] = (), layouts: Sequence[Path] = ()) -> Library:
    """The shipped layouts, all files below the folders `layouts`, and the files `paths`.

    Raises DslError: Y… where a file that must be opened to know its sort has no tree, K007 for a name given twice.
    """
    library = Library({sort: {} for sort in SORTS})
    with as_file(files("kvplan.layouts")) as shipped:
        for path in _below(shipped):
            _place(library, path)
    for folder in layouts:
        for path in _below(folder):
            _place(library, path)
    for path in paths:
        _place(library, Path(path))
    return library


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml") and path.is_file())


def _place(library: Library, path: Path) -> None:
    """Put a file where it belongs; the same text under the same name may come twice."""
    sort = FOLDERS.get(path.parent.name) or _sort(path)
    shelf = library.paths.get(sort)
    assert isinstance(shelf, dict)
    for name in names_in(path) if sort == "model" else (path.stem,):
        other = shelf.get(name)
        if other is not None and not _same(other, path):
            note = f"the other one is in {shown(other)}"
            at = place(open_document(path).root, name) if sort == "model" else _name_span(path, sort)
            raise DslError(Diagnostic("K007", f"{sort} '{name}' is given twice", at, (note,), "choose another name"))
        shelf.setdefault(name, path)


def _sort(path: Path) -> str:
    """What a file is, from its keys; a broken one counts as a deployment, whose errors come when it is read."""
    document, sink = open_document(path), Sink()
    sort, _ = identify(sink, document)
    if sort is None:
        raise DslError(*document.errors, *sink.found)
    return sort


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or one.read_bytes() == other.read_bytes()


def _name_span(path: Path, sort: str) -> SourceSpan:
    value = open_document(path).root.get(sort)
    return value.span if isinstance(value, YamlScalar) else SourceSpan(shown(path), 1, 1, 1)


def load_deployment(path: Path, layouts: Sequence[Path] = ()) -> Deployment:
    """A deployment file. Raises DslError."""
    return load((), layouts).deployment(path)
