"""The forms of config files, and of what a model adds to them: how configurations of checkpoints are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import LABEL
from kvplan.dsl.schema.forms import (
    DocumentKeys,
    EitherShape,
    Form,
    FormKeys,
    LaterShape,
    ListShape,
    MapShape,
    document,
    key,
)
from kvplan.dsl.schema.kind import Rule
from kvplan.dsl.schema.shapes import FOREIGN, TEXT, TRUTH, NameShape, ScalarShape, TextShape
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar

NAMES = ListShape(TextShape("name"), bare=True)
PATTERNS = ListShape(TextShape("pattern"), bare=True)
WORDS = MapShape(FOREIGN)
WORDS_DOC = "names for what a configuration says, in this order; each may use those before it"
REMARKS_DOC = "sentences to print about a configuration"


@dataclass(frozen=True, slots=True)
class RemarkRule(FormKeys):
    """A sentence to say where `when` holds; {name} is replaced. `numbers`: some number may be wrong for that."""

    when: Expr = key(FOREIGN, "where it is said", required=True)
    say: YamlScalar = key(TEXT, "the sentence; `{name}` is replaced", required=True)
    numbers: bool = key(TRUTH, "whether a number may be another one for that: a doubt that somebody has to accept")


@dataclass(frozen=True, slots=True)
class FoundKeys(Rule):
    kind: str = key(NameShape("kind"), "what is stored", required=True)


REMARK = Form("a remark", RemarkRule)
FOUND = Form("a cache's rule", FoundKeys, rest=FOREIGN)


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """What a class of configurations has where one leaves keys out.

    `keys` have these values by default, `other` ones the class works out from other keys. `same`: another name of a
    key -> its own; `inside`: a key -> the `model_type` of the configuration in it, and keys that it has otherwise.
    `apart` are keys that look as if they were about caches, of a class that has the model that writes text inside.
    """

    keys: Mapping[str, object] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigClasses:
    """Classes of configurations by the `model_type` that they are for, and the release that they are from."""

    release: str = ""
    entries: Mapping[str, ConfigClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigRules(DocumentKeys):
    """How configurations are read. A word is asked for one layer if its expression needs `layer`; `always` are those
    that are asked for in any case. `caches` are rules of a model's own, for each name the first that holds; kinds that
    they are about have no others. `families` are first words of keys that rules of kinds read, without `plain` ones.
    """

    caches: tuple[Rule, ...] = field(default=(), kw_only=True)
    families: frozenset[str] = field(default=frozenset(), kw_only=True)
    always: tuple[str, ...] = field(
        default=("layers", "runs", "dtype", "query_heads", "title", "name", "layer_is", "bare"), kw_only=True
    )
    inside: tuple[str, ...] = key(NAMES, "mappings in which the numbers of a model may stand")
    outermost: tuple[str, ...] = key(
        NAMES,
        "names of one fact about a whole checkpoint: the outermost mapping that has one counts",
    )
    match: tuple[str, ...] = key(NAMES, "keys that tell one model from another; the first must hold")
    classes: ConfigClasses = key(
        LaterShape(ScalarShape("path")),
        "a JSON file beside this one with what classes of configurations have by default"
        " (examples/dumps/class_defaults.py writes it)",
        default=ConfigClasses(),
    )
    words: tuple[tuple[str, Expr], ...] = key(LaterShape(WORDS), WORDS_DOC, required=True, default=())
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
    common: tuple[str, ...] = key(
        PATTERNS,
        "keys of many models that no cache depends on; if a model's class is unknown and nobody compared it, any other"
        " key that no rule reads is a doubt",
    )


@dataclass(frozen=True, slots=True)
class OwnKeys(FormKeys):
    words: Named[Expr] = key(WORDS, WORDS_DOC)
    caches: Named[Tree] = key(
        MapShape(EitherShape((FOUND, ListShape(FOUND))), names=LABEL),
        "rules for caches, which come before those of the kinds",
    )
    remarks: tuple[RemarkRule, ...] = key(ListShape(REMARK), REMARKS_DOC)


OWN = Form("config", OwnKeys)
CONFIG = document(
    "config", "a config", "how the configurations of one format are read, whatever the model", ConfigRules
)
