"""Plans as a user names them: a file, a directory, or either of them at a git revision."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import tokenize
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path

from kvplan.compiler.cost.cost import PlanCost
from kvplan.compiler.emit.header import names_sides, written, written_facts
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import close
from kvplan.deploy.nearest import meant, nearest_path
from kvplan.deploy.revisions import MARKER, as_text, content, git, listed, plan_files
from kvplan.dsl.files import folders
from kvplan.dsl.text.source import shown
from kvplan.plan.errors import PlanFormatError, PlanIndexError
from kvplan.plan.files import index
from kvplan.plan.files.loader import parse
from kvplan.plan.types import Plan

GIT = "git:"
SUFFIX = ".py"
SUFFIXES = (SUFFIX, index.NAME)
HELP = (
    "give a plan, a directory of plans, or a deployment file; plans of a revision as git:REVISION:PATH, or as "
    "git:REVISION if the other one has their path; paths are relative to the current folder"
)
NOT_COMPILED = (
    "a deployment file of a revision is not compiled: give the directory of its plans, git:REVISION:DIRECTORY"
)
# A receiver of sentences about plans of a revision that engines refuse.
Warn = Callable[[str], object]
# The advice about a past revision, which nobody can correct.
OTHER = "compare with another revision (the action's `base`), or with the plans on disk"
# The most plans of a directory that an error names.
FEW = 5


def read(text: str, like: str | None = None, warn: Warn | None = None) -> Mapping[str, str]:
    """Return texts of plans by path relative to the named place; a single file has the path ''.

    `text` is a path, or `git:REVISION:PATH`, or `git:REVISION`, which stands for `like` at that revision; `git:` may
    be left out if no such path exists. A directory has the plans that its index lists, or the index of a directory that
    it lies in; all if there is no index. A file that an index lists has the text that the index pins.

    Nobody can correct a past revision. If `warn` is given, a plan of a revision that engines refuse is read if it can
    be parsed, and `warn` is called with the reason.

    Raises BadInput, also if there are no plans, PlanIndexError and OSError.
    """
    if text.startswith(GIT):
        return _revision(text, like, warn)
    path = Path(text)
    if path.is_file():
        _check_is_no_index(path, text)
        data = path.read_bytes()
        return {"": _listed(text, data, _pin_of(path, _content))}
    if path.is_dir():
        files = {name: (path / name).read_bytes() for name in _names(path)}
        return _of_directory(files, text, _index_of(path, text, _content))
    return _revision(text, like, warn)


def check_one(text: str) -> None:
    """Raises BadInput (S021) for the path of a missing plan, and for a directory of plans."""
    if text.endswith(SUFFIX) and ":" not in text and not Path(text).is_file():
        help = nearest_path(text) or "give the path of a plan, or a model's name"
        raise BadInput("S021", f"there is no plan {text!r}", help)
    if Path(text).is_dir() and (names := plan_paths(Path(text))):
        raise several(text, names, "one plan is needed")


def several(folder: str, names: Sequence[str], why: str) -> BadInput:
    """Return the error for plans where one must be named (S021)."""
    some = ", ".join(f"{folder.rstrip('/')}/{name}" for name in names[:FEW])
    more = f" or one of {len(names) - FEW} more" if len(names) > FEW else ""
    return BadInput("S021", f"{folder!r} is a directory of plans, and {why}", f"name it: {some}{more}")


def revision(text: str) -> str:
    """Return the git revision that `read` would read, empty if it would read local files."""
    if not text.startswith(GIT) and Path(text).exists():
        return ""
    return text.removeprefix(GIT).partition(":")[0]


def folder_of(plan: Path) -> Path:
    """Return the plans directory of a plan: the closest one with an index, or the one that has the file."""
    return next((folder for folder in plan.parents if (folder / index.NAME).is_file()), plan.parent)


def in_one_index(old: str, new: str) -> bool:
    """Whether both are plans on disk that one index lists, so that engines know both."""
    files = [Path(text) for text in (old, new)]
    listed = all(file.is_file() and _pin_of(file, _content) is not None for file in files)
    return listed and folder_of(files[0]).resolve() == folder_of(files[1]).resolve()


def plan_paths(folder: Path) -> list[str]:
    """Return the plans under a directory, relative to it, recognised by their headers. Raises OSError if a directory
    or a file cannot be read."""
    return [name for name in _names(folder) if _may_be_plan(name) and is_marked((folder / name).read_bytes())]


def is_marked(data: bytes) -> bool:
    """Whether a file has the header of a plan."""
    return any(line.startswith(MARKER) for line in data.splitlines())


def _may_be_plan(name: str) -> bool:
    return name.endswith(SUFFIX) and Path(name).name != "__init__.py"


def _names(folder: Path) -> list[str]:
    """Return files under a directory that may be plans, and its index. Raises OSError if a directory cannot be read."""

    def unreadable(error: OSError) -> None:
        raise error

    every = (Path(at, name) for at, _, names in os.walk(folder, onerror=unreadable) for name in names)
    found = sorted(file.relative_to(folder).as_posix() for file in every)
    return [name for name in found if name.endswith(SUFFIXES)]


def _index_of(folder: Path, name: str, content: Callable[[Path], bytes | None]) -> Mapping[str, str] | None:
    """Return the pins of the plans in a folder, by path in it, from the closest index in it or above; None without one.

    `content` reads a file, None without it; errors name the folder `name`.

    Raises BadInput if the index lists nothing there, PlanIndexError.
    """
    here = folder.resolve()
    for above in (here, *here.parents):
        data = content(above / index.NAME)
        if data is not None and (entries := _entries_of(data, name, own=above == here)) is not None:
            paths = {above / one.path: one.sha256 for one in entries}
            found = {path.relative_to(here).as_posix(): pin for path, pin in paths.items() if path.is_relative_to(here)}
            if not found and above != here:
                raise BadInput("S021", f"{shown(above / index.NAME)} lists no plan in {str(folder)!r}", HELP)
            return found
    return None


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _pin_of(file: Path, content: Callable[[Path], bytes | None]) -> str | None:
    """Return the pin of one plan in the closest index above it; None if that does not list it, or there is none."""
    here = file.parent.resolve() / file.name
    for above in here.parents:
        data = content(above / index.NAME)
        entries = _entries_of(data, str(above), own=False) if data is not None else None
        if entries is not None:
            return next((one.sha256 for one in entries if above / one.path == here), None)
    return None


def _entries_of(data: bytes, folder: str, own: bool) -> tuple[index.IndexEntry, ...] | None:
    """Return the entries of a folder's `own` index, or of one above it; None if the file above is something else."""
    try:
        return index.parse(data, f"{folder}/{index.NAME}")
    except PlanIndexError:
        if own:
            raise
        return None


