"""Sentences about a configuration and its layers, those that are alike as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.model import RemarkRule
from kvplan.dsl.rules.answers import ForeignValues, ask
from kvplan.dsl.text.diagnostics import listed, ranges


@dataclass(frozen=True, slots=True)
class LayerRemarks:
    """What is said of layers: a sentence -> the layers, ascending, and what it is said about."""

    found: dict[str, tuple[list[int], list[str]]] = field(default_factory=dict)

    def add(self, layer: int, text: str, about: str = "") -> None:
        at, what = self.found.setdefault(text, ([], []))
        if layer not in at[-1:]:
            at.append(layer)
        if about and about not in what:
            what.append(about)

    def about(self, layer: int) -> bool:
        """Whether something was said of a layer, the last of them."""
        return any(at[-1] == layer for at, _ in self.found.values())

    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentence(text, at, what) for text, (at, what) in self.found.items())


def _sentence(text: str, at: list[int], what: list[str]) -> str:
    about = f"{listed(what, 'and')}: " if what else ""
    return f"{'layers' if len(at) > 1 else 'layer'} {ranges(at)}: {about}{text}"


def remarks_of(
    remarks: tuple[RemarkRule, ...],
    facts: ForeignValues,
    here: tuple[ForeignValues, ...],
    about: tuple[tuple[str, Expr], ...],
) -> tuple[str, ...]:
    """The sentences whose `when` holds. One that asks for a word of layers is asked at each, and says at which."""
    layered = {name for name, _ in about}
    found: list[str] = []
    for remark in remarks:
        if names(remark.when) & layered:
            found += _at_layers(remark, here)
        elif ask(remark.when, facts).value:
            found.append(filled(remark.say, facts.values))
    return tuple(found)


def _at_layers(remark: RemarkRule, here: tuple[ForeignValues, ...]) -> tuple[str, ...]:
    said = LayerRemarks()
    for layer, facts in enumerate(here):
        if ask(remark.when, facts).value:
            said.add(layer, filled(remark.say, facts.values))
    return said.sentences()
