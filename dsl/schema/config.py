"""The forms of config files, and of the `config` in models: rules for reading configurations of checkpoints."""

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
# The word for the number of draft layers.
DRAFTS = "drafts"
REMARKS_DOC = "sentences to print about a configuration"


@dataclass(frozen=True, slots=True)
class RemarkRule(FormKeys):
    """A sentence to print if `when` holds; {name} is replaced. `numbers`: it means that a number may be wrong."""

    when: Expr = key(FOREIGN, "where it is said", required=True)
    say: YamlScalar = key(TEXT, "the sentence; `{name}` is replaced", required=True)
    numbers: bool = key(TRUTH, "whether a number may be another one for that: a doubt that somebody has to accept")
    of: str = key(
        TextShape("number"),
        "the number, `dtype` or a parameter that it is about: a layout that gives it settles the doubt",
    )


@dataclass(frozen=True, slots=True)
class FoundKeys(Rule):
    kind: str = key(NameShape("kind"), "what is stored", required=True)


REMARK = Form("a remark", RemarkRule)
FOUND = Form("a cache's rule", FoundKeys, rest=FOREIGN)


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """The defaults of a class of configurations, for keys that a configuration leaves out.

    `keys` have these values by default; the class computes `other` keys. `same` maps other names of a key to its own.
    `inside` maps a key to the `model_type` of the inner configuration under it, and to its different defaults. `apart`
    are keys that seem to be about caches, but are not, because the model that writes text is an inner configuration.
    """

    keys: Mapping[str, object] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def every(self) -> frozenset[str]:
        """All keys that the class is known to have, under all their names."""
        return frozenset({*self.keys, *self.other, *self.same, *self.same.values(), *self.inside})


@dataclass(frozen=True, slots=True)
class ConfigClasses:
    """Classes of configurations by `model_type`, and the release that they were read from."""

    release: str = ""
    entries: Mapping[str, ConfigClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigRules(DocumentKeys):
    """Rules for reading configurations. A word whose expression uses `layer` is evaluated for each layer; `always` are
    the words that are always needed. `caches` are a model's own rules: for each name the first that holds counts, in
    place of the rules of its kind. `families` are first words of keys that rules of kinds read, without `plain` ones.
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
    keys: tuple[str, ...] = key(NAMES, "keys that rules read and that no class of `classes` has")
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
    no_effect: tuple[str, ...] = key(
        PATTERNS, "keys that look so and change no byte of a cache; `*` hides no key of a family that a rule reads"
    )
    common: tuple[str, ...] = key(
        PATTERNS,
        "keys of many models that no cache depends on; if a model's class is unknown and nobody compared it, any other"
        " key that no rule reads is a doubt",
    )

    @property
    def other_draft(self) -> bool:
        """Whether the rules say `drafts: 0`: the model's draft, if it has one, is not the checkpoint's."""
        return any(word == DRAFTS and expr.text == "0" for word, expr in self.words)


@dataclass(frozen=True, slots=True)
class OwnKeys(FormKeys):
    words: Named[Expr] = key(WORDS, WORDS_DOC)
    caches: Named[Tree] = key(
        MapShape(EitherShape((FOUND, ListShape(FOUND))), names=LABEL),
        "rules for caches, in place of a kind's own where one holds",
    )
    remarks: tuple[RemarkRule, ...] = key(ListShape(REMARK), REMARKS_DOC)
    no_effect: tuple[str, ...] = key(PATTERNS, "keys of this model that change no byte of a cache")


OWN = Form("config", OwnKeys)
CONFIG = document(
    "config", "a config", "how the configurations of one format are read, whatever the model", ConfigRules
)