def _of_directory(
    files: Mapping[str, bytes], name: str, pins: Mapping[str, str] | None, warn: Warn | None = None
) -> Mapping[str, str]:
    """Return the plans among the files of a directory: those that its index lists, or all if there is no index.

    Engines load plans by the index, so a plan that it does not list has no effect. Raises BadInput, PlanIndexError.
    """
    if pins is not None:
        return {path: _listed(f"{name}/{path}", files.get(path), pin, warn) for path, pin in pins.items()}
    every = {path: data for path, data in files.items() if _may_be_plan(path) and is_marked(data)}
    if not every:
        raise BadInput("S021", f"the directory {name!r} has no plans", HELP)
    return {path: as_text(data) for path, data in every.items()}


def _listed(name: str, data: bytes | None, pin: str | None, warn: Warn | None = None) -> str:
    """Return the text of a plan, which an index lists with its pin if there is one.

    Raises PlanIndexError for a plan that engines would refuse, or calls `warn` instead if the plan can be parsed.
    """
    said = f"{name} is missing, but {index.NAME} lists it" if data is None else ""
    if data is not None and pin is not None and index.pinned(data) != pin:
        said = f"{name}: its text differs from the sha256 in {index.NAME}: it was edited, or {index.NAME} is old"
    text = as_text(data or b"")
    if not said:
        return text
    if warn is None or not _is_readable(text, name):
        raise PlanIndexError(f"{said}; {index.AGAIN if warn is None else OTHER}")
    warn(f"{said}; it is compared as it is, and engines refuse it")
    return text


def _is_readable(text: str, name: str) -> bool:
    """Whether a text is a plan, maybe of another format."""
    try:
        return bool(parsed(text, name))
    except PlanFormatError as error:
        return error.format is not None


def _check_is_no_index(path: Path, named: str) -> None:
    if path.name == index.NAME:
        raise BadInput("S021", f"{named!r} is the index of plans", f"give its directory, {path.parent.as_posix()}")


def place(text: str, like: str | None) -> tuple[str, str]:
    """Return the revision and the path of plans that `read` would read; no revision for local files."""
    named = revision(text)
    _, colon, path = text.removeprefix(GIT).partition(":") if named else ("", ":", text)
    return named, path if colon else _path_of(like or "")


def _revision(text: str, like: str | None, warn: Warn | None) -> Mapping[str, str]:
    colon = ":" in text.removeprefix(GIT)
    revision, path = place(text, like)
    if not colon and not path and like:
        help = f"give one of them its path, for example {GIT}{revision}:plans"
        raise BadInput("S021", f"neither {like!r} nor {text!r} has the path of plans", help)
    if not path or not revision or revision.startswith("-"):
        raise BadInput("S021", f"there is no plan or directory {text!r}", HELP)
    _check_is_no_index(Path(path), text)
    try:
        found = listed(revision, path, SUFFIXES)
    except (subprocess.CalledProcessError, FileNotFoundError):
        only = bool(colon) or text.startswith(GIT)
        what = "git revision" if only else "plan, directory or git revision"
        help = ("" if only else nearest_path(text)) or _nearest_revision(text, revision) or HELP
        raise BadInput("S021", f"there is no {what} {revision!r} here", help) from None
    if not found:
        raise _lacks(revision, path)
    if "" in found:
        pin = _pin_of(Path(path), lambda file: content(revision, file))
        return {"": _listed(text, found[""].encode(), pin, warn)}
    files = {name: text.encode() for name, text in found.items()}
    has_plans = any(map(is_marked, files.values()))
    pins = _pins_at(revision, path, warn if has_plans else None)
    if pins is None and not has_plans:
        raise _lacks(revision, path)
    return _of_directory(files, f"{revision}:{path}", pins, warn)


