"""The errors and doubts of layout files, and what the layers of their models store: for `check` and CI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from kvplan.dsl.files.documents import identify, open_document
from kvplan.dsl.files.rule_check import check_kind, check_own, check_words, listed_slips
from kvplan.dsl.files.static_check import doubts_of
from kvplan.dsl.files.tile_check import tile_error
from kvplan.dsl.lang import dtypes
from kvplan.dsl.library import Library, load_good
from kvplan.dsl.rules.rule import over
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import VARIANT, Cache, Model
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.stored_layers import layer_warnings, stored_layers
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, listed, nearest, ordered
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import YamlScalar

EIGHT_BITS = "dtype: {}: a model computes with 16 bits or more, and caches of 8 bits are a side's"
SETTLE = "compare with your engine (kvplan from-cache DUMP.json), then take the sentence out of `doubts`"
EIGHT_HELP = "write what the checkpoint says, bf16 for example, and give sides kv_dtype=fp8"


def check(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> list[Diagnostic]:
    """All errors of these files, sorted; empty if there are none. The files may refer to each other."""
    library, errors = load_good(paths, layouts)
    return ordered([*errors, *(error for path in paths for error in errors_of(library, path))])


def doubts(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> list[Diagnostic]:
    """All warnings (W…) about these files, sorted."""
    library, _ = load_good(paths, layouts)
    return ordered(doubt for path in paths for doubt in _doubts(library, path))


def layers_of(paths: Sequence[Path], layouts: Sequence[Path] = ()) -> list[str]:
    """A line for each model of these files: `NAME: layers: 32 (all store attention)`."""
    library, _ = load_good(paths, layouts)
    models = (model for path in paths for model in library.models_of(path))
    return [f"{model.name}: layers: {stored_layers(model)}" for model in models]


def errors_of(library: Library, path: Path) -> list[Diagnostic]:
    """All errors of one file."""
    try:
        document = open_document(path)
    except DslError as error:
        return list(error.diagnostics)
    sink = Sink([*document.errors])
    file_type, name = identify(sink, document)
    if file_type and name:
        guarded(sink, partial(library.parse, sink, file_type, document, name))
    return sink.errors or own_errors(library, path) or _tile_errors(library, path)


def own_errors(library: Library, path: Path) -> list[Diagnostic]:
    """The errors of a file that is read well, in what it says to rules of others."""
    return _word_errors(library, path) or _match_errors(library, path) or _name_errors(library, path)


def _word_errors(library: Library, path: Path) -> list[Diagnostic]:
    """The errors for words of models in a file that come after the words that depend on them (E007)."""
    sink = Sink()
    for model in (model for model in library.models_of(path) if model.config.words):
        for name in library.readings:
            guarded(sink, partial(over, library.readings[name], model.config))
    return list(dict.fromkeys(sink.errors))


def _match_errors(library: Library, path: Path) -> list[Diagnostic]:
    """The errors for models in a file whose `match` has no key that decides, so that it is never found (K002)."""
    sink = Sink()
    for match in (model.match for model in library.models_of(path) if model.match):
        for keys in (keys for reading in library.readings.values() if (keys := reading.match)):
            if not {*keys} & {*match}:
                key = next(iter(match))
                message = f"match has neither {listed(keys, 'nor')}, by which configurations are found"
                sink.add("K002", message, key.span, help=nearest(key, keys))
    return list(dict.fromkeys(sink.errors))


def _name_errors(library: Library, path: Path) -> list[Diagnostic]:
    """The errors for names in rules of a file that nothing defines (E005, K001, K008)."""
    sink, kinds = Sink(), {kind.name: kind for kind in library.readable_kinds}
    reading = guarded(Sink(), lambda: library.general)
    if reading is None:
        return []
    for model in library.models_of(path):
        check_own(sink, reading, kinds, model)
    for name in _named_in(library, "kind", path):
        check_kind(sink, reading, library.kind(name))
    for name in _named_in(library, "config", path):
        every = (guarded(Sink(), partial(library.model, model)) for model in library.models)
        check_words(sink, library.readings[name], kinds, [model for model in every if model])
    return list(dict.fromkeys(sink.errors))


def _named_in(library: Library, file_type: str, path: Path) -> list[str]:
    """The names of one type that a file describes."""
    return [name for name, file in library.paths[file_type].items() if file.resolve() == path.resolve()]


def _tile_errors(library: Library, path: Path) -> list[Diagnostic]:
    """The errors for caches in a file that no engine can store, because tiles do not divide an axis (C104)."""
    caches = [(model, cache) for model in library.models_of(path) for cache in model.caches.values()]
    engines = library.readable_engines if caches else []
    found = (tile_error(library.kind(cache.kind), cache, model.values, engines) for model, cache in caches)
    return list(dict.fromkeys(error for error in found if error))


def _doubts(library: Library, path: Path) -> list[Diagnostic]:
    """The warnings (W…) about the models or the kind of a file without errors."""
    models = library.models_of(path)
    engines = library.readable_engines if models else []
    told = (doubt for model in models for doubt in model_doubts(library, model, engines))
    return [*told, *_key_doubts(library, path)]


def model_doubts(library: Library, model: Model, engines: Sequence[Engine]) -> list[Diagnostic]:
    """The warnings about a model: the doubts that its file keeps (W001), doubts of kinds (W002), failed expectations of
    engines (W003), what layers store (W004 to W006), and words that rules read (W008).
    """
    kept = [Diagnostic("W001", text, _of_doubts(model), (), SETTLE) for text in model.doubts]
    kinds = {cache.kind: library.kind(cache.kind) for cache in model.caches.values()}
    numbers = [
        doubt for cache in model.caches.values() for doubt in doubts_of(kinds[cache.kind], cache, model.values, engines)
    ]
    return [
        *kept,
        *_dtype_doubts(model),
        *numbers,
        *layer_warnings(model, kinds),
        *_lacking_words(model, kinds, engines),
    ]


def _dtype_doubts(model: Model) -> list[Diagnostic]:
    """The warning about a model of 8 bits (W002)."""
    word = model.word("dtype")
    if not word or dtypes.SIZES[model.dtype] > 1:
        return []
    return [Diagnostic("W002", EIGHT_BITS.format(model.dtype), word.span, (), EIGHT_HELP)]


def _key_doubts(library: Library, path: Path) -> list[Diagnostic]:
    """The warnings about keys of configurations that rules in a file list (W007)."""
    of_models = [(model.config.no_effect, model.config.caches) for model in library.models_of(path)]
    kinds = (guarded(Sink(), partial(library.kind, name)) for name in _named_in(library, "kind", path))
    rules = [each for each in (*of_models, *(((), kind.match) for kind in kinds if kind)) if any(each)]
    reading = guarded(Sink(), lambda: library.general) if rules else None
    if reading is None:
        return []
    return [doubt for each in rules for doubt in listed_slips(*each, reading, library.readable_kinds)]


def _of_doubts(model: Model) -> SourceSpan:
    """The place of the key `doubts`: the texts below it are the messages."""
    return next(key.span for key in model.given if key == "doubts" and isinstance(key, YamlScalar))


def _lacking_words(model: Model, kinds: Mapping[str, Kind], engines: Sequence[Engine]) -> Iterator[Diagnostic]:
    """Warnings (W008) about words that the model lacks, and that rules of its kinds, or of engines for them, read."""
    for word in (word for word in WORDS if word not in model.words):
        caches = [name for name, cache in model.caches.items() if word in _read(cache, kinds[cache.kind], engines)]
        if caches:
            text = f"the model lacks '{word}', which rules about {listed(caches, 'and')} read: {VARIANT.key(word).doc}"
            yield Diagnostic("W008", text, model.span, (), f"add {word}: …")


def _read(cache: Cache, kind: Kind, engines: Sequence[Engine]) -> frozenset[str]:
    """The names that a kind's doubts read, and engines' rules that store something else instead."""
    doubts = (doubt.when.names for doubt in kind.doubts)
    instead = (rule.read for engine in engines for rule in engine.instead.get(cache.kind, ()))
    return frozenset[str]().union(*doubts, *instead) - kind.params.keys()
