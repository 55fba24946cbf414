"""Compare a layout with a checkpoint's configuration: layer by layer, cache by cache, number by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kvplan.dsl.configs.families import spoken
from kvplan.dsl.configs.recognise import RecognisedModel
from kvplan.dsl.configs.same_model import MODEL_TYPE, conditions_of, params_of, renamed
from kvplan.dsl.rules.answers import Answer
from kvplan.dsl.rules.rule import LIMIT
from kvplan.dsl.schema.kind import STATE, Kind
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.text.diagnostics import as_written, layer_ranges, listed, ranges
from kvplan.dsl.text.grouped import grouped

UNSAID = Answer(None, absent=True)
# A cache, and its parameters as values.
_Known = tuple[Cache, Mapping[str, object]]
MODEL = ("layers", "dtype", "query_heads")
CONDITIONS = ("when", "optional")
ALONE = "caches of kind"
# From so many commas on a list of layers hides what is said of them.
FEW = 4
# The parts of a layout that differences may be about.
MATCH, DRAFTED = "match", "drafts"
UNDRAFTED = ": an engine that drafts with them stops at start-up (I005); `kvplan new` writes the lines as comments"
FOUND_BY_NAME = ": correct match, or a connector finds {} for this checkpoint only by name"
# The keys of a configuration that give the words of `checkpoint`.
KEYS_OF = {"architecture": "architectures", MODEL_TYPE: MODEL_TYPE}


@dataclass(frozen=True, slots=True)
class Difference:
    """A number or cache about which a configuration and a layout disagree, with both values in words.

    `keys` are the keys of the configuration that give the value. `sure` is false if it does not contradict the layout.
    `about` is MATCH or DRAFTED if it is about the layout's `match` or its draft layers. `param` is the kind of cache
    and the parameter that differ, empty for anything else.
    """

    what: str
    configured: str
    layout: str
    keys: tuple[str, ...] = ()
    sure: bool = True
    about: str = ""
    param: tuple[str, str] = ("", "")

    def text(self, config: str, layout: str) -> str:
        """`layer 3: window of sliding: 512 in config.json (sliding_window), 256 in mine`."""
        source = f"in {config} ({listed(self.keys, 'and')})" if self.keys else f"as {config} is read"
        undrafted = UNDRAFTED if self.about == DRAFTED and self.layout == "0" else ""
        found = FOUND_BY_NAME.format(layout) if self.about == MATCH else undrafted
        return f"{self.what}: {self.configured} {source}, {self.layout} in {layout}{found}"


def differences(kinds: Mapping[str, Kind], found: RecognisedModel, made: Model, layout: Model) -> Iterator[Difference]:
    """The differences between a layout and a configuration: `found` is what was read of it, `made` its model file.

    The layout's draft layers are compared if the configuration has some: each stores what a layer of the model does.
    """
    answers = {name: getattr(found, name) for name in MODEL}
    numbers = (_number(n, answers[n], _own(made, n), _own(layout, n)) for n in MODEL if _differ(made, layout, n))
    yield from (replace(each, sure=each.sure and each.what not in found.unsure.values()) for each in numbers)
    yield from _matched(found, layout)
    for key in renamed(made, layout):
        configured, stored = str(made.values[key]), str(layout.values[key])
        yield Difference(f"{key} of checkpoint", configured, stored, (KEYS_OF[key],), key == MODEL_TYPE)
    yield from _shared(found, made.no_cache.shared, layout.no_cache.shared)
    yield from _drafts(found.drafts, layout)
    compare = _Layers(kinds, found, made, layout)
    own = ((each, layer) for layer in range(min(made.layers, layout.layers)) for each in compare.at(layer, layer))
    drafts = range(layout.layers, layout.layers + layout.drafts) if found.drafts.value else ()
    drafted = ((each, layer) for layer in drafts for each in compare.draft(layer))
    for each, layers in grouped((*own, *drafted)).items():
        what = f"{_at(layers, each.what.startswith(ALONE))}: {each.what}"
        about = DRAFTED if layers[-1] >= layout.layers else ""
        yield replace(each, what=what, about=about)


def _at(layers: Sequence[int], exact: bool) -> str:
    """The layers of a difference; of many ranges, unless it is about single layers, their number and the outermost."""
    said = layer_ranges(layers)
    return said if exact or said.count(",") < FEW else f"{len(layers)} layers from {layers[0]} to {layers[-1]}"


def _own(model: Model, name: str) -> object:
    return model.layers if name == "layers" else model.values.get(name)


def _differ(made: Model, layout: Model, name: str) -> bool:
    """Whether the configuration gives a number, and the layout gives none or another."""
    configured = _own(made, name)
    return configured is not None and configured != _own(layout, name)


def _number(what: str, answer: Answer, configured: object, layout: object) -> Difference:
    """A layout that gives no number contradicts none: then sharding by it is not checked."""
    stored = "none" if layout is None else str(layout)
    return Difference(what, str(configured), stored, answer.sources, not answer.doubt and layout is not None)


def _drafts(configured: Answer, layout: Model) -> Iterator[Difference]:
    """The difference in the number of draft layers. A layout without any contradicts none: an engine may not draft. Nor
    does one whose draft is not the checkpoint's."""
    if configured.value not in (None, layout.drafts) and not layout.config.other_draft:
        sure = layout.drafts > 0 and not configured.doubt
        yield Difference("drafts", str(configured.value), str(layout.drafts), configured.sources, sure, DRAFTED)


