"""Find models by name or by the path of a layout file, as a user writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvplan.dsl.check import own_errors
from kvplan.dsl.files import deployment
from kvplan.dsl.files.folders import folder_files
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.deployment import Deployment
from kvplan.dsl.text.diagnostics import Diagnostic, DslError
from kvplan.dsl.text.source import inline

# Advice for files that are no layout files, by their suffix.
INSTEAD = {
    ".json": "`kvplan new` writes a model file from a checkpoint's config.json, and `kvplan doctor` reads it",
    ".py": "a plan is compiled already: `kvplan explain`, `kvplan show` and `kvplan diff` take one",
}


def library(model: str, layouts: Sequence[Path] = ()) -> tuple[Library, str]:
    """The layout files, with the file `model` if it is a path, and the model's name. Raises DslError."""
    found, names = libraries([model], layouts)
    only = names[0] if len(names) == 1 else Path(model).stem
    if len(names) > 1:
        found.model(only)
    if is_path(model) and only not in found.models:
        raise _no_model(found, model, only)
    return found, only


def _no_model(found: Library, path: str, name: str) -> DslError:
    """The error for a file that does not describe a model (K005)."""
    file_type = next(file_type for file_type, paths in found.paths.items() if name in paths)
    message = f"{path} is {'an' if file_type[0] in 'aeiou' else 'a'} {file_type}, not a model"
    help = "give a model's name, or the path of its file"
    return DslError(Diagnostic("K005", message, inline(path, "<argument>"), (), help))


def libraries(models: Sequence[str], layouts: Sequence[Path] = ()) -> tuple[Library, list[str]]:
    """The layout files, with the files that `models` name by path, and the names of the models.

    A path may also name a kind or an engine, which is loaded but is no model, or a family, which stands for all its
    models. Raises DslError.
    """
    paths = [_file(model) for model in models if is_path(model)]
    found = load(paths, layouts)
    if errors := [error for path in paths if _has_rules(found, path) for error in own_errors(found, path)]:
        raise DslError(*errors)
    names = [name for model in models for name in names_of(found, model)]
    for name in names:
        if name not in found.models and _is_meant(Path(name)):
            _file(name)
    others = {path.stem for path in paths} - set(found.models)
    return found, [name for name in names if name not in others]


def _has_rules(library: Library, path: Path) -> bool:
    """Whether a model in a file has rules for configurations: only these are checked against those of others."""
    return any("match" in model.given for model in library.models_of(path))


def names_of(library: Library, model: str) -> tuple[str, ...]:
    """The name itself, or for the path of a file the names of the models in it."""
    if not is_path(model):
        return (model,)
    return library.family(Path(model).stem) or (Path(model).stem,)


def is_path(word: str) -> bool:
    """Whether a word on the command line is the path of a file, and not a name."""
    return deployment.is_path(word) or Path(word).suffix in INSTEAD


def model_files(one: Deployment) -> list[Path]:
    """The files that a deployment names by path, in order."""
    return [Path(model) for spec in one.plans for model in spec.models if is_path(model)]


def is_layout_file(word: str) -> bool:
    """Whether a word on the command line is the path of an existing file that may be a layout file."""
    return is_path(word) and Path(word).is_file() and Path(word).suffix not in INSTEAD


def _is_meant(path: Path) -> bool:
    """Whether an unknown name is meant as a path: there is such a file, or such a folder with layout files."""
    return path.is_file() or (path.is_dir() and bool(folder_files(path).layouts))


def _file(word: str) -> Path:
    """The path of an existing layout file. Raises DslError (Y012)."""
    if is_layout_file(word):
        return Path(word)
    other = "name a file of it" if Path(word).is_dir() else INSTEAD.get(Path(word).suffix, "")
    message = f"'{word}' is no layout file" if Path(word).exists() else f"no such file '{word}'"
    help = other or "give the path of a model file, FILE.yaml, or a name of `kvplan list`"
    raise DslError(Diagnostic("Y012", message, inline(word, "<argument>"), (), help))
