"""Fleet files: figures of candidates over those of all over the defaults, units, and where traffic comes from."""

from __future__ import annotations

from pathlib import Path

from kvplan.dsl.library import load
from kvplan.dsl.schema.fleet import DecodeFigures, PoissonTraffic, PrefillFigures, Rails, Traffic

TEXT = """\
kvplan: 1
fleet: ours
model: llama-3.1-8b
limits: {slice_bytes: 1000}
engines:
  prefill: {engines: 2, tokens_per_s: 5000, rails: {count: 2, rate: 100}}
candidates:
  - {prefill: tp=4, decode: "tp=2,order=nhd", strategy: auto, engines: {prefill: {engines: 3}, decode: {sequences: 7}}}
  - {name: push, prefill: tp=2, decode: tp=2, mode: push, layer_by_layer: true}
traffic: {poisson: {per_minute: 60, requests: 10, input: 100, output: 20}}
"""


def test_figures_are_a_candidates_own_then_those_of_all_then_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(TEXT)
    fleet = load().fleet(path)
    first, second = fleet.candidates
    assert first.engines.prefill == PrefillFigures(engines=3, tokens_per_s=5000, rails=Rails(2, 1e8))
    assert second.engines.prefill == PrefillFigures(engines=2, tokens_per_s=5000, rails=Rails(2, 1e8))
    assert (first.engines.decode, second.engines.decode) == (DecodeFigures(sequences=7), DecodeFigures())
    assert (first.options, first.mode, first.layer_by_layer) == ({"strategy": "auto", "elect": "one"}, "pull", False)
    assert (second.name, second.mode, second.layer_by_layer) == ("push", "push", True)
    assert fleet.limits.given_values == {"slice_bytes": 1000}
    assert (fleet.cores, fleet.machine, fleet.router) == (None, "", "round_robin")
    assert fleet.traffic.poisson == PoissonTraffic(60, 10, 100, 20, 0)


def test_a_trace_lies_beside_its_fleet(tmp_path: Path) -> None:
    path, trace = tmp_path / "ours.yaml", tmp_path / "chat.jsonl"
    trace.write_text("")
    path.write_text(TEXT[: TEXT.index("traffic")] + "traffic: {trace: chat.jsonl, first: 5}\n")
    assert load().fleet(path).traffic == Traffic(trace=str(trace), first=5)
