"""Remarks about a configuration and its layers; identical ones are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import ForeignValues, ask
from kvplan.dsl.schema.config import RemarkRule
from kvplan.dsl.text.diagnostics import layer_ranges, listed


@dataclass(frozen=True, slots=True)
class LayerRemarks:
    """Remarks about layers: for each sentence its layers, ascending, and its subjects."""

    layers: dict[str, tuple[list[int], list[str]]] = field(default_factory=dict)

    def add(self, layer: int, text: str, about: str = "") -> None:
        layers, subjects = self.layers.setdefault(text, ([], []))
        if layer not in layers[-1:]:
            layers.append(layer)
        if about and about not in subjects:
            subjects.append(about)

    def about(self, layer: int) -> bool:
        """Whether a remark is about `layer`, which must be the highest layer so far."""
        return any(layers[-1] == layer for layers, _ in self.layers.values())

    @property
    def every(self) -> frozenset[int]:
        """All layers that have a remark."""
        return frozenset(layer for layers, _ in self.layers.values() for layer in layers)

    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentence(text, layers, subjects) for text, (layers, subjects) in self.layers.items())


def _sentence(text: str, layers: list[int], subjects: list[str]) -> str:
    about = f": the rules for {listed(subjects, 'and')} could not be judged" if subjects else ""
    return f"{layer_ranges(layers)}: {text}{about}"


def remarks_of(
    remarks: Sequence[RemarkRule],
    facts: ForeignValues,
    layer_facts: Sequence[ForeignValues],
    layered: Sequence[tuple[str, Expr]],
) -> tuple[str, ...]:
    """The sentences whose `when` holds, and the doubt in place of one whose `when` meets a value of a wrong type.

    A `when` that uses a `layered` word is evaluated at each layer, and its sentence names the layers.
    """
    words = {name for name, _ in layered}
    sentences: list[str] = []
    for remark in remarks:
        if remark.when.names & words:
            sentences += _at_layers(remark, layer_facts)
        elif text := _sentence_if_true(remark, facts):
            sentences.append(text)
    return tuple(dict.fromkeys(sentences))


def _sentence_if_true(remark: RemarkRule, facts: ForeignValues) -> str:
    answer = ask(remark.when, facts)
    return filled(remark.say, facts.values) if answer.value else answer.doubt if answer.named else ""


def _at_layers(remark: RemarkRule, layer_facts: Sequence[ForeignValues]) -> tuple[str, ...]:
    remarks = LayerRemarks()
    for layer, facts in enumerate(layer_facts):
        if text := _sentence_if_true(remark, facts):
            remarks.add(layer, text)
    return remarks.sentences()
