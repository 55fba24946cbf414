"""Read fleet files: engines, pairs of sides to choose from, and the traffic to serve."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kvplan.dsl.files.documents import is_known, path_of
from kvplan.dsl.schema.fields import LABEL, LETTERS
from kvplan.dsl.schema.fleet import FLEET, FleetCandidate, FleetFile, Traffic
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import YamlTable


def parse_fleet(
    sink: Sink, root: YamlTable, name: str, models: Collection[str], machines: Collection[str]
) -> FleetFile:
    """The fleet, with every error in the sink. `models` and `machines` are the known names."""
    fleet = FLEET.read(sink, root)
    for file_type, known in (("model", models), ("machine", machines)):
        if (word := fleet.word(file_type)) is not None:
            is_known(sink, file_type, word, known)
    _check_names(sink, fleet.candidates)
    candidates = tuple(replace(each, engines=each.engines.above(fleet.engines)) for each in fleet.candidates)
    return replace(fleet, name=name, candidates=candidates, traffic=_traffic(sink, fleet.traffic))


def _check_names(sink: Sink, candidates: Collection[FleetCandidate]) -> None:
    """Report invalid names of candidates (K009), and names that two candidates have (K007)."""
    seen: set[str] = set()
    for name in (name for each in candidates if (name := each.word("name")) is not None):
        if not LABEL.fullmatch(name):
            sink.add("K009", f"'{name}' cannot be the name of a candidate", name.span, help=LETTERS[LABEL])
        if name in seen:
            sink.add("K007", f"two candidates are called '{name}'", name.span, help="choose another name")
        seen.add(name)


def _traffic(sink: Sink, traffic: Traffic) -> Traffic:
    """The traffic with the path of its trace. Reports K019 unless it is either a trace or drawn arrivals."""
    if traffic.tree is not None and ("trace" in traffic.given) == ("poisson" in traffic.given):
        help = "give trace: FILE.jsonl, or poisson: {…}"
        sink.add("K019", "traffic is either a trace or poisson arrivals", traffic.span, help=help)
    if (trace := traffic.word("trace")) is not None:
        return replace(traffic, trace=path_of(sink, trace, "fleet"))
    for name in traffic.given.keys() & {"first", "percent"}:
        message = f"'{name}' is of a trace, and there is none"
        sink.add("K019", message, traffic.given[name].span, help="take it out, or give trace: FILE.jsonl")
    return traffic
