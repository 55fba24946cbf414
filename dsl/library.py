"""All known layout files: the shipped ones, those in `--layouts` folders, and those named by path.

A file is parsed once, when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeVar

from kvplan.dsl.files.conditions import OptionWords
from kvplan.dsl.files.config_classes import read_classes
from kvplan.dsl.files.deployment import parse_deployment
from kvplan.dsl.files.documents import ARGUMENT, FILE_TYPES, identify, misnamed, names_in, open_document, unknown
from kvplan.dsl.files.engine_kinds import check_kinds
from kvplan.dsl.files.engines import parse_engine
from kvplan.dsl.files.fleet import parse_fleet
from kvplan.dsl.files.folders import folder_files, layout_type
from kvplan.dsl.files.heads import FileHead
from kvplan.dsl.files.kinds import parse_kind
from kvplan.dsl.files.lazy import LazyFiles, OtherNames
from kvplan.dsl.files.machines import parse_machine
from kvplan.dsl.files.model_hints import ModelHints
from kvplan.dsl.files.models import ModelReferences, parse_model
from kvplan.dsl.files.rule_check import check_reading
from kvplan.dsl.files.variants import check_variants, extended, place, variant
from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.rules.params import read_params
from kvplan.dsl.rules.rule import parse_reading
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.schema.deployment import Deployment
from kvplan.dsl.schema.engine import MESH, OPTIONS, Engine
from kvplan.dsl.schema.fields import entries, guarded
from kvplan.dsl.schema.fleet import FleetFile
from kvplan.dsl.schema.kind import OTHER_NAMES, Kind, Param
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.dsl.schema.model import FAMILY, Model
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, fault, listed
from kvplan.dsl.text.grouped import grouped
from kvplan.dsl.text.source import SourceSpan, inline, shown
from kvplan.dsl.text.yaml_reader import FileState, YamlDocument, YamlScalar, YamlTable

T = TypeVar("T")
ParseFile = Callable[[Sink, YamlDocument, str], T]
LIBRARIES = 8
SHARED = ("kind", "engine", "machine", "config")
# Files by type, then by the name of the model, kind or engine that they describe.
NamedFiles = dict[str, dict[str, Path]]


@dataclass(frozen=True)
class Library:
    """Kinds, engines, models and machines by name; `paths` are their files, by type and name.

    `shared` is a library with the same files of the types in SHARED. They do not depend on models: it parses them.
    """

    paths: Mapping[str, Mapping[str, Path]]
    shared: Library | None = field(default=None, kw_only=True, repr=False, compare=False)

    @cached_property
    def kinds(self) -> LazyFiles[Kind]:
        return self.shared.kinds if self.shared else self._files("kind", self._kind, lambda: self._other_names)

    @cached_property
    def engines(self) -> LazyFiles[Engine]:
        return self.shared.engines if self.shared else self._files("engine", self._engine)

    @cached_property
    def models(self) -> LazyFiles[Model]:
        return self._files("model", self._model)

    @cached_property
    def machines(self) -> LazyFiles[MachineProfile]:
        return self.shared.machines if self.shared else self._files("machine", _machine)

    @cached_property
    def readings(self) -> LazyFiles[ConfigRules]:
        return self.shared.readings if self.shared else self._files("config", _config)

    def _files(self, file_type: str, parse: ParseFile[T], *names: Callable[[], OtherNames]) -> LazyFiles[T]:
        return LazyFiles(file_type, self.paths[file_type], partial(self._parsed, file_type, parse), *names)

    @property
    def general(self) -> ConfigRules:
        """The rules for all configurations: those of the first config file by name. Raises DslError."""
        return self.readings[min(self.readings)]

    def kind(self, name: str) -> Kind:
        return self._find(self.kinds, name)

    def engine(self, name: str) -> Engine:
        return self._find(self.engines, name)

    def model(self, name: str, where: str = ARGUMENT) -> Model:
        """The model of that name, which stands at `where`. Raises DslError: K008 if there is none, K016 if the name is
        a family's."""
        if name not in self.models and (family := self.family(name)):
            how = "give one by name" + ("" if self.shipped("model", family[0]) else ", with --layouts DIR")
            help = f"its models are {listed(family, 'and')}; {how}"
            raise fault("K016", f"'{name}' is a family", inline(name, "<argument>"), help=help)
        return self._find(self.models, name, where)

    def machine(self, name: str) -> MachineProfile:
        return self._find(self.machines, name)

    def _find(self, files: LazyFiles[T], name: str, where: str = ARGUMENT) -> T:
        """The value of that name. Raises DslError: K006 if its file has another name, K008 if there is none."""
        if name not in files:
            wanted = YamlScalar(name, inline(name, where))
            raise DslError(self.misnamed(files.file_type, name) or unknown(files.file_type, wanted, files))
        return files[name]

    def misnamed(self, file_type: str, name: str) -> Diagnostic | None:
        """The error of a file that describes `name`, but is called otherwise (K006); None if there is no such file."""
        return misnamed(file_type, name, self.paths[file_type].values())

    def family(self, name: str) -> tuple[str, ...]:
        """The models of the file `name`.yaml, in its order; none if there is no such file."""
        stems = {path.stem: path for path in self.paths["model"].values()}
        return names_in(stems[name]) if name in stems else ()

    def shipped(self, file_type: str, name: str) -> bool:
        """Whether the file of that name comes with kvplan."""
        with as_file(files("kvplan.layouts")) as folder:
            return self.paths[file_type][name].resolve().is_relative_to(folder.resolve())

    @cached_property
    def default_engine(self) -> str:
        """The engine whose file says `default: true`. Raises DslError (K014) unless there is exactly one."""
        return self._default("engine", self.engines, "give engine=… in the side")

    @cached_property
    def default_machine(self) -> str:
        """The machine whose file says `default: true`. Raises DslError (K014) unless there is exactly one."""
        return self._default("machine", self.machines, "name one")

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The names that a kind's expressions may use besides parameters: options of engines, words of a model."""
        options = (self._root("engine", name).get("options") for name in self.engines)
        names = {entry.key for option in options if isinstance(option, YamlTable) for entry in option.entries}
        return tuple(sorted({*names, *given_words(names).values(), *WORDS}))

    @cached_property
    def _other_names(self) -> OtherNames:
        """The names by which people call kinds, without those of files that cannot be read."""
        found: dict[str, dict[str, str]] = {}
        for kind in self.kinds:
            root = guarded(Sink(), partial(self._root, "kind", kind))
            names = OTHER_NAMES.read(Sink(), root.get("other_names"), "other_names") if root else {}
            for other, text in names.items():
                found.setdefault(str(other), {})[kind] = text
        return found

    @cached_property
    def mesh_axes(self) -> frozenset[str]:
        """The mesh axes of all engines, except those whose file cannot be read."""
        roots = (guarded(Sink(), partial(self._root, "engine", name)) for name in self.engines)
        meshes = (root.get("mesh") for root in roots if root)
        keys = [MESH.read(Sink(), mesh, "mesh") for mesh in meshes if isinstance(mesh, YamlTable)]
        return frozenset(str(axis) for mesh in keys for axis in (*mesh.workers, *mesh.derived))

    @cached_property
    def option_words(self) -> OptionWords:
        """The options and words that conditions may use, without those of files that cannot be read."""
        options: dict[str, tuple[Param, ...]] = {}
        words = {value for kind in self.readable_kinds for param in kind.params.values() for value in param.values}
        for name in self.engines:
            root = guarded(Sink(), partial(self._extended, "engine", name))
            keys = OPTIONS.read(Sink(), root.get("options") if root else None, "options")
            for param in read_params(Sink(), keys).values():
                options[param.name] = (*options.get(param.name, ()), param)
            for own in entries(Sink(), root.get("own") if root else None, "own").values():
                words |= entries(Sink(), own, "own").keys()
        return OptionWords(options, self.storages | words | frozenset(dtypes.NAMES))

    @cached_property
    def references(self) -> ModelReferences:
        """The things that model files may refer to."""
        of = (lambda: self.option_words), (lambda: self._hints)
        return ModelReferences(self.kinds, self.outer, self.paths["engine"], *of)

    @property
    def _hints(self) -> ModelHints:
        return ModelHints(self.readable_kinds, self.readable_engines, self.general.words, self.outer)

    @cached_property
    def storages(self) -> frozenset[str]:
        """The names of all storage expressions in kinds that can be read."""
        own = {name for kind in self.readable_kinds for name in kind.storage}
        return frozenset(
            own | {name for kind in self.readable_kinds for each in kind.variants for name in each.storage}
        )

    @cached_property
    def readable_kinds(self) -> tuple[Kind, ...]:
        """The kinds of all files without errors."""
        return tuple(_readable(self.kinds))

    def heads(self, file_type: str) -> list[FileHead]:
        """The heads of all files of one type, in the order of their names. Raises DslError if one has no YAML tree."""
        return [self.head(file_type, name) for name in sorted(self.paths[file_type])]

    def head(self, file_type: str, name: str) -> FileHead:
        """The head of a file. Raises DslError if it has no YAML tree."""
        return FileHead(name, self._extended(file_type, name))

    @cached_property
    def readable_engines(self) -> list[Engine]:
        """The engines of all files without errors."""
        return _readable(self.engines)

    def models_of(self, path: Path) -> list[Model]:
        """The models in a file, without those that have errors. The file may have another name than its model."""
        named = self._models_by_file.get(path.resolve(), ())
        return [model for name in named if (model := self._good_model(path, name))]

    @cached_property
    def _models_by_file(self) -> Mapping[Path, list[str]]:
        return grouped((file.resolve(), name) for name, file in self.paths["model"].items())

    def _good_model(self, path: Path, name: str) -> Model | None:
        sink = Sink()
        document = guarded(sink, partial(open_document, path))
        if document is None or document.errors:
            return None
        model = guarded(sink, partial(self._model, sink, document, name))
        return None if sink.errors else model

    def deployment(self, path: Path) -> Deployment:
        """The deployment in a file. Raises DslError."""
        return self._as("deployment", open_document(path), self._deployment)

    def fleet(self, path: Path) -> FleetFile:
        """The fleet in a file. Raises DslError."""
        return self._as("fleet", open_document(path), self._fleet)

    def parse(self, sink: Sink, file_type: str, document: YamlDocument, name: str) -> None:
        """Report the errors of a file. An error that all variants of a family share is reported once."""
        parsers: Mapping[str, Callable[[Sink, YamlDocument, str], object]] = {
            "kind": self._kind, "engine": self._whole_engine, "model": self._model, "config": _config,
            "deployment": self._deployment, "machine": _machine, "fleet": self._fleet,
        }  # fmt: skip
        for described in names_in(document.path) if file_type == "model" else (name,):
            parsers[file_type](sink, document, described)
        self._check_default(sink, file_type, document.root, name)
        sink.errors[:] = dict.fromkeys(sink.errors)

    def _parsed(self, file_type: str, parse: ParseFile[T], name: str) -> T:
        return self._as(file_type, open_document(self.paths[file_type][name]), parse, name)

    def _as(
        self, file_type: str, document: YamlDocument, parse: Callable[[Sink, YamlDocument, str], T], name: str = ""
    ) -> T:
        """The value that a file of one type describes, called `name`, or as the file says. Raises DslError."""
        sink = Sink([*document.errors])
        other, own = identify(sink, document)
        if other not in (None, file_type):
            help = f"it begins with {file_type}: NAME"
            sink.add("K005", f"expected a {file_type}, not a {other}", document.root.span, help=help)
        if other != file_type:
            # Its keys belong to another type: here they would all be reported as unknown.
            raise DslError(*sink.errors)
        made = parse(sink, document, name or own)
        if sink.errors:
            raise DslError(*sink.errors)
        return made

    def _deployment(self, sink: Sink, document: YamlDocument, name: str) -> Deployment:
        return parse_deployment(sink, document.root, name, self.models)

    def _fleet(self, sink: Sink, document: YamlDocument, name: str) -> FleetFile:
        return parse_fleet(sink, document.root, name, self.models, self.machines)

    def _kind(self, sink: Sink, document: YamlDocument, name: str) -> Kind:
        return parse_kind(sink, self._over("kind", document.root, name), name, self.outer, self.mesh_axes)

    def _model(self, sink: Sink, document: YamlDocument, name: str) -> Model:
        root = document.root
        check_variants(sink, root.get(FAMILY))
        return parse_model(sink, self._over("model", variant(root, name), name), name, self.references)

    def _engine(self, sink: Sink, document: YamlDocument, name: str) -> Engine:
        """An engine to use. A shipped file's rules for kinds are not checked on every load, but by `errors`."""
        read = self._read_engine if self.shipped("engine", name) else self._whole_engine
        return read(sink, document, name)

    def _read_engine(self, sink: Sink, document: YamlDocument, name: str) -> Engine:
        return parse_engine(sink, self._over("engine", document.root, name), name, self.kinds)

    def _whole_engine(self, sink: Sink, document: YamlDocument, name: str) -> Engine:
        engine = self._read_engine(sink, document, name)
        check_kinds(sink, engine, self.kinds)
        return engine

    def _check_default(self, sink: Sink, file_type: str, root: YamlTable, name: str) -> None:
        """Report a default file if another file is the default, too (K014)."""
        default = root.get("default")
        if file_type not in ("engine", "machine") or default is None or not _says_default(root):
            return
        others = ((other, guarded(Sink(), partial(self._root, file_type, other))) for other in self.paths[file_type])
        for other in (other for other, found in others if other != name and found and _says_default(found)):
            help = "sides name the one that they run: leave it out"
            sink.add("K014", f"'{other}' is marked as the default, too", default.span, help=help)

    def _default(self, file_type: str, names: Iterable[str], otherwise: str) -> str:
        chosen = [name for name in names if _says_default(self._root(file_type, name))]
        if len(chosen) == 1:
            return chosen[0]
        message = f"{listed(chosen, 'and') if chosen else f'no {file_type}'} marked as the default"
        help = f"{otherwise}, or mark one {file_type} 'default: true'"
        raise fault("K014", message, inline("default", "<layouts>"), help=help)

    def _extended(self, file_type: str, name: str) -> YamlTable:
        """The keys of a file, laid over those of the files that it extends."""
        return self._over(file_type, self._root(file_type, name), name)

    def _over(self, file_type: str, root: YamlTable, name: str) -> YamlTable:
        known: Mapping[str, Collection[str]] = {**self.paths, "kind": self.kinds}
        return extended(root, (name,), file_type, known[file_type], partial(self._root, file_type))

    def _root(self, file_type: str, name: str) -> YamlTable:
        root = open_document(self.paths[file_type][name]).root
        return variant(root, name) if file_type == "model" else root


