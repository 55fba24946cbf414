"""Write a recognised model as a model file: numbers with the keys they are from, doubts as notes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvplan.dsl.configs.recognise import RecognisedCache, RecognisedModel
from kvplan.dsl.lang.nodes import Name, Number
from kvplan.dsl.rules.answers import Answer, ForeignValues
from kvplan.dsl.rules.rule import LIMIT
from kvplan.dsl.schema.config import DRAFTS
from kvplan.dsl.schema.kind import STATE, Kind, Param
from kvplan.dsl.schema.names import DRAFT_TOKENS

WIDTH = 120
PERIODS = range(2, 17)
# Up to this many layers a list is easier to read than an expression with an end.
LISTED = 6
UNCOMMENT = "\n# Draft layers: if they store what the others do, uncomment `drafts` above and these lines."
PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./ -]*")


@dataclass(frozen=True, slots=True)
class ModelHead:
    """The head of a file: the model's name and title, the keys that `match` has, the checkpoint's own names, and the
    program that wrote the file."""

    name: str
    title: str
    match: Mapping[str, tuple[str, ...]]
    checkpoint: Mapping[str, str] = field(default_factory=dict)
    writer: str = ""


def model_text(head: ModelHead, model: RecognisedModel, kinds: Mapping[str, Kind]) -> str:
    """The text of a model file."""
    lines = [f"# Written by {head.writer}. Comments name the keys that numbers are from."] if head.writer else []
    lines += ["kvplan: 1", f"model: {head.name}", f"title: {quoted(head.title)}", *_mapping("match", head.match)]
    lines += _mapping("checkpoint", {key: (word,) for key, word in head.checkpoint.items()})
    lines += _answered("dtype", model.dtype, model.facts) + _answered("query_heads", model.query_heads, model.facts)
    drafts = _drafts(model, kinds)
    lines += [*_answered("layers", model.layers, model.facts), *drafts[:1], *_no_cache(model)]
    lines += _doubts(grave(model))
    lines += [line for number, text in enumerate(model.remarks, 1) for line in _note(f"remark-{number}", text, "")]
    for cache in model.caches:
        lines += ["" if cache is not model.caches[0] else "\ncaches:", *_cache(cache, model, kinds[cache.kind].params)]
    return "\n".join([*lines, *drafts[1:]]) + "\n"


def _drafts(model: RecognisedModel, kinds: Mapping[str, Kind]) -> list[str]:
    """A checkpoint's draft layers as comments, their number first. They may store what layers with tokens do, if all
    of these store the same: otherwise nothing says what, and their caches are left out."""
    if not model.drafts.value:
        return []
    kept = [cache for cache in model.caches if kinds[cache.kind].store != STATE]
    alike = kept if len({cache.layers for cache in kept}) == 1 else []
    (count,) = _answered(DRAFTS, replace(model.drafts, doubt=""), model.facts)
    return [f"# {count}", *([UNCOMMENT] if alike else []), *(_draft(c, kinds, alike) for c in alike)]


def _draft(cache: RecognisedCache, kinds: Mapping[str, Kind], alike: Sequence[RecognisedCache]) -> str:
    name = "draft" if len(alike) == 1 else f"draft-{cache.name}"
    numbers = "".join(f"{name}: {answer.value}, " for name, answer in _written(cache, kinds[cache.kind].params))
    return f"#   {name}: {{kind: {cache.kind}, layers: drafts, {numbers}when: {DRAFT_TOKENS} > 0, optional: true}}"


def quoted(text: str) -> str:
    """A text as a YAML scalar on one line: plain if that gives the same text, else in single quotes."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if PLAIN.fullmatch(flat) and not flat.endswith(" ") else "'" + flat.replace("'", "''") + "'"


def grave(model: RecognisedModel) -> tuple[str, ...]:
    """All doubts that mean that a number may be wrong, as sentences."""
    return (*(sentence for *_, sentence in doubted(model)), *model.doubts)


def doubted(model: RecognisedModel) -> Iterator[tuple[str, Answer, str]]:
    """The name, the answer and the doubt as a sentence, for each number with one."""
    # How many layers a draft has may be assumed: it changes nothing that the file stores.
    drafts = replace(model.drafts, doubt=model.facts.doubts[DRAFTS] if DRAFTS in model.facts.disputed else "")
    own = (("", "dtype", model.dtype), ("", "layers", model.layers), ("", DRAFTS, drafts))
    stored = ((f"{cache.name}.", name, answer) for cache in model.caches for name, answer in told(cache))
    for of, name, answer in (*own, *stored):
        if answer.doubt:
            yield name, answer, f"{of}{name}: {answer.doubt}"


def doubts(model: RecognisedModel) -> Iterator[str]:
    """All doubts and remarks, as sentences: first those that mean that a number may be wrong."""
    yield from grave(model)
    if model.query_heads.doubt:
        yield f"query_heads: {model.query_heads.doubt}"
    yield from model.remarks


def _doubts(sentences: Iterable[str]) -> list[str]:
    """The key `doubts` with its list, which the file keeps until a person removes it."""
    lines = [f"  - {quoted(sentence)}" for sentence in sentences]
    return ["doubts:  # take out what you have compared with an engine", *lines] if lines else []


def told(cache: RecognisedCache) -> list[tuple[str, Answer]]:
    """The parameters with a value or a doubt, without those that the configuration leaves to the kind's default."""
    return [(name, answer) for name, answer in cache.params.items() if answer.value is not None or not answer.absent]


def _mapping(key: str, entries: Mapping[str, tuple[str, ...]]) -> list[str]:
    """`key: {entry: word, entry: [word, word]}`; no line if all entries are empty."""
    given = [
        f"{name}: {quoted(words[0]) if len(words) == 1 else _flow(words)}" for name, words in entries.items() if words
    ]
    return [f"{key}: {{{', '.join(given)}}}"] if given else []


