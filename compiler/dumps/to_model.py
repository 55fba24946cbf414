"""Recognise a model in a dump: what each layer stores, by the rules of its engine's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.compiler.bind.mesh import PIPELINE
from kvplan.compiler.dumps.dump import Dump, DumpedLayer
from kvplan.compiler.errors import BadInput
from kvplan.dsl.configs.recognise import RecognisedModel, caches_of
from kvplan.dsl.files.engine_kinds import dump_rules
from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.foreign_json import value as foreign
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import Answer, ForeignValues, ask, with_words
from kvplan.dsl.rules.rule import RuleMatch, apply, first, lacking
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind, Rule
from kvplan.dsl.schema.model import MOST_LAYERS


def recognised(dump: Dump, engine: Engine, kinds: Mapping[str, Kind]) -> RecognisedModel:
    """Return a dump's model with an answer for every number. Raises BadInput (D011..D014)."""
    if engine.dump is None:
        raise BadInput("D011", f"the file of engine {engine.name!r} has no rules for dumps", "give it a `dump`")
    if (stages := dump.mesh.get(PIPELINE, 1)) > 1:
        said = f"the dump has the layers of one stage of {stages}, and a model has all"
        raise BadInput("D014", said, "print one with a pipeline of one stage")
    every = [with_words(facts_of(dump, layer), engine.dump.words.items(), lists=True) for layer in dump.layers]
    count = max((layer.layer for layer in dump.layers), default=-1) + 1
    if not 1 <= count <= MOST_LAYERS:
        raise BadInput("D013", f"a dump of {count} layers makes no model", f"a model has 1 to {MOST_LAYERS}")
    rules = dump_rules(engine.dump, kinds)
    found = [_found(rules, kinds, layer, facts) for layer, facts in zip(dump.layers, every, strict=True)]
    layers = Answer(count, "the last layers may store nothing; a dump cannot show them")
    heads = _most(engine.dump.query_heads, every)
    dtype = _dtype(engine.dump.dtype, every)
    caches = caches_of(zip((layer.layer for layer in dump.layers), found, strict=True))
    return RecognisedModel(ForeignValues({}), layers, dtype, heads, caches, ())


def facts_of(dump: Dump, layer: DumpedLayer) -> ForeignValues:
    """Return the values for rules; the layer's spec wins over the options in force, and these over the mesh sizes."""
    side = {name: int(text) if text.isdecimal() and len(text) < 10 else text for name, text in dump.side.items()}
    return ForeignValues({**dump.mesh, **side, **{name: foreign(value) for name, value in layer.spec.items()}})


def _found(rules: Sequence[Rule], kinds: Mapping[str, Kind], layer: DumpedLayer, facts: ForeignValues) -> RuleMatch:
    rule, said = first(rules, facts)
    if rule is None:
        shown = ", ".join(f"{name} {value}" for name, value in layer.spec.items() if isinstance(value, str | int))
        doubts = f"; {'; '.join(said)}" if said else ""
        file = rules[0].span.path if rules else "the engine's file"
        help = f"add a rule for it to `dump` in {file}, with a kind that stores it (docs/from-cache.md)"
        raise BadInput("D012", f"no rule says what layer {layer.name!r} stores: {shown[:300]}{doubts}", help)
    params = kinds[rule.kind].params
    found = apply(rule, facts, params)
    for name, why in lacking(params, found.params):
        raise BadInput("D013", f"layer {layer.name!r}, a cache of kind {rule.kind!r}, has no {name!r}: {why}", "")
    return found


def _answers(expr: Expr | None, every: Sequence[ForeignValues]) -> list[Answer]:
    return [ask(expr, facts) for facts in every] if expr else []


def _dtype(expr: Expr | None, every: Sequence[ForeignValues]) -> Answer:
    """Return the most certain answer. Raises BadInput (D013)."""
    known = [a for a in _answers(expr, every) if dtypes.canonical(str(a.value)) in dtypes.SIZES]
    if not known:
        raise BadInput("D013", "the dump does not say the model's element type", "correct the engine's `dump`")
    best = min(known, key=lambda answer: bool(answer.doubt))
    return best.giving(dtypes.canonical(str(best.value)))


def _most(expr: Expr | None, every: Sequence[ForeignValues]) -> Answer:
    known = [a for a in _answers(expr, every) if isinstance(a.value, int) and not isinstance(a.value, bool)]
    return max(known, key=lambda answer: int(answer.value or 0)) if known else Answer(None, "nothing says it", (), True)
