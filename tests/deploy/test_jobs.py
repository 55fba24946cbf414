"""The jobs of a deployment: products in the order of their keys; options of the command line override the file's."""

from __future__ import annotations

from kvplan.deploy.jobs import PairJob, deployed, product
from kvplan.dsl.library import load
from kvplan.dsl.schema.deployment import Deployment, PlanSpec
from kvplan.dsl.text.yaml_reader import YamlScalar


def spec(*models: str, prefill: str, decode: str, **options: str) -> PlanSpec:
    """An entry; words are separated by spaces."""
    named, having, needing = (tuple(map(YamlScalar, words)) for words in (models, prefill.split(), decode.split()))
    return PlanSpec(
        models=named, prefill=having, decode=needing, options={k: YamlScalar(v) for k, v in options.items()}
    )


def deployment(*specs: PlanSpec) -> Deployment:
    return Deployment(plans=specs)


SPREAD = spec("m", "n", prefill="tp=1 tp=2", decode="tp=4", elect="spread")


def test_product_of_sides() -> None:
    jobs = product(["m"], "tp=1/2", "tp=4,order=a/b", {})
    assert [(job.prefill, job.decode) for job in jobs] == [
        (p, d) for p in ("tp=1", "tp=2") for d in ("tp=4,order=a", "tp=4,order=b")
    ]


def test_deployment_is_the_sum_of_its_entries() -> None:
    jobs = deployed(load(), deployment(SPREAD, spec("o", prefill="tp=1/2", decode="tp=1")), {})
    assert len(jobs) == 6
    assert PairJob("n", "tp=2", "tp=4", {"elect": "spread"}) in jobs
    assert PairJob("o", "tp=2", "tp=1", {}) in jobs


def test_command_line_wins() -> None:
    assert deployed(load(), deployment(SPREAD), {"elect": "one"})[0].options == {"elect": "one"}
