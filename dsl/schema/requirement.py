"""The form of requirements: conditions under which an engine, or its connector, can run."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.forms import Form, FormKeys, ListShape, key
from kvplan.dsl.schema.shapes import EXPRESSION, TEXT, NameShape
from kvplan.dsl.text.yaml_reader import YamlScalar

# The caches that a requirement is for: those of a kind, or of a store; a ring is a cache of tokens.
REQUIRED_OF = NameShape("kind", ("tokens", "state"))


@dataclass(frozen=True, slots=True)
class Requirement(FormKeys):
    """A condition, the sentence for its failure ({name} is replaced), and the kinds or stores whose caches it is about;
    without any it is about the side.
    """

    that: Expr = key(EXPRESSION, "what must hold", required=True)
    say: YamlScalar = key(
        TEXT, "the sentence to refuse with where it does not; `{name}` is replaced by a value", required=True
    )
    kinds: tuple[YamlScalar, ...] = key(
        ListShape(REQUIRED_OF, bare=True),
        "holds once for every cache of these kinds, whose parameters `that` and `say` may use, or of these stores:"
        " `tokens`, `state`",
        name="for",
    )


REQUIRE = Form("a requirement", Requirement)
