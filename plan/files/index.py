"""The index of a plans directory: the file of each pair's plan, pinned by the SHA-256 of its bytes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvplan.plan.errors import PlanIndexError

if TYPE_CHECKING:
    from kvplan.plan.types import Plan

FORMAT = 1
NAME = "index.json"
LARGEST = 64 << 20
# The remedy if a plan and its index disagree.
AGAIN = "compile it again (`kvplan compile DEPLOYMENT -o DIRECTORY`)"
REMOVE = f": remove it, and {AGAIN}"
LONGEST = 4096

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One plan. `path` is relative to the directory, with `/`; a side is (digest, readable key).

    `options` are all compile options; `unusual` names those that differ from the compiler's defaults.
    """

    path: str
    sha256: str
    plan: str
    model: str
    model_digest: str
    prefill: tuple[str, str]
    decode: tuple[str, str]
    options: tuple[tuple[str, str], ...]
    unusual: tuple[str, ...]


def pinned(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    return sha256(data).hexdigest()


def entry(path: str, data: bytes, plan: Plan, unusual: Iterable[str] = ()) -> IndexEntry:
    """Return the entry of a plan whose file at `path` has the bytes `data`."""
    prefill, decode = ((side.digest, side.key) for side in (plan.prefill, plan.decode))
    options, names = tuple(sorted(plan.options)), tuple(sorted(unusual))
    return IndexEntry(path, pinned(data), plan.digest, plan.model, plan.model_digest, prefill, decode, options, names)


def render(entries: Iterable[IndexEntry]) -> str:
    """Return the text of an index, which does not depend on the order of the entries."""
    plans = [_written(one) for one in sorted(entries, key=lambda one: one.path)]
    return json.dumps({"format": FORMAT, "plans": plans}, indent=2, sort_keys=True) + "\n"


def parse(data: bytes, name: str) -> tuple[IndexEntry, ...]:
    """Parse the entries of an index's bytes. Raises PlanIndexError, which begins with `name`, for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PlanIndexError(f"{name} is no JSON, {_remedy(error)}") from error
    version = found.get("format") if isinstance(found, dict) else None
    if type(version) is int and version > FORMAT:
        raise PlanIndexError(f"{name} has format {version}, this kvplan reads {FORMAT}: use the kvplan that wrote it")
    try:
        entries = _entries(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PlanIndexError(f"{name} is no index of format {FORMAT}, {_remedy(error)}") from error
    return entries


def contents(folder: Path, path: str) -> tuple[Stamp, bytes] | None:
    """Return a file's stamp, which shows changes, and its bytes; None if there is no such file.

    Raises PlanIndexError if it lies outside of `folder`, is no plain file, too large, or unreadable.
    """
    try:
        whole = (folder / path).resolve(strict=True)
        if not whole.is_relative_to(folder.resolve()):
            raise PlanIndexError(f"{folder / path} leads out of the directory, to {whole}: put a copy there instead")
        with open(os.open(whole, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
                raise PlanIndexError(f"{folder / path} is no plain file of at most {LARGEST} bytes{REMOVE}")
            return stamp(about), file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:
        raise PlanIndexError(f"{folder / path} cannot be read: {error}") from error


def stamp(about: os.stat_result) -> Stamp:
    """Return values that change when a file is replaced or written."""
    return about.st_mtime_ns, about.st_size, about.st_ino, about.st_dev


def _remedy(error: Exception) -> str:
    return f"{type(error).__name__}: {error}{REMOVE}"


def _written(one: IndexEntry) -> dict[str, object]:
    sides = {
        name: {"digest": side[0], "key": side[1]} for name, side in (("prefill", one.prefill), ("decode", one.decode))
    }
    plain = {name: getattr(one, name) for name in ("path", "sha256", "plan", "model", "model_digest")}
    return {**plain, **sides, "options": dict(one.options), "unusual": list(one.unusual)}


def _entries(found: object) -> tuple[IndexEntry, ...]:
    format, plans = _fields(found, "format", "plans")
    if type(format) is not int or format != FORMAT or not isinstance(plans, list):
        raise ValueError(f"format is {format!r}, plans a {type(plans).__name__}")
    entries = tuple(map(_entry, plans))
    if len({one.path for one in entries}) != len(entries):
        raise ValueError("a path stands twice")
    return entries


def _entry(found: object) -> IndexEntry:
    path, pin, plan, model, model_digest, prefill, decode, options, unusual = _fields(
        found, "path", "sha256", "plan", "model", "model_digest", "prefill", "decode", "options", "unusual"
    )
    chosen = tuple(sorted((_text(name), _text(value)) for name, value in _mapping(options).items()))
    if not isinstance(unusual, list) or not {*map(_text, unusual)} <= {name for name, _ in chosen}:
        raise ValueError("'unusual' is no list of names of options")
    pin, plan, model, model_digest = map(_text, (pin, plan, model, model_digest))
    names = tuple(sorted(unusual))
    return IndexEntry(
        _inside(_text(path)), pin, plan, model, model_digest, _side(prefill), _side(decode), chosen, names
    )


def _side(found: object) -> tuple[str, str]:
    digest, key = map(_text, _fields(found, "digest", "key"))
    return digest, key


def _fields(found: object, *names: str) -> list[object]:
    """Return the values of exactly these fields."""
    if set(_mapping(found)) != set(names):
        raise ValueError(f"fields {sorted(_mapping(found))}, there must be {sorted(names)}")
    return [_mapping(found)[name] for name in names]


def _mapping(found: object) -> dict[str, object]:
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__} where an object must be")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str) or not found or len(found) > LONGEST or not (found.isascii() and found.isprintable()):
        raise ValueError(f"{ascii(found)[:80]} where a printable text must be")
    return found


def _inside(path: str) -> str:
    """Return a plan's path if it stays in the directory as written. Raises ValueError."""
    parts = PurePosixPath(path).parts
    if path != "/".join(parts) or "\\" in path or not path.endswith(".py") or {"..", "/"} & set(parts):
        raise ValueError(f"path {path!r} is none of a plan in the directory")
    return path
