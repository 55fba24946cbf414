"""The form of deployment files: the models and the pairs of sides to compile."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.forms import DocumentKeys, Form, FormKeys, ListShape, MapShape, document, key
from kvplan.dsl.schema.shapes import SENTENCE, TEXT, NameShape, ScalarShape, TextShape
from kvplan.dsl.text.yaml_reader import Named, YamlScalar

SIDES = ListShape(ScalarShape("side", ".*[^ ,].*"), bare=True, filled=True)


@dataclass(frozen=True, slots=True)
class PlanSpec(FormKeys):
    """One entry of a deployment: models × prefill sides × decode sides; the text of a side may be a product.

    `name` is the name of its pair, empty if not given.
    """

    name: YamlScalar = key(
        TextShape("name", LABEL.pattern),
        "what the pair is called, and its file; it keeps that name whatever else of the entry changes",
    )
    models: tuple[YamlScalar, ...] = key(
        ListShape(NameShape("model"), bare=True, filled=True),
        "names, or paths that begin at the deployment file's folder",
        required=True,
    )
    prefill: tuple[YamlScalar, ...] = key(SIDES, "sides that have the cache", required=True)
    decode: tuple[YamlScalar, ...] = key(SIDES, "sides that need it", required=True)
    options: Named[YamlScalar] = key(MapShape(SENTENCE, keys=NameShape("option")), "options of `kvplan compile`")


PLAN = Form("a plan", PlanSpec)


@dataclass(frozen=True, slots=True)
class Deployment(DocumentKeys):
    """A deployment file."""

    title: str = key(TEXT, "what it is called, for people")
    plans: tuple[PlanSpec, ...] = key(
        ListShape(PLAN, filled=True), "what is compiled: all models times all pairs of sides", required=True
    )


DEPLOYMENT = document("deployment", "a deployment", "which pairs of sides are to be compiled", Deployment)