def _matched(found: RecognisedModel, layout: Model) -> Iterator[Difference]:
    """The keys of a layout's `match` that the configuration contradicts. They change no byte, so none is sure."""
    for key, wanted in layout.match.items():
        value = found.facts.values.get(key)
        said = spoken(value)
        if not {*said} & {*wanted}:
            yield Difference(f"{key} of match", listed(said, "and"), listed(wanted), (key,), False, MATCH)


def _shared(found: RecognisedModel, configured: Sequence[int], layout: Sequence[int]) -> Iterator[Difference]:
    """The difference between the layers that read another layer's cache, if there is one."""
    if other := set(configured) ^ set(layout):
        mine, theirs = (ranges(layers) or "no layers" for layers in (configured, layout))
        yield Difference("no_cache.shared", mine, theirs, found.shared[1], not other & found.unjudged)


@dataclass(frozen=True, slots=True)
class _Layers:
    """Two models to compare layer by layer: the one that a configuration describes, and a layout."""

    kinds: Mapping[str, Kind]
    found: RecognisedModel
    made: Model
    layout: Model

    def draft(self, layer: int) -> Iterator[Difference]:
        """The differences between a draft layer of the layout and the layer of the model that is most like it.

        If it equals one layer, those to the other layers, as the draft may be like one of them.
        """
        every = [tuple(self.at(own, layer, CONDITIONS)) for own in self._drafting()]
        nearest = min(every, key=_weight)
        yield from nearest or dict.fromkeys(_either(each) for other in every for each in other)

    def _drafting(self) -> list[int]:
        """The layers that a draft may be like, one for each set of caches: those with tokens, or all if none has."""
        unequal = {tuple(cache.name for cache in _caches(self.made, own)): own for own in range(self.made.layers)}
        return [own for own in unequal.values() if self._keeps_tokens(own)] or [*unequal.values()]

    def _keeps_tokens(self, layer: int) -> bool:
        return any(self.kinds[cache.kind].store != STATE for cache in _caches(self.made, layer))

    def at(self, own: int, layer: int, but: Sequence[str] = ()) -> Iterator[Difference]:
        """The differences between a layer of the configuration, `own`, and one of the layout, without the keys `but`.

        Caches of one kind are compared with each other, in the order of the files.
        """
        stored = ((self.made, _caches(self.made, own)), (self.layout, _caches(self.layout, layer)))
        for kind in dict.fromkeys(cache.kind for _, caches in stored for cache in caches):
            mine, theirs = (
                [(c, self._params(c, model, but)) for c in caches if c.kind == kind] for model, caches in stored
            )
            for cache, other in _unequal(mine, theirs):
                yield from self._numbers(cache, other)
            yield from self._alone(own, kind, len(mine), len(theirs))

    def _params(self, cache: Cache, model: Model, but: Sequence[str]) -> Mapping[str, object]:
        kind = self.kinds[cache.kind]
        values = {**params_of(kind, cache, model), **conditions_of(kind, cache, model)}
        return {name: value for name, value in values.items() if name not in but}

    def _numbers(self, mine: _Known, theirs: _Known) -> Iterator[Difference]:
        """The differences in parameters and conditions that a file gives."""
        (cache, configured), (other, stored) = mine, theirs
        params = (n for n in self.kinds[cache.kind].params if n in {*cache.params, *other.params})
        for name in (*params, *CONDITIONS, *_limits(mine, theirs)):
            values = self._words(cache, name, configured), self._words(other, name, stored)
            if values[0] != values[1]:
                answer = self._answer(cache, name)
                sure = not answer.doubt and name not in self.found.unsure.values() and not _moves_all(other, name)
                yield Difference(f"{name} of {other.name}", *values, answer.sources, sure, "", (other.kind, name))

    def _words(self, cache: Cache, name: str, values: Mapping[str, object]) -> str:
        """A value in words. A default that depends on a side is `the side's kv_dtype`."""
        params = self.kinds[cache.kind].params.items()
        defaults = {other: param.default.text for other, param in params if param.default and param.default.names}
        said = _said(values, name)
        # A parameter may be given another one's name, and so its default.
        default = defaults.get(said, said)
        return f"the side's {default}" if default in defaults.values() else said

    def _answer(self, cache: Cache, name: str) -> Answer:
        params = next(found.params for found in self.found.caches if found.name == cache.name)
        answer = params.get(name, UNSAID)
        return UNSAID if answer.value is None else answer

    def _alone(self, layer: int, kind: str, configured: int, stored: int) -> Iterator[Difference]:
        """The difference in the number of caches of a kind. A layer in doubt may have more than were recognised."""
        if configured != stored:
            known = configured > stored or layer not in self.found.unjudged
            yield Difference(f"{ALONE} {kind}", str(configured) if known else "unknown", str(stored))