def _readable(of: LazyFiles[T]) -> list[T]:
    every = (guarded(Sink(), partial(of.__getitem__, name)) for name in of)
    return [value for value in every if value]


def _config(sink: Sink, document: YamlDocument, name: str) -> ConfigRules:
    reading = replace(parse_reading(sink, document.root), classes=read_classes(sink, document.root.get("classes")))
    check_reading(sink, reading)
    return reading


def _machine(sink: Sink, document: YamlDocument, name: str) -> MachineProfile:
    return parse_machine(sink, document.root, name)


def _says_default(root: YamlTable) -> bool:
    default = root.get("default")
    return isinstance(default, YamlScalar) and default == "true"


def load(paths: Sequence[Path] = (), layouts: Sequence[Path] = ()) -> Library:
    """The library of the shipped layouts, all files below the folders `layouts`, and the files `paths`.

    Raises DslError: Y… if a file has no YAML tree and its type is not known without it, K007 for a name given twice.
    """
    library, errors = load_good(paths, layouts)
    if errors:
        raise DslError(*errors)
    return library


def load_good(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> tuple[Library, list[Diagnostic]]:
    """`load` without the bad files among `paths`, and their errors. Raises DslError for bad files in folders."""
    found: NamedFiles = {file_type: {} for file_type in FILE_TYPES}
    with as_file(files("kvplan.layouts")) as shipped:
        for folder in (shipped, *layouts):
            for path in folder_files(folder).layouts:
                _put(found, path)
    sink = Sink()
    for path in paths:
        guarded(sink, partial(_put, found, Path(path)))
    named = ((file_type, name, path) for file_type, of in found.items() for name, path in of.items())
    return _kept(tuple((file_type, name, FileState.of(path)) for file_type, name, path in named)), sink.errors


@lru_cache(LIBRARIES)
def _kept(files: tuple[tuple[str, str, FileState], ...]) -> Library:
    """The library of these files, by type and name. It is kept, with all that is parsed, until one of them changes."""
    paths: NamedFiles = {file_type: {} for file_type in FILE_TYPES}
    for file_type, name, file in files:
        paths[file_type][name] = file.path
    stored = tuple(file for file in files if file[0] in SHARED)
    return Library(paths, shared=_kept(stored) if len(stored) < len(files) else None)


def _put(found: NamedFiles, path: Path) -> None:
    """Add a file under its type and names. Raises DslError (K007) for a known name, unless the texts are equal."""
    described = layout_type(path)
    known = found[described]
    names = names_in(path) if described == "model" else (path.stem,)
    for name in names:
        other = known.get(name)
        if other is not None and other.resolve() != path.resolve() and other.read_bytes() != path.read_bytes():
            at = place(open_document(path).root, name) if described == "model" else _name_span(path, described)
            message = f"two files describe {described} '{name}': this one and {shown(other)}"
            raise fault("K007", message, at, help=f"give the {described} another name here, or leave one file out")
    known.update({name: path for name in names if name not in known})


def _name_span(path: Path, file_type: str) -> SourceSpan:
    value = open_document(path).root.get(file_type)
    return value.span if isinstance(value, YamlScalar) else SourceSpan(shown(path), 1, 1, 1)
