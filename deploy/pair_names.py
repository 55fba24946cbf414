"""Names of pairs, which are those of their files: a pair of a deployment keeps its name when its options change.

It is MODEL/NAME.py where the deployment says the name, otherwise MODEL/p_SIDE__d_SIDE.py with engine and mesh of both
sides, and of all other options those only in which pairs of one model, engines and meshes differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import PurePosixPath

from kvplan.compiler.api import LONGEST, Compiled, identifier, unusual, words
from kvplan.compiler.bound import BoundSide
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.types import Plan

# What a pair was asked for by: model, both sides' keys, compile options.
PairText = tuple[str, str, str, tuple[tuple[str, str], ...]]


def in_deployment(pairs: Iterable[tuple[str, Compiled]]) -> dict[str, Compiled]:
    """The pairs of a deployment by path, each given with its own name, empty where it has none."""
    alike: dict[str, dict[PairText, Compiled]] = {}
    for name, pair in pairs:
        alike.setdefault(_path(pair, identifier(name) or _stem(pair)), {})[asked(pair.plan)] = pair
    return {path: pair for base, same in alike.items() for path, pair in _told_apart(base, [*same.values()])}


def beside(entries: Iterable[IndexEntry], pairs: Iterable[Compiled]) -> dict[str, Compiled]:
    """Pairs by path that are no deployment: where the folder has them, else by all of their options."""
    paths = {(one.model, one.prefill[1], one.decode[1], one.options): one.path for one in entries}
    named: dict[str, Compiled] = {}
    for pair in pairs:
        text = asked(pair.plan)
        # Another pair's file is never written over.
        others = {path for other, path in paths.items() if other != text}
        path = paths.setdefault(text, pair.path if pair.path not in others else _with_tag(pair.path, pair))
        named[path] = pair
    return named


def asked(plan: Plan) -> PairText:
    return plan.model, plan.prefill.key, plan.decode.key, tuple(sorted(plan.options))


def _told_apart(base: str, pairs: Sequence[Compiled]) -> Iterator[tuple[str, Compiled]]:
    """Pairs that would have one path, each with the options that not all of them have."""
    if len(pairs) == 1:
        yield base, pairs[0]
        return
    every = [[set(items) for items in _items(pair)] for pair in pairs]
    shared = [set.intersection(*items) for items in zip(*every, strict=True)]
    paths = [_path(pair, _stem(pair, shared)) for pair in pairs]
    for path, pair in zip(paths, pairs, strict=True):
        yield (path if paths.count(path) == 1 else _with_tag(path, pair)), pair


def _items(pair: Compiled) -> tuple[tuple[str, ...], ...]:
    """What a pair was asked for: `name=value` of the prefill side, of the decode side, of the compile options."""
    options = tuple(f"{name}={value}" for name, value in unusual(pair.plan))
    return tuple(pair.prefill.key.split(",")), tuple(pair.decode.key.split(",")), options


def _stem(pair: Compiled, left_out: Sequence[Collection[str]] | None = None) -> str:
    """`p_SIDE__d_SIDE`, and the options that are not `left_out`, which all are if it is not given."""
    prefill, decode, options = (
        [item for item in items if item not in gone]
        for items, gone in zip(_items(pair), left_out or _items(pair), strict=True)
    )
    sides = [words([*_identity(side), *own]) for side, own in ((pair.prefill, prefill), (pair.decode, decode))]
    return "__".join([f"p_{sides[0]}", f"d_{sides[1]}", *(item.replace("=", "_") for item in options)])


def _identity(side: BoundSide) -> list[str]:
    """Engine and mesh, as far as the side's key has them."""
    mesh = {"engine", *dict(side.sizes)}
    return [item for item in side.key.split(",") if item.partition("=")[0] in mesh]


def _path(pair: Compiled, stem: str) -> str:
    if len(stem) > LONGEST:
        stem = f"{stem[: LONGEST - 9].rstrip('_')}_{_tag(stem)}"
    return f"{identifier(pair.plan.model)}/{stem}.py"


def _with_tag(path: str, pair: Compiled) -> str:
    """The path with a tag of what the pair was asked for, where words alone do not tell it from another."""
    whole = PurePosixPath(path)
    return str(whole.with_name(f"{whole.stem}_{_tag(repr(asked(pair.plan)))}.py"))


def _tag(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
