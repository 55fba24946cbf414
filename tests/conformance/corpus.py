"""The corpus: configurations, what an engine's own code says of their caches, and the verdict that is expected.

`configurations/*.jsonl` has a configuration in a line, `facts/ENGINE-RELEASE.jsonl` all dumps of one in a line,
`verdicts/ENGINE-RELEASE.tsv` what kvplan made of it when that was last accepted. Some engines give dumps, others the
pools that they register, transformers what its cache holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.packed import Json, numbers_of, packed, packed_pool, runs, unpacked, unpacked_pool

from kvplan.dsl.text.grouped import grouped

FOLDER = Path(__file__).parent
CONFIGURATIONS, FACTS, VERDICTS = (FOLDER / name for name in ("configurations", "facts", "verdicts"))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A checkpoint's config.json, and where its numbers are from."""

    key: str
    architecture: str
    origin: str
    config: Json


@dataclass(frozen=True, slots=True)
class Facts:
    """A release's facts about one configuration: dumps, pools, layers of its cache, or why it gave none."""

    key: str
    dumps: tuple[dict[str, Any], ...]
    none: str = ""
    pools: tuple[dict[str, Any], ...] = ()
    layers: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """An engine's release whose facts are kept."""

    engine: str
    version: str

    def __str__(self) -> str:
        return f"{self.engine}-{self.version}"

    @property
    def facts_file(self) -> Path:
        return FACTS / f"{self}.jsonl"

    @property
    def verdicts_file(self) -> Path:
        return VERDICTS / f"{self}.tsv"


def configurations() -> dict[str, Configuration]:
    """By key, in order of files and lines."""
    found = (json.loads(line) for path in sorted(CONFIGURATIONS.glob("*.jsonl")) for line in lines(path))
    return {line["key"]: Configuration(**line) for line in found}


def releases() -> list[Release]:
    return [Release(*path.stem.rsplit("-", 1)) for path in sorted(FACTS.glob("*.jsonl"))]


def facts(release: Release) -> dict[str, Facts]:
    return {found.key: found for found in (_facts(line, release) for line in lines(release.facts_file))}


def facts_line(key: str, dumps: Iterable[Json], none: str = "", about: Json | None = None) -> str:
    """A line of a file of facts: dumps, or why there are `none`, and what else is to be known `about` them."""
    specs: list[Json] = []
    rows = [packed(dump, specs) for dump in dumps]
    found = {"key": key, "specs": specs, "dumps": rows} if rows else {"key": key, "none": none}
    return _line({**found, **(about or {})})


def pools_line(key: str, pools: Iterable[Json], none: str) -> str:
    """A line of a file of facts: the pools that an engine registers, or why there are `none`."""
    rows = [packed_pool(pool) for pool in pools]
    return _line({"key": key, "pools": rows} if rows else {"key": key, "none": none})


def caches_line(key: str, layers: Iterable[Json], none: str) -> str:
    """A line of a file of facts: what a cache holds of each layer, like layers once, or why there is `none`."""
    every = list(layers)
    alike = grouped((json.dumps(layer), n) for n, layer in enumerate(every))
    rows = [[json.loads(layer), runs(numbers)] for layer, numbers in alike.items()]
    return _line({"key": key, "layers": rows} if rows else {"key": key, "none": none})


def configuration_line(found: Configuration) -> str:
    about = {"key": found.key, "architecture": found.architecture, "origin": found.origin}
    return _line({**about, "config": dict(sorted(found.config.items()))})


def _facts(line: str, release: Release) -> Facts:
    found = json.loads(line)
    rows = found.get("dumps", ())
    dumps = (unpacked(row, found["specs"], release.engine, release.version) for row in rows)
    pools = tuple(map(unpacked_pool, found.get("pools", ())))
    numbered = {n: layer for layer, numbers in found.get("layers", ()) for n in numbers_of(numbers)}
    return Facts(found["key"], tuple(dumps), found.get("none", ""), pools, tuple(numbered[n] for n in sorted(numbered)))


def lines(path: Path) -> list[str]:
    """The lines of a file; none of one that is not there."""
    return path.read_text().splitlines() if path.exists() else []


def _line(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
