"""Two engines before they start: their caches, their settings, and whether plans can be made.

The results are plain values, as `kvplan doctor` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from kvplan.compiler.api import compile_bound, faster, path, side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bind.instead import deciding, stored_values
from kvplan.compiler.bind.key import is_usual
from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.bind.require import applied
from kvplan.compiler.bound import BoundSide, BoundTensor
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.keys import check_pool, side_words
from kvplan.compiler.side.options import Env
from kvplan.compiler.side.text import parse_side
from kvplan.dsl.files.engine_kinds import DECODES, WHOLE
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.lang.nodes import Value
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import placeholders
from kvplan.dsl.schema.model import CHECKPOINT, Model
from kvplan.dsl.schema.serve import Serve, Setting
from kvplan.dsl.text.diagnostics import as_written
from kvplan.plan.types import ALL, Group, Side

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

Plain = dict[str, Any]
# Advice about a limit of a connector, if settings or directions may help, and if none does.
LIMITED = "choose another {} for this side; `kvplan explain I012` says where all limits are listed"
ANY, FIXED = "setting, direction or engine", "engine"
# Advice about caches that an engine stores otherwise because of the checkpoint's names.
KEPT = (
    "on a worker a token takes {:,} bytes, {} times the {:,} with {}: give that option if your build of {} stores it so"
)
MOVED = ("workers", "groups", "store", "descriptors", "bytes")


@dataclass(frozen=True, slots=True)
class ExaminedSide:
    """A side by its `text`: bound, or the refusal to bind it."""

    library: Library
    model: Model
    engine: Engine
    text: str
    bound: BoundSide | None
    refusal: Refused | None

    @property
    def given(self) -> dict[str, str]:
        """The keys of the side but its engine."""
        return {key: value for key, value in parse_side(self.text).items() if key != "engine"}

    @property
    def values(self) -> Env:
        """The values of the engine's options on this side."""
        return stored_values(self.library, self.engine, self.model, self.given)

    def named(self, words: Mapping[str, Value]) -> Model:
        """The model with these words of a checkpoint, whatever its file says."""
        return replace(self.model, values={**self.model.values, **words})


def examined(library: Library, model: Model, text: str) -> ExaminedSide:
    """Return the side `text` of `model`. Raises BadInput (S…), DslError."""
    engine = library.engine(parse_side(text).get("engine", library.default_engine))
    check_pool(text)
    text = side_words(engine, text)
    try:
        return ExaminedSide(library, model, engine, text, bind(library, model, text), None)
    except Refused as error:
        return ExaminedSide(library, model, engine, text, None, error)


def stores_otherwise(side: ExaminedSide, words: Mapping[str, Value]) -> bool:
    """Return whether the engine stores something else if its model has these `words`, whatever its file says."""
    named = side.named(words)
    if named.values == side.model.values:
        return False
    return _stored(examined(side.library, named, side.text)) != _stored(side)


