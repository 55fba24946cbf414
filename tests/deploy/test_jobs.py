"""What is compiled: products in the order of their keys, options of the command line before the file's."""

from __future__ import annotations

from kvplan.deploy.jobs import PairJob, deployed, product
from kvplan.dsl.library import load
from kvplan.dsl.model import Deployment, PlanSpec


def test_product_of_sides() -> None:
    jobs = product(["m"], "tp=1/2", "tp=4,order=a/b", {})
    assert [(job.prefill, job.decode) for job in jobs] == [
        (p, d) for p in ("tp=1", "tp=2") for d in ("tp=4,order=a", "tp=4,order=b")
    ]


def test_deployment_is_the_sum_of_its_entries() -> None:
    specs = (
        PlanSpec(("m", "n"), ("tp=1", "tp=2"), ("tp=4",), {"elect": "spread"}),
        PlanSpec(("o",), ("tp=1/2",), ("tp=1",), {}),
    )
    jobs = deployed(load(), Deployment("d", specs), {})
    assert len(jobs) == 6
    assert PairJob("n", "tp=2", "tp=4", {"elect": "spread"}) in jobs
    assert PairJob("o", "tp=2", "tp=1", {}) in jobs


def test_command_line_wins() -> None:
    spec = PlanSpec(("m",), ("tp=1",), ("tp=4",), {"elect": "spread"})
    assert deployed(load(), Deployment("d", (spec,)), {"elect": "one"})[0].options == {"elect": "one"}
