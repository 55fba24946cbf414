"""Fleet files: engines, pairs of sides to choose from, and the traffic that they are to serve."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, TypeVar

from kvplan.dsl.files.documents import is_known, path_of
from kvplan.dsl.model import (
    DecodeFigures,
    FleetCandidate,
    FleetFile,
    PoissonTraffic,
    PrefillFigures,
    Rails,
    TraceTraffic,
)
from kvplan.dsl.schema.fields import LABEL, LETTERS
from kvplan.dsl.schema.fleet import (
    FLEET,
    CandidateKeys,
    DecodeEngineKeys,
    EnginesKeys,
    PoissonKeys,
    PrefillEngineKeys,
    RailsKeys,
    TrafficKeys,
)
from kvplan.dsl.schema.shapes import FormKeys
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.source import NOWHERE
from kvplan.dsl.text.yaml_reader import YamlTable

MB = 1e6
F = TypeVar("F", PrefillFigures, DecodeFigures)


def parse_fleet(
    sink: Sink, root: YamlTable, name: str, models: Collection[str], machines: Collection[str]
) -> FleetFile:
    """A fleet, with every error in the sink. `models` and `machines` are the known names."""
    keys = FLEET.read(sink, root)
    for file_type, word, known in (("model", keys.model, models), ("machine", keys.machine, machines)):
        if word is not None:
            is_known(sink, file_type, word, known)
    candidates = tuple(_candidate(sink, each, keys.engines) for each in keys.candidates)
    _check_names(sink, keys.candidates)
    return FleetFile(
        name=name,
        model=keys.model or "",
        machine=keys.machine or "",
        cores=keys.cores,
        router=keys.router,
        limits=_given(keys.limits),
        candidates=candidates,
        traffic=_traffic(sink, keys.traffic),
    )


def _check_names(sink: Sink, candidates: Collection[CandidateKeys]) -> None:
    """Report a name that cannot be (K009), or is given twice (K007)."""
    seen: set[str] = set()
    for name in (each.name for each in candidates if each.name is not None):
        if not LABEL.fullmatch(name):
            sink.add("K009", f"'{name}' cannot be the name of a candidate", name.span, help=LETTERS[LABEL])
        if name in seen:
            sink.add("K007", f"candidate '{name}' is given twice", name.span, help="choose another name")
        seen.add(name)


def _candidate(sink: Sink, keys: CandidateKeys, engines: EnginesKeys) -> FleetCandidate:
    """A candidate; figures of engines are its own, else those of all, else the defaults."""
    prefill = _figures(_figures(PrefillFigures(), engines.prefill), keys.engines.prefill)
    decode = _figures(_figures(DecodeFigures(), engines.decode), keys.engines.decode)
    options = {"strategy": keys.strategy, "elect": keys.elect}
    return FleetCandidate(
        name=keys.name or "",
        prefill=keys.prefill or "",
        decode=keys.decode or "",
        options=options,
        mode=keys.mode,
        layer_by_layer=keys.layer_by_layer,
        prefill_engines=prefill,
        decode_engines=decode,
        span=keys.tree.span if keys.tree else NOWHERE,
    )


def _figures(figures: F, keys: PrefillEngineKeys | DecodeEngineKeys) -> F:
    """Figures with those that a file gives in their place."""
    rails = _rails(keys.rails) if keys.rails.tree is not None else figures.rails
    return replace(figures, **_given(keys), rails=rails)


def _rails(keys: RailsKeys) -> Rails:
    return Rails(keys.count or 1, (keys.rate or 1) * MB)


def _given(keys: FormKeys) -> dict[str, Any]:
    """The numbers that were given, by key."""
    values = {field.name: getattr(keys, field.name) for field in fields(keys)}
    return {name: value for name, value in values.items() if isinstance(value, int) and name in keys.given}


def _traffic(sink: Sink, keys: TrafficKeys) -> PoissonTraffic | TraceTraffic:
    """A trace or drawn arrivals, whichever is given (K019 unless it is one of them)."""
    if keys.tree is not None and ("trace" in keys.given) == ("poisson" in keys.given):
        help = "give trace: FILE.jsonl, or poisson: {…}"
        sink.add("K019", "traffic is either a trace or poisson arrivals", keys.tree.span, help=help)
    if keys.trace is None:
        for name in keys.given.keys() & {"first", "percent"}:
            message = f"'{name}' is of a trace, and there is none"
            sink.add("K019", message, keys.given[name].span, help="take it out, or give trace: FILE.jsonl")
        return _poisson(keys.poisson)
    return TraceTraffic(path_of(sink, keys.trace, "fleet"), keys.first, keys.percent or 100)


def _poisson(keys: PoissonKeys) -> PoissonTraffic:
    return PoissonTraffic(keys.per_minute or 1, keys.requests or 1, keys.input or 1, keys.output or 1, keys.seed or 0)