def overruled(side: ExaminedSide, words: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield options of a side that its engine decides by the checkpoint's names, and what it takes for these `words`.

    An option that a setting of the engine's start changes is not among them.
    """
    if not side.bound:
        return
    named, given = side.named(words), side.given
    settings = side.engine.serve.settings if side.engine.serve else {}
    defaults = {name: option.default for name, option in side.engine.options.items() if option.default}
    by_name = (name for name, default in defaults.items() if default.names.intersection(CHECKPOINT.known))
    for name in (name for name in by_name if name in given and name not in settings):
        rest = {key: value for key, value in given.items() if key != name}
        said, taken = (stored_values(side.library, side.engine, named, each)[name] for each in (given, rest))
        if said != taken:
            yield f"{name}={as_written(said)}", f"{name}={as_written(taken)}"


def _stored(side: ExaminedSide) -> object:
    return side_of(side.bound)[0].digest if side.bound else refusal(side.refusal)


def describe_examined(side: ExaminedSide, part: str) -> Plain:
    """Return a side with its groups and its engine's settings, or with its refusal.

    `part` is the engine's role: prefill, decode or both. `connector_error` is the error with which the connector would
    stop the engine. `start` is None if it would, or if there is no connector.
    """
    error = connector_error(side, part)
    head = {"connector_error": error, "part": part, "engine": side.engine.name, "versions": side.engine.versions}
    if side.bound is None:
        return {**head, "side": side.text, "error": refusal(side.refusal)}
    kept, _ = side_of(side.bound)
    return {
        **head,
        "side": kept.key,
        "digest": kept.digest,
        "groups": [_group(kept, group) for group in kept.groups],
        "unprobed": list(side.bound.unprobed),
        "notes": [*side.bound.notes, *_smaller(side, kept)],
        "start": _start(side, side.engine.serve, part, side.bound) if side.engine.serve and not error else None,
    }


def _smaller(side: ExaminedSide, kept: Side) -> Iterator[str]:
    """Yield a note for each missing option with which the engine would store fewer bytes."""
    caches = side.bound.caches if side.bound else ()
    kinds = ((cache.kind, side.model.caches[cache.name].kind) for cache in caches)
    options = [each for stored, kind in kinds if stored != kind for each in deciding(side.engine, kind)]
    found = dict.fromkeys(f"{name}={value}" for name, value in options if name not in side.given)
    for option in found:
        other = examined(side.library, side.model, f"{side.text},{option}")
        few, many = (_token_bytes(each) for each in (side_of(other.bound)[0] if other.bound else kept, kept))
        if few < many:
            yield KEPT.format(many, f"{many / few:.3g}", few, option, side.engine.name)


def _token_bytes(side: Side) -> int:
    """Return the bytes that a token takes on the first worker."""
    tokens = {group.name: group.tokens for group in side.groups if group.store == "tokens"}
    planes = (each for each in side.workers[0].planes if each.group in tokens)
    return sum(each.page_bytes * prod(len(at) for _, at, _ in each.loops) // tokens[each.group] for each in planes)


def limits(library: Library, side: BoundSide, part: str) -> str:
    """Return why its connector would stop a bound side's engine, empty if it would not or there is none."""
    engine, model = library.engine(side.engine), library.model(side.model)
    error = connector_error(ExaminedSide(library, model, engine, side.key, side, None), part)
    return str(error["message"]) if error else ""


def connector_error(side: ExaminedSide, part: str) -> Plain | None:
    """Return the error with which its connector would stop this engine; None if it would not or there is none.

    A limit that no setting changes is known of a side that is refused, too.
    """
    serve = side.engine.serve
    if serve is None:
        return None
    fixed = [*_never(side, serve), *(_mixed_pool(side.bound, serve.windows) if side.bound else ())]
    why = "; ".join(dict.fromkeys([*fixed, *_broken(side, serve, part)]))
    return {"code": "I012", "message": why, "help": LIMITED.format(FIXED if fixed else ANY)} if why else None


def _never(side: ExaminedSide, serve: Serve) -> list[str]:
    """Return the limits on kinds that the model has on every side."""
    own = [
        cache.kind for cache in side.model.caches.values() if not cache.when and cache.kind not in side.engine.instead
    ]
    kinds = {*own, *(side.library.kind(kind).store for kind in own)}
    rules = (rule for rule in serve.require if not rule.that.names and kinds & {*rule.kinds})
    return [str(r.say) for r in rules if not placeholders(r.say) and evaluate(r.that, {}) is not True]


def _broken(side: ExaminedSide, serve: Serve, part: str) -> list[str]:
    """Return the limits that a side breaks as it is bound; none if it is refused."""
    if side.bound is None:
        return []
    if part not in serve.roles:
        return [f"one engine of {side.engine.name} either prefills or decodes"]
    env = {**side.values, DECODES: part != "prefill"}
    whole = {cache.name: {**env, WHOLE: cache.needs.whole} for cache in side.bound.caches}
    rules = applied(serve.require, side.bound.caches, env, whole)
    return [filled(rule.say, known) for rule, known, _ in rules if evaluate(rule.that, known) is not True]


def _mixed_pool(side: BoundSide, flag: str) -> Iterator[str]:
    """Yield an error per kind whose layers have rows of several sizes, if `flag` makes one pool for all layers."""
    for kind in dict.fromkeys(cache.kind for cache in side.caches if flag and cache.needs != ALL):
        rows = {cache.name: cache.tensors for cache in side.caches if cache.kind == kind}
        if len(set(rows.values())) > 1:
            told = "; ".join(f"{name}: {_rows(tensors)}" for name, tensors in rows.items())
            one = f"{flag} makes one pool for all layers, whose rows have one size"
            yield f"{one}; this model has several ({told}), and no setting changes that"


def _rows(tensors: Sequence[BoundTensor]) -> str:
    """Return the shapes of rows without the token axis: `k 8 x 128, v 8 x 128` for 8 heads and 128 elements."""
    return ", ".join(f"{t.name} {' x '.join(str(extent) for _, extent in t.axes if extent)}" for t in tensors)


def describe_way(prefill: ExaminedSide, decode: ExaminedSide) -> Plain:
    """Return a plan from one side to another with its cost, or the refusal.

    Descriptors and bytes are per 1024 tokens, or per request for a state. Raises BadInput, DslError.
    """
    if prefill.bound is None or decode.bound is None:
        return {"works": False, "error": refusal(prefill.refusal or decode.refusal)}
    try:
        compiled = compile_bound(
            prefill.bound, decode.bound, title=prefill.model.title, files=(prefill.library, prefill.model)
        )
    except Refused as error:
        return {"works": False, "error": refusal(error)}
    plan = compiled.plan
    moves = [{name: getattr(move, name) for name in MOVED} for move in compiled.facts.moves]
    sides = {"prefill": plan.prefill.key, "decode": plan.decode.key}
    hint = faster({"this pair": compiled}, prefill.library)
    return {"works": True, **sides, "plan": plan.digest, "path": path(plan), "moves": moves, "hint": hint}


def refusal(error: Refused | None) -> Plain:
    return {} if error is None else {"code": error.code, "message": error.message, "help": error.help}


def _group(side: Side, group: Group) -> Plain:
    """Return a group's tokens per block, page sizes and strides in bytes: several if workers or caches differ."""
    entries = [entry for worker in side.workers for entry in worker.planes if entry.group == group.name]
    sizes = {"pages": sorted({entry.page_bytes for entry in entries})}
    sizes |= {"strides": sorted({entry.stride or entry.page_bytes for entry in entries})}
    return {"group": group.name, "store": group.store, "tokens": group.tokens, "ratio": group.ratio, **sizes}


def _start(side: ExaminedSide, serve: Serve, part: str, bound: BoundSide) -> Plain:
    """Return an engine's flags and variables, options without a setting, and its connector's fixed configuration."""
    told = _settings(side, serve, side_of(bound)[0].digest)
    if bound.token_shards > 1:
        told += [(serve.interleave, str(bound.interleave_tokens))]
    known = {*serve.settings, *side.engine.mesh.workers, *side.engine.mesh.derived}
    return {
        "variables": {setting.variable: word for setting, word in told if setting.variable},
        "flags": {setting.flag: word for setting, word in told if setting.flag},
        "options": {name: value for name, value in side.given.items() if name not in known},
        "command": f"{serve.command} {serve.windows}".rstrip() if bound.windowed else str(serve.command),
        "devices": serve.devices,
        "router": str(serve.router),
        "workers": len(bound.workers),
        "beyond": dict(serve.beyond),
        "role": serve.roles[part],
        "connector_flag": serve.flag,
        "connector_variable": serve.variable,
        "connector": {**serve.connector, **({serve.role: serve.roles[part]} if serve.role else {})},
        "extra": serve.extra,
    }


def _settings(side: ExaminedSide, serve: Serve, digest: str) -> list[tuple[Setting, str]]:
    """Return the engine's settings in its own words: those in the side's text, and those unlike its defaults."""
    given, env = side.given, side.values
    sizes = mesh_sizes(side.engine, given)
    said = [name for name in serve.settings if name in given and sizes.get(name) != 1]
    said = [name for name in said if not serve.settings[name].argument or not is_usual(side.engine.options[name], env)]
    said += [
        name
        for name, setting in serve.settings.items()
        if name not in given and setting.unset and _differs(side, f"{name}={setting.unset}", digest)
    ]
    words = {name: as_written(env[name]) for name in said}
    return [(serve.settings[name], serve.settings[name].value_word(word)) for name, word in words.items()]


def _differs(side: ExaminedSide, unset: str, digest: str) -> bool:
    """Return whether the engine's own default would make another side."""
    try:
        return side_of(bind(side.library, side.model, f"{side.text},{unset}"))[0].digest != digest
    except Refused:
        return True
