"""Compare `kvplan new` for a configuration with an engine's own dumps of it, by `kvplan from-cache`.

A verdict is about all dumps of a configuration together: orders, blocks, tp, pp, element types.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conformance import caches
from tests.conformance.corpus import Configuration, Facts, Release, facts
from tests.conformance.counted_keys import keys_that_count
from tests.conformance.pools import as_served, differences
from tests.conformance.pools import side_text as pool_side

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.dumps.compare import compare, side_text
from kvplan.compiler.dumps.dump import Dump, read_dump
from kvplan.compiler.errors import CompileError
from kvplan.dsl.configs.new_model import NewModel, described
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

RIGHT, UNJUDGED, WARNED, UNJUDGED_WARNED = "right", "not compared", "right, warned", "not compared, warned"
REFUSED, WRONG_WARNED, WRONG = "refused", "wrong, warned", "WRONG"
# From what users want to what they fear.
WORDS = (RIGHT, UNJUDGED, WARNED, UNJUDGED_WARNED, REFUSED, WRONG_WARNED, WRONG)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word` is one of WORDS. `equal` of `of` dumps agree with the layout, which refuses the side of `refused` others.

    `why` names the first warning, refusal or difference, and the dump that it is about. `kinds` are those of the
    layout's caches, `keys` those of the configuration that its class is not known to have and that change the layout.
    """

    key: str
    word: str
    equal: int = 0
    refused: int = 0
    of: int = 0
    why: str = ""
    kinds: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    """The model that `kvplan new` wrote for a configuration, and the keys that the comparison tests, if asked for."""

    new: NewModel
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of comparing one dump with a layout: both fields are empty if they agree."""

    refused: str = ""
    differs: str = ""


def judged_release(
    known: Mapping[str, Configuration], release: Release, words: Sequence[str] = (), keys: bool = False
) -> list[Verdict]:
    """The verdicts of a release, all or those of configurations whose keys have one of the words."""
    wanted = [f for f in facts(release).values() if not words or any(w.lower() in f.key.lower() for w in words)]
    return list(judged(load((), ()), ((known[found.key], found) for found in wanted), release.engine, keys))


def judged(
    library: Library, every: Iterable[tuple[Configuration, Facts]], engine: str = "vllm", keys: bool = False
) -> Iterator[Verdict]:
    """The verdict of each configuration, with its `keys` if asked for, which doubles the time.

    All models that `kvplan new` writes are files of one library.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [
            (asked, _new(library, _served(found, asked), folder / f"case-{n}.yaml", keys and _compared(asked) > 0))
            for n, (found, asked) in enumerate(every)
        ]
        texts = {folder / f"{one.new.name}.yaml": one.new.text for _, one in cases if isinstance(one, _Written)}
        for path, text in texts.items():
            path.write_text(text)
        known = load([*texts], ())
        for asked, one in cases:
            yield _verdict(known, asked, one, engine)


def _served(found: Configuration, asked: Facts) -> Configuration:
    """The configuration as the engine served it."""
    return replace(found, config=as_served(found.config, asked.pools[0])) if asked.pools else found


def _compared(asked: Facts) -> int:
    """How many facts a layout can be compared with."""
    return len(asked.dumps) + len(asked.pools) + bool(asked.layers)


def _new(library: Library, configuration: Configuration, out: Path, keys: bool) -> _Written | str:
    """Describe a configuration like `kvplan new`, or return why it refuses."""
    place = SourceSpan("config.json", 1, 1, 1)
    try:
        config = parse_foreign(json.dumps(configuration.config).encode(), place.path)
        new = described(library, config, place, out)
        return _Written(new, keys_that_count(library, config, new.found.counting, place) if keys else ())
    except DslError as error:
        first = error.diagnostics[0]
        return f"{first.code} {'; '.join((first.message, *first.notes))}"


def _verdict(library: Library, asked: Facts, written: _Written | str, engine: str) -> Verdict:
    of = _compared(asked)
    if isinstance(written, str):
        return Verdict(asked.key, REFUSED, of=of, why=written)
    new, keys = written.new, written.keys
    warning = f"warns: {new.doubts[0]}" if new.doubts else ""
    kinds = tuple(sorted({cache.kind for cache in library.model(new.name).caches.values()}))
    if not of:
        word = UNJUDGED_WARNED if warning else UNJUDGED
        return Verdict(asked.key, word, why=warning or asked.none, kinds=kinds, keys=keys)
    answers = [_answer(library, new.name, dump, compiled=not n) for n, dump in enumerate(asked.dumps)]
    answers += [_pool_answer(library, new.name, engine, pool) for pool in asked.pools]
    answers += [_cache_answer(library, new.name, asked.layers)] if asked.layers else []
    differs, refused = ([a for a in (getattr(x, w) for x in answers) if a] for w in ("differs", "refused"))
    word = _word(bool(warning), bool(differs), bool(refused))
    why = next(iter([*differs, *refused, warning]))
    return Verdict(asked.key, word, of - len(differs) - len(refused), len(refused), of, why, kinds, keys)


def _word(warned: bool, differs: bool, refused: bool) -> str:
    if differs:
        return WRONG_WARNED if warned else WRONG
    return REFUSED if refused else WARNED if warned else RIGHT


def _answer(library: Library, model: str, printed: Mapping[str, Any], compiled: bool) -> _Answer:
    """One dump, compared; `compiled` if a plan from its side to itself is asked for, too."""
    dump = read_dump(json.dumps(printed))
    where = at(dump)
    try:
        side = side_text(dump, library.engine(dump.engine), "")
        found = compare(dump, bind(library, library.model(model), side))
        _ = compile_pair(library, model, side, side) if compiled else None
    except (CompileError, DslError) as error:
        return _Answer(refused=f"{where}: refused, {' '.join(str(error).split())}")
    if not found:
        return _Answer()
    first = found[0]
    what = f"{first.what} of {first.cache or 'no cache'}, {first.layers[0]}"
    return _Answer(differs=f"{where}: {what}: engine {first.dump}, layout {first.layout}")


def _pool_answer(library: Library, model: str, engine: str, pool: Mapping[str, Any]) -> _Answer:
    """One pool, compared, and a plan from its side to itself."""
    side = pool_side(engine, pool)
    try:
        found = next(differences(library, model, engine, pool), "")
        _ = compile_pair(library, model, side, side)
    except (CompileError, DslError) as error:
        return _Answer(refused=f"{side}: refused, {' '.join(str(error).split())}")
    return _Answer(differs=f"{side}: {found}" if found else "")


def _cache_answer(library: Library, model: str, layers: Sequence[Mapping[str, Any]]) -> _Answer:
    """Compare a layout with the layers of a cache."""
    try:
        return _Answer(differs=next(caches.differences(library, model, layers), ""))
    except (CompileError, DslError) as error:
        return _Answer(refused=f"refused, {' '.join(str(error).split())}")


def at(dump: Dump) -> str:
    """Which worker of which side a dump is from."""
    mesh = [f"{axis}={size}" for axis, size in dump.mesh.items() if size > 1]
    rank = [f"{axis} {number}" for axis, number in dump.rank.items() if number]
    options = (f"{key}={value}" for key, value in dump.side.items() if key != "conv")
    return ",".join([*mesh, *options]) + "".join(f" at {one}" for one in rank)
