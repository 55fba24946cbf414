"""Arrivals: requests with their lengths, from a trace in Mooncake's format, or random. Times are microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from kvplan.dsl.schema.fleet import FleetFile, PoissonTraffic, Traffic
from kvplan.dsl.text.diagnostics import Diagnostic, DslError
from kvplan.dsl.text.source import SourceSpan, shown

# Tokens of the blocks that a trace's `hash_ids` name.
HASHED = 512
LINE = '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}'


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: its time of arrival, the tokens of its prompt and of its answer.

    `hashes` name its whole blocks of 512 tokens, each including all tokens before it; empty if unknown.
    """

    at: float
    input: int
    output: int
    hashes: tuple[int | str, ...] = ()


def arrivals_of(fleet: FleetFile) -> tuple[Arrival, ...]:
    """Return a fleet's arrivals in order of time. Raises DslError (S032) for a bad line of a trace."""
    traffic = fleet.traffic
    return drawn(traffic.poisson) if traffic.poisson else traced(traffic)


def drawn(traffic: PoissonTraffic) -> tuple[Arrival, ...]:
    """Draw arrivals of a Poisson process. Lengths are exponential, whole, at least 1; one seed gives one result."""
    random, at, found = Random(traffic.seed), 0.0, []
    for _ in range(traffic.requests):
        at += random.expovariate(traffic.per_minute / 60e6)
        prompt, output = (max(1, round(random.expovariate(1 / mean))) for mean in (traffic.input, traffic.output))
        found.append(Arrival(at, prompt, output))
    return tuple(found)


def traced(traffic: Traffic) -> tuple[Arrival, ...]:
    """Return the arrivals of a trace, from time 0. Raises DslError (S032)."""
    path = Path(traffic.trace)
    with path.open(encoding="utf-8", errors="replace") as file:
        found = list(islice(_lines(file, shown(path)), traffic.first))
    begin = found[0].at if found else 0.0
    return tuple(Arrival((a.at - begin) * 100 / traffic.percent, a.input, a.output, a.hashes) for a in found)


def _lines(lines: Iterator[str], path: str) -> Iterator[Arrival]:
    before = float("-inf")
    for number, line in enumerate(lines, 1):
        if line.strip():
            arrival = _arrival(line.rstrip("\n"), path, number)
            if arrival.at < before:
                raise _bad(f"timestamp goes back to {arrival.at / 1000:g} ms", line, path, number)
            before = arrival.at
            yield arrival


def _arrival(line: str, path: str, number: int) -> Arrival:
    """Parse one line: timestamp in milliseconds, lengths in tokens, hash_ids if present. It ignores other keys."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(f"not JSON: {error}", line, path, number) from None
    if not isinstance(said, dict):
        raise _bad("not a JSON object", line, path, number)
    at, hashes = said.get("timestamp"), said.get("hash_ids", [])
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e15:
        raise _bad(f"timestamp must be milliseconds from 0, not {at!r}", line, path, number)
    for name, least in (("input_length", 1), ("output_length", 0)):
        if type(said.get(name)) is not int or not least <= said[name] < 1 << 40:
            raise _bad(f"{name} must be a whole number from {least}, not {said.get(name)!r}", line, path, number)
    if not isinstance(hashes, list) or any(type(each) not in (int, str) for each in hashes):
        raise _bad("hash_ids must be a list of whole numbers or texts", line, path, number)
    if len(set(hashes)) < len(hashes):
        raise _bad("hash_ids has an id twice, which stands for a block and all before it", line, path, number)
    whole = said["input_length"] // HASHED
    return Arrival(at * 1000.0, said["input_length"], said["output_length"], tuple(hashes[:whole]))


def _bad(message: str, line: str, path: str, number: int) -> DslError:
    span = SourceSpan(path, number, 1, len(line) or 1, line if len(line) <= 120 else "")
    return DslError(Diagnostic("S032", message, span, (), f"a line is one request: {LINE}"))
