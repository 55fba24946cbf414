"""Hints at the place, or the name, of keys and words that a model file cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Call, Expr, Name, Node
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import entries
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import CACHE, MODEL
from kvplan.dsl.text.diagnostics import Sink, close, listed
from kvplan.dsl.text.yaml_reader import Tree, YamlTable


@dataclass(frozen=True, slots=True)
class ModelHints:
    """The things that a word of a model file may mean: `kinds` and `engines`, `words` of configurations, and the
    names that conditions may use."""

    kinds: Sequence[Kind]
    engines: Sequence[Engine]
    words: Sequence[tuple[str, Expr]]
    outer: Sequence[str]

    def of_side(self, word: str) -> str:
        """A hint at the key of a side that a word, such as an engine's flag, stands for; empty if it is none."""
        key = _side_keys(self.engines).get(word)
        return f"each side says it: {key}=…" if key else ""

    def of_condition(self, word: str) -> str:
        """A hint at the option that is meant by an unknown word in a condition; empty if no side has the word."""
        key = _side_keys(self.engines).get(word, "")
        return f"did you mean '{key}'?" if key in self.outer else f"conditions cannot use '{key}'" if key else ""

    def of_model(self, key: str, tree: Tree | None) -> str:
        """A hint at an unknown key of a model."""
        if isinstance(tree, YamlTable) and tree.get("kind"):
            return "write it under caches"
        words = (word for word, expr in self.words if word in MODEL.known and key in _alternatives(expr.tree))
        meant = next((f"did you mean '{word}'?" for word in words), "") or self.of_side(key)
        inner = key in CACHE.known or any(key in kind.params for kind in self.kinds)
        return meant or ("write it in a cache, under caches" if inner else "")

    def of_cache(self, key: str, kind: Kind, tree: Tree) -> str:
        """A hint at an unknown key of a cache of that kind."""
        if key in MODEL.known:
            return "write it beside caches: it is for the whole model"
        params = entries(Sink(), tree, "").keys() - {*CACHE.known, *MODEL.known}
        if fits := [f"'{other.name}'" for other in self.kinds if _fits(other, params)]:
            return f"these are keys of kind {listed(fits)}"
        if param := next((name for rule in kind.match for name, expr in rule.params.items() if expr.text == key), ""):
            return f"did you mean '{param}'?"
        if not kind.split and key in _divided(self.kinds):
            return f"leave it out: every worker has all of a cache of kind '{kind.name}'"
        if close(key, kind.params):
            return ""
        others = [f"'{other.name}'" for other in self.kinds if key in other.params]
        return f"caches of kind {listed(others)} have it" if others else self.of_side(key)


def _fits(kind: Kind, params: Iterable[str]) -> bool:
    """Whether a cache of that kind may have exactly these parameters."""
    return {name for name, param in kind.params.items() if param.default is None} <= {*params} <= kind.params.keys()


def _side_keys(engines: Iterable[Engine]) -> Mapping[str, str]:
    """The keys of a side by the words for them: axes, options and flags of the engines that kvplan starts."""
    started = [each for each in engines if each.serve]
    flags = {flag: key for each in started for flag, key in each.flags.items()}
    return flags | {key: key for each in started for key in (*each.mesh.workers, *each.mesh.derived, *each.options)}


def _alternatives(node: Node) -> Iterator[str]:
    """The names whose value may be that of the whole expression."""
    if isinstance(node, Name):
        yield node.id
    if isinstance(node, Call) and node.function in ("first", "agreed"):
        yield from (name for arg in node.args for name in _alternatives(arg))


def _divided(kinds: Iterable[Kind]) -> set[str]:
    """The parameters of kinds whose items workers divide among them: heads, channels."""
    axes = ((kind.split, axis, expr) for kind in kinds for t in kind.tensors.values() for axis, expr in t.axes)
    return {expr.text for split, axis, expr in axes if axis in split and expr is not None}
