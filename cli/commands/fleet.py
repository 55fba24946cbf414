"""kvplan fleet: the registered engines, and which pairs of them have a plan."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from kvplan.cli.fleets import EtcdAccess, engines_of, etcd_options
from kvplan.cli.options import DIRECTORY, format_option
from kvplan.cli.terminal import say, table
from kvplan.fleet.pairs import FleetPair, fleet_pairs
from kvplan.fleet.records import EngineRecord
from kvplan.runtime.plans.catalog import Catalog

# Up to this many names of identical engines are shown.
NAMES = 3


@click.command("fleet")
@click.argument("places", metavar="URL…|FILE", nargs=-1, required=True)
@click.option("--plans", metavar="DIR", type=DIRECTORY, help="A plans directory: which pairs have a plan there.")
@etcd_options
@format_option("text", "json")
def command(places: tuple[str, ...], plans: Path | None, etcd: EtcdAccess, form: str) -> None:
    """Show which engines run, and who has plans for whom.

    Engines are those that an etcd knows (URLs are members of one cluster, http://host:2379), or a FILE of records.
    Identical ones are one line. Pairs are looked up in the index of --plans; with two releases side by side each engine
    finds the plans of its own.
    """
    engines = engines_of(places, etcd)
    pairs = fleet_pairs(engines, Catalog(plans).entries()) if plans is not None else ()
    click.echo(_json(engines, pairs)) if form == "json" else say(_text(engines, pairs))


def _json(engines: Mapping[str, EngineRecord], pairs: Iterable[FleetPair]) -> str:
    rows = [
        {"prefill": pair.prefill.name, "decode": pair.decode.name, "plan": pair.plan, "reason": pair.reason}
        for pair in pairs
    ]
    return json.dumps({"engines": [msgspec.to_builtins(engines[name]) for name in sorted(engines)], "pairs": rows})


def _text(engines: Mapping[str, EngineRecord], pairs: Sequence[FleetPair]) -> str:
    if not engines:
        return "no engine has announced itself"
    lines = table(("engines", "role", "state", "model", "side", "free blocks", "names"), _engine_rows(engines.values()))
    if pairs:
        lines += ["", *table(("engine pairs", "model", "prefill", "decode", "plan"), _pair_rows(pairs))]
        lines += _unpaired_lines(engines, pairs)
    return "\n".join(lines)


def _engine_rows(engines: Iterable[EngineRecord]) -> list[Sequence[object]]:
    """A row for engines of one model, side, role and state: their number, their free blocks together, some names."""
    found = defaultdict(list)
    for each in engines:
        found[each.role, each.state, each.model, each.side_key].append(each)
    return [
        (f"{len(group):,}", *key, f"{sum(one.free_blocks for one in group):,}", _names([one.name for one in group]))
        for key, group in sorted(found.items())
    ]


def _pair_rows(pairs: Iterable[FleetPair]) -> list[Sequence[object]]:
    """A row for pairs of one model and two sides: their number, and their plan or why there is none."""
    found: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for pair in pairs:
        found[pair.prefill.model, pair.prefill.side_key, pair.decode.side_key, pair.plan or pair.reason] += 1
    return [(f"{count:,}", *key) for key, count in sorted(found.items())]


def _unpaired_lines(engines: Mapping[str, EngineRecord], pairs: Iterable[FleetPair]) -> list[str]:
    """The line about engines that have no plan with any other."""
    met = {name for pair in pairs if pair.plan or pair.options for name in (pair.prefill.name, pair.decode.name)}
    alone = sorted(set(engines) - met)
    return ["", f"without a plan for anybody: {_names(alone)}"] if alone else []


def _names(names: Sequence[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - NAMES:,} more" if len(shown) > NAMES else ""
    return f"{', '.join(shown[:NAMES])}{more}"
