"""Names of pairs, which are their file names: a pair of a deployment keeps its name when its options change.

It is MODEL/NAME.py if the deployment gives the name, otherwise MODEL/p_SIDE__d_SIDE.py with engine and mesh of both
sides, and of the other options only those in which pairs of one model, engines and meshes differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import PurePosixPath

from kvplan.compiler.api import LONGEST, Compiled, identifier, unusual, words
from kvplan.compiler.bound import BoundSide
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.types import Plan

# The text of a pair: model, both sides' keys, compile options.
PairText = tuple[str, str, str, tuple[tuple[str, str], ...]]


def in_deployment(pairs: Iterable[tuple[str, Compiled]]) -> dict[str, Compiled]:
    """Return the pairs of a deployment by path, each given with its own name, empty if it has none."""
    alike: dict[str, dict[PairText, Compiled]] = {}
    for name, pair in pairs:
        alike.setdefault(path_of(pair.plan.model, identifier(name) or _stem(pair)), {})[asked(pair.plan)] = pair
    return {path: pair for base, same in alike.items() for path, pair in _distinguished(base, [*same.values()])}


def beside(entries: Iterable[IndexEntry], pairs: Iterable[Compiled]) -> dict[str, Compiled]:
    """Return pairs outside a deployment by path: the folder's path if it has the pair, else one with all options."""
    paths = {(one.model, one.prefill[1], one.decode[1], one.options): one.path for one in entries}
    named: dict[str, Compiled] = {}
    for pair in pairs:
        text = asked(pair.plan)
        # Never overwrite another pair's file.
        others = {path for other, path in paths.items() if other != text}
        path = paths.setdefault(text, pair.path if pair.path not in others else _with_tag(pair.path, pair))
        named[path] = pair
    return named


def asked(plan: Plan) -> PairText:
    return plan.model, plan.prefill.key, plan.decode.key, tuple(sorted(plan.options))


def _distinguished(base: str, pairs: Sequence[Compiled]) -> Iterator[tuple[str, Compiled]]:
    """Yield pairs that would have the same path, each with the options that not all of them have."""
    if len(pairs) == 1:
        yield base, pairs[0]
        return
    every = [[set(items) for items in _items(pair)] for pair in pairs]
    shared = [set.intersection(*items) for items in zip(*every, strict=True)]
    paths = [path_of(pair.plan.model, _stem(pair, shared)) for pair in pairs]
    for path, pair in zip(paths, pairs, strict=True):
        yield (path if paths.count(path) == 1 else _with_tag(path, pair)), pair


def _items(pair: Compiled) -> tuple[tuple[str, ...], ...]:
    """Return the text of a pair: `name=value` of the prefill side, of the decode side, of the compile options."""
    options = tuple(f"{name}={value}" for name, value in unusual(pair.plan))
    return tuple(pair.prefill.key.split(",")), tuple(pair.decode.key.split(",")), options


def _stem(pair: Compiled, left_out: Sequence[Collection[str]] | None = None) -> str:
    """Return `p_SIDE__d_SIDE` with the options not in `left_out`; without it all are left out."""
    prefill, decode, options = (
        [item for item in items if item not in gone]
        for items, gone in zip(_items(pair), left_out or _items(pair), strict=True)
    )
    sides = [words([*_identity(side), *own]) for side, own in ((pair.prefill, prefill), (pair.decode, decode))]
    return "__".join([f"p_{sides[0]}", f"d_{sides[1]}", *(item.replace("=", "_") for item in options)])


def _identity(side: BoundSide) -> list[str]:
    """Return engine and mesh, as far as the side's key has them."""
    mesh = {"engine", *dict(side.sizes)}
    return [item for item in side.key.split(",") if item.partition("=")[0] in mesh]


def path_of(model: str, stem: str) -> str:
    """Return the path of a pair's plan, MODEL/STEM.py; a long stem ends with a tag."""
    if len(stem) > LONGEST:
        stem = f"{stem[: LONGEST - 9].rstrip('_')}_{_tag(stem)}"
    return f"{identifier(model)}/{stem}.py"


def _with_tag(path: str, pair: Compiled) -> str:
    """Return the path with a tag of the pair's text, if words alone do not distinguish it from another."""
    whole = PurePosixPath(path)
    return str(whole.with_name(f"{whole.stem}_{_tag(repr(asked(pair.plan)))}.py"))


def _tag(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