def _flow(words: Iterable[str]) -> str:
    return f"[{', '.join(quoted(word) for word in words)}]"


def _answered(name: str, answer: Answer, facts: ForeignValues, indent: str = "") -> list[str]:
    """A key with its value and its sources as a comment, and a note if it is in doubt."""
    note = _note(name, answer.doubt, indent) if answer.doubt else []
    if answer.value is None:
        return note
    return [f"{indent}{name}: {answer.value}{_from(answer.sources, _given_number(answer, facts))}", *note]


def _from(sources: Iterable[str], more: str = "") -> str:
    """The sources of a value as a comment, followed by `more`."""
    comment = ", ".join(source for source in sources if PLAIN.fullmatch(source)) + more
    return f"  # {comment}" if comment else ""


def _given_number(answer: Answer, facts: ForeignValues) -> str:
    """` is 512` if the number was computed from one key with another number, else empty."""
    given = [facts.values.get(source) for source in answer.sources]
    numbers = [number for number in given if isinstance(number, int) and not isinstance(number, bool)]
    worked_out = len(given) == len(numbers) == 1 and isinstance(answer.value, int) and numbers[0] != answer.value
    return f" is {numbers[0]}" if worked_out else ""


def _note(name: str, text: str, indent: str) -> list[str]:
    return [f"{indent}-{name}-note: {quoted(text)}"]


def _cache(cache: RecognisedCache, model: RecognisedModel, params: Mapping[str, Param]) -> list[str]:
    lines = [f"  {cache.name}:", f"    kind: {cache.kind}"]
    lines += _said_layers("    layers", cache.layers, cache.sources, model)
    lines += [line for each in _written(cache, params) for line in _answered(*each, model.facts, "    ")]
    lines += [line for text, of in model.unsure.items() if of in params for line in _note(of, text, "    ")]
    limits = [(name.removeprefix(LIMIT), answer) for name, answer in told(cache) if name.startswith(LIMIT)]
    lines += ["    needs:"] if limits else []
    return [*lines, *(line for limit in limits for line in _answered(*limit, model.facts, "      "))]


def _written(cache: RecognisedCache, params: Mapping[str, Param]) -> Iterator[tuple[str, Answer]]:
    """The parameters to write, without sure values that equal the kind's default and are from no key of their own."""
    for name, answer in (pair for pair in told(cache) if pair[0] in params):
        param = params[name]
        default = param.default.tree if param.default else None
        other = cache.params.get(default.id) if isinstance(default, Name) else None
        usual = default.value if isinstance(default, Number) else other.value if other else None
        if usual != answer.value or answer.doubt or _is_own(answer, other):
            yield name, answer


def _is_own(answer: Answer, other: Answer | None) -> bool:
    """Whether a number is from one key, and not from that of the `other` number to which it defaults."""
    return bool(answer.value) and len(answer.sources) == 1 and (other is None or answer.sources != other.sources)


def _no_cache(model: RecognisedModel) -> list[str]:
    reasons = {"mlp": model.mlp, "shared": model.shared}
    lines = [line for name, said in reasons.items() if said[0] for line in _said_layers(f"  {name}", *said, model)]
    return ["no_cache:", *lines] if lines else []


def _said_layers(key: str, layers: tuple[int, ...], sources: Iterable[str], model: RecognisedModel) -> list[str]:
    """The lines of `key` with the layers, and a comment with the keys that list them."""
    count = model.layers.value
    assert isinstance(count, int)
    first, *more = _layers(key, layers, count, _end(model))
    return [first + _from(source for source in sources if source not in model.layers.sources), *more]


def _end(model: RecognisedModel) -> int:
    """The number after the last layer that has a cache."""
    return 1 + max(layer for cache in model.caches for layer in cache.layers)


def _layers(key: str, layers: tuple[int, ...], count: int, end: int) -> list[str]:
    """The lines `key: LAYERS` of a cache. Layers from `end` on have no cache; `key` has the indent of its line."""
    if len(layers) == count:
        return [f"{key}: all"]
    if expression := periodic(layers, count):
        return [f"{key}: {expression}"]
    if len(layers) > LISTED and layers[-1] < end < count and (expression := periodic(layers, end)):
        return [f"{key}: {expression} and layer < {end}"]
    numbers = f"[{', '.join(map(str, layers))}]"
    if len(numbers) < WIDTH - 12:
        return [f"{key}: {numbers}"]
    indent = " " * (len(key) - len(key.lstrip()) + 2)
    return [f"{key}:", *textwrap.wrap(numbers, WIDTH, initial_indent=indent, subsequent_indent=indent)]


def periodic(layers: tuple[int, ...], count: int) -> str:
    """An expression of `layer` that is true for these of `count` layers; empty if a list is better.

    It covers one layer in each period or all but one, also only from some layer on, and all layers from or up to one.
    """
    for low in dict.fromkeys((0, layers[0])):
        if condition := _one_in_a_period(set(layers), range(low, count)):
            return f"layer >= {low} and {condition}" if low else condition
    if len(layers) < 3 or layers != tuple(range(layers[0], layers[-1] + 1)):
        return ""
    return f"layer >= {layers[0]}" if layers[-1] == count - 1 else f"layer < {layers[-1] + 1}" if not layers[0] else ""


def _one_in_a_period(layers: set[int], span: range) -> str:
    for period in (period for period in PERIODS if 2 * period <= len(span)):
        for at in range(period):
            periodic_layers = {layer for layer in span if layer % period == at}
            if layers in (periodic_layers, set(span) - periodic_layers):
                return f"layer % {period} {'==' if layers == periodic_layers else '!='} {at}"
    return ""