def _either(each: Difference) -> Difference:
    """A difference as one of two values that the configuration leaves open."""
    return replace(each, configured=f"{each.layout} or {each.configured}", sure=False)


def _weight(found: Sequence[Difference]) -> tuple[int, int]:
    """The order of comparisons: those with the fewest caches that have no counterpart first, then the shortest."""
    return sum(each.what.startswith(ALONE) for each in found), len(found)


def _unequal(mine: Sequence[_Known], theirs: Sequence[_Known]) -> Iterator[tuple[_Known, _Known]]:
    """Pairs of caches of one kind and layer, without those that have an equal on the other side."""
    left = [known for known in mine if known[1] not in [params for _, params in theirs]]
    right = [known for known in theirs if known[1] not in [params for _, params in mine]]
    return zip(left, right, strict=False)


def _caches(model: Model, layer: int) -> Sequence[Cache]:
    return [cache for cache in model.caches.values() if layer in cache.layers]


def _limits(*both: _Known) -> list[str]:
    """The limits of `needs` to compare. A kind has its limits from parameters, which are compared anyway."""
    if not any(cache.needs for cache, _ in both):
        return []
    return sorted({name for _, values in both for name in values if name.startswith(LIMIT)})


def _moves_all(cache: Cache, name: str) -> bool:
    """Whether a limit is left out by `needs: all`, which moves more tokens than layers read, and so none too few."""
    return name.startswith(LIMIT) and cache.needs is not None and not cache.needs.limits


def _said(values: Mapping[str, object], name: str) -> str:
    """A value in words. A limit that is not given limits nothing, as 0 does."""
    return as_written(values.get(name, 0 if name.startswith(LIMIT) else None))
