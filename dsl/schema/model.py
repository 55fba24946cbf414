"""The forms of model, deployment and config files."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.kind import NEEDED, RuleKeys
from kvplan.dsl.schema.shapes import (
    DTYPE,
    EXPRESSION,
    EXTENDS,
    EXTENDS_DOC,
    FOREIGN,
    SENTENCE,
    TEXT,
    TRUTH,
    ConditionShape,
    DocumentKeys,
    EitherShape,
    Form,
    FormKeys,
    LaterShape,
    ListShape,
    MapShape,
    NameShape,
    ScalarShape,
    TextShape,
    WholeShape,
    document,
    key,
)
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

FAMILY = "variants"
# What a variant cannot differ in: it is said once in a file.
ONCE = ("kvplan", "model", EXTENDS, FAMILY)
# Layers that a model may have, and draft layers: a slip of a digit must not take all memory.
MOST_LAYERS = 1000
SIDES = ListShape(ScalarShape("side", ".*[^ ,].*"), bare=True, filled=True)
NAMES = ListShape(TextShape("name"), bare=True)
PATTERNS = ListShape(TextShape("pattern"), bare=True)


LAYERS = EitherShape((ListShape(WholeShape()), EXPRESSION))


@dataclass(frozen=True, slots=True)
class CacheKeys(FormKeys):
    kind: YamlScalar | None = key(NameShape("kind"), "what is stored", required=True)
    layers: Tree | None = key(
        LAYERS,
        "which layers have it: `all`, `drafts`, a list of numbers, or an expression of `layer`",
        required=True,
    )
    needs: Tree | None = key(NEEDED, "which tokens a reader must have, instead of what the kind says")
    optional: bool = key(TRUTH, "whether it is skipped, and reported, where one side lacks it")
    when: Expr | None = key(
        EXPRESSION, "an expression of a side's options; where it is false, the side does not store the cache"
    )


@dataclass(frozen=True, slots=True)
class RemarkRule(FormKeys):
    """A sentence to say where `when` holds; {name} is replaced. `numbers`: some number may be wrong for that."""

    when: Expr = key(ConditionShape(foreign=True), "where it is said", required=True)
    say: YamlScalar = key(TEXT, "the sentence; `{name}` is replaced", required=True)
    numbers: bool = key(TRUTH, "whether a number may be another one for that: a doubt that somebody has to accept")


@dataclass(frozen=True, slots=True)
class FoundKeys(RuleKeys):
    kind: YamlScalar | None = key(NameShape("kind"), "what is stored", required=True)


CACHE = Form("a cache", CacheKeys, rest=EXPRESSION)
REMARK = Form("a remark", RemarkRule)
FOUND = Form("a cache's rule", FoundKeys, rest=FOREIGN)
WORDS = MapShape(FOREIGN)
WORDS_DOC = "names for what a configuration says, in this order; each may use those before it"
REMARKS_DOC = "sentences to print about a configuration"


@dataclass(frozen=True, slots=True)
class OwnKeys(FormKeys):
    words: Named[Expr] = key(WORDS, WORDS_DOC)
    caches: Named[Tree] = key(
        MapShape(EitherShape((FOUND, ListShape(FOUND))), names=LABEL),
        "rules for caches, which come before those of the kinds",
    )
    remarks: tuple[RemarkRule, ...] = key(ListShape(REMARK), REMARKS_DOC)


OWN = Form("config", OwnKeys)


@dataclass(frozen=True, slots=True)
class Checkpoint(FormKeys):
    architecture: str = key(TEXT, "the first of its `architectures`, empty if not given")
    model_type: str = key(TEXT, "the `model_type` of its language model, empty if not given")


CHECKPOINT = Form("checkpoint", Checkpoint)


@dataclass(frozen=True, slots=True)
class VariantKeys(DocumentKeys):
    title: str = key(TEXT, "what it is called, for people")
    match: Named[tuple[str, ...]] = key(
        MapShape(ListShape(TEXT, bare=True), keys=NameShape("key")),
        "keys of a checkpoint's configuration by which the model is known, each with its value or a list of values",
    )
    dtype: str | None = key(DTYPE, "element type of the model; an engine's cache type defaults to it", required=True)
    query_heads: int | None = key(WholeShape(), "what engines check sharding against")
    checkpoint: Checkpoint = key(
        CHECKPOINT,
        "what the checkpoint calls itself, for engines that decide by it how they store a cache; without it an engine"
        " stores what the file says",
    )
    doubts: tuple[YamlScalar, ...] = key(
        ListShape(SENTENCE, bare=True),
        "what is not sure of its numbers, in sentences that `check`, `compile` and plans repeat until somebody takes"
        " them out",
    )
    layers: int | None = key(
        WholeShape(1, MOST_LAYERS), "how many layers the model has, with caches or without", required=True
    )
    drafts: int | None = key(
        WholeShape(0, MOST_LAYERS),
        "how many draft layers follow them, 0 if not given; they run on the last stage of a pipeline",
    )
    no_cache: Tree | None = key(
        LAYERS,
        "which layers store nothing, written as a cache's `layers`: an MLP, or attention that reads another layer's"
        " cache; `check` warns of such layers that are not declared (W004)",
    )
    sides: Named[YamlScalar] = key(
        MapShape(TEXT, keys=NameShape("engine")),
        "engine → keys that a side needs there, where the engine's defaults cannot hold the model; a refusal says them",
    )
    caches: Named[Tree] = key(MapShape(LaterShape(CACHE), names=LABEL), "what its layers store", required=True)
    config: Tree | None = key(
        LaterShape(OWN), "how a configuration of such a model is read where the kinds' `match` does not say it"
    )


VARIANT = Form("a variant", VariantKeys)
VARIANTS: MapShape[Tree] = MapShape(LaterShape(VARIANT), names=LABEL)


@dataclass(frozen=True, slots=True)
class ModelKeys(VariantKeys):
    title: str = key(TEXT, "what it is called, for people", required=True)
    extends: YamlScalar | None = key(NameShape("model"), EXTENDS_DOC)
    variants: Named[Tree] = key(
        VARIANTS,
        "models that differ from this file in some keys; the file itself is none then",
    )


@dataclass(frozen=True, slots=True)
class PlanKeys(FormKeys):
    name: YamlScalar | None = key(
        ScalarShape("name", LABEL.pattern),
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


PLAN = Form("a plan", PlanKeys)


@dataclass(frozen=True, slots=True)
class DeploymentKeys(DocumentKeys):
    title: str = key(TEXT, "what it is called, for people")
    plans: tuple[PlanKeys, ...] = key(
        ListShape(PLAN, filled=True), "what is compiled: all models times all pairs of sides", required=True
    )


@dataclass(frozen=True, slots=True)
class ConfigKeys(DocumentKeys):
    inside: tuple[str, ...] = key(NAMES, "mappings in which the numbers of a model may stand")
    match: tuple[str, ...] = key(NAMES, "keys that tell one model from another; the first must hold")
    classes: YamlScalar | None = key(
        ScalarShape("path"),
        "a JSON file beside this one with what classes of configurations have by default"
        " (examples/dumps/class_defaults.py writes it)",
    )
    words: Named[Expr] = key(WORDS, WORDS_DOC, required=True)
    remarks: tuple[RemarkRule, ...] = key(ListShape(REMARK), REMARKS_DOC)
    faults: tuple[RemarkRule, ...] = key(ListShape(REMARK), "sentences to refuse a configuration with")
    about: tuple[str, ...] = key(
        PATTERNS,
        "what keys look like that are about caches; `*` is any letters. One that no rule read puts a number in doubt",
    )
    plain: tuple[str, ...] = key(
        NAMES, "first words of keys that say nothing of what they are about: they make no family"
    )
    aside: tuple[str, ...] = key(
        PATTERNS, "keys that look so and change no byte of a cache; `*` hides no key of a family that a rule reads"
    )


MODEL = document("model", "a model", "which layers have which kind of cache, with which numbers", ModelKeys)
DEPLOYMENT = document("deployment", "a deployment", "which pairs of sides are to be compiled", DeploymentKeys)
CONFIG = document("config", "a config", "how the configurations of one format are read, whatever the model", ConfigKeys)