def _pins_at(revision: str, path: str, warn: Warn | None) -> Mapping[str, str] | None:
    """Return what `_index_of` returns at a revision. For a damaged index call `warn`, if given, and return None."""
    try:
        return _index_of(Path(path), f"{revision}:{path}", lambda file: content(revision, file))
    except PlanIndexError as error:
        said = str(error).removesuffix(index.REMOVE)
        # Without that advice it is the index of another kvplan.
        if warn is None or said == str(error):
            raise PlanIndexError(f"{said}: {OTHER}") from None
        warn(f"{said}: all plans beside it are compared, and engines refuse them")
        return None


def _lacks(revision: str, path: str) -> BadInput:
    """Return the error for a path without plans at a revision (S021)."""
    help = NOT_COMPILED if Path(path).suffix in folders.SUFFIXES else ""
    message = f"git revision {revision!r} has no plans at {path!r} of the current folder"
    near = f"{_nearest_at(revision, path)} {_moved(revision, path)}".strip()
    return BadInput("S021", message, help or near or HELP)


def _path_of(name: str) -> str:
    """Return the path of plans that a name has, empty for a revision without one."""
    named = revision(name)
    _, colon, path = name.removeprefix(GIT).partition(":")
    # A word that is neither there nor known to git is a missing path.
    if named and (colon or name.startswith(GIT) or _git("rev-parse", "--verify", "--quiet", named)):
        return path
    return name


def _nearest_revision(text: str, revision: str) -> str:
    """Return `did you mean 'git:main'?`, from the branches and tags here; empty if none is near, as for `HEAD~3`."""
    if {*"~^@"} & {*revision}:
        return ""
    names = _git("for-each-ref", "--format=%(refname:short)").splitlines()
    near = close(revision, [name for name in (*names, "HEAD", GIT.rstrip(":")) if name != revision])
    return meant(text.replace(revision, near, 1)) if near else ""


def _nearest_at(revision: str, path: str) -> str:
    """Return `did you mean 'git:HEAD:plans'?`, from the neighbours of `path` at a revision; empty if none is near."""
    beside = _git("ls-tree", "-z", "--name-only", revision, "--", f"{Path(path).parent}/").split("\0")
    near = close(Path(path).name, [name for one in beside if (name := Path(one).name) != Path(path).name])
    return meant(f"{GIT}{revision}:{Path(path).with_name(near)}") if near else ""


def _moved(revision: str, path: str) -> str:
    """Return which plans a revision has at other paths; empty if it has none."""
    try:
        found = sorted(map(os.path.relpath, {*plan_files(revision, Path(path)).values()}))
    except (subprocess.CalledProcessError, OSError):
        return ""
    names = ", ".join(f"{GIT}{revision}:{name}" for name in found[:FEW])
    may_be_written = not Path(path).exists() and not Path(path).suffix
    unwritten = f"; if not, write plans first: kvplan compile DEPLOYMENT -o {path}" if may_be_written else ""
    return f"it has plans elsewhere: {names}; if they moved, compare with those{unwritten}" if found else ""


def _git(*words: str) -> str:
    """Return git's output here, empty if it fails."""
    try:
        return git(Path(), *words)
    except (subprocess.CalledProcessError, OSError):
        return ""


def parsed(text: str, name: str) -> Plan:
    """Parse the plan of a text; errors begin with `name`. Raises PlanFormatError."""
    try:
        plan = parse(text, name)
    except PlanFormatError as error:
        raise error if name in str(error) else PlanFormatError(f"{name}: {error}", error.format) from None
    if not names_sides(plan, _header(text)):
        why = f"its header names other sides than {plan.prefill.key} -> {plan.decode.key}: it was edited"
        raise PlanFormatError(f"{name}: {why}; compile the plan again")
    return plan


def costed(text: str, name: str) -> tuple[Plan, PlanCost]:
    """Return the plan of a text, and its costs with the proof and notes in its header. Raises PlanFormatError."""
    plan = parsed(text, name)
    return plan, written_facts(plan, _header(text))


def fields_in(text: str, *names: str) -> list[str]:
    """Return the texts of the fields with these names in the header of a plan's text."""
    return written(_header(text), *names)


def _header(text: str) -> str:
    """Return a plan's docstring. The code after it is not parsed again: that would take half as long as the plan."""
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    first = next(one for one in tokens if one.type not in (tokenize.COMMENT, tokenize.NL))
    return inspect.cleandoc(ast.literal_eval(first.string)) if first.type == tokenize.STRING else ""
