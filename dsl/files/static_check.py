"""Evaluate a model's numbers as far as possible without a side, so that a file with impossible sizes is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kvplan.dsl.files.needs import at_once
from kvplan.dsl.lang.evaluate import evaluate, filled, in_play, is_true
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, Name, SizeSet, Value
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.schema.kind import Kind, NeedsRule, TensorSpec
from kvplan.dsl.schema.model import Cache
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink
from kvplan.dsl.text.source import SourceSpan

Env = Mapping[str, Value | SizeSet]
CORRECT = "correct it, or compare with an engine"


@dataclass(frozen=True, slots=True)
class GivenParams:
    """A cache's parameters as its file gives them, the kind's defaults for the others, and the place of its name."""

    exprs: Mapping[str, Expr]
    defaults: Mapping[str, Expr]
    span: SourceSpan

    def behind(self, name: str) -> tuple[str, ...]:
        """The given parameters that the value of `name` depends on."""
        if name in self.exprs:
            return (name,)
        return tuple(g for other in sorted(_names(self.defaults.get(name))) for g in self.behind(other))

    def blamed(self, expr: Expr, env: Env) -> tuple[str, ...]:
        """The given parameters that the value of `expr` depends on: those below 1 if there are any, else all."""
        found = tuple(dict.fromkeys(given for name in sorted(expr.names) for given in self.behind(name)))
        return tuple(name for name in found if _small(env.get(name))) or found

    def told(self, what: str, expr: Expr) -> str:
        """A note on a kind's expression, `'window' of needs is 2 * reach`; empty if the model gives the number."""
        return "" if expr.text in self.exprs else f"{what} is {expr.text}"

    def place(self, blamed: tuple[str, ...]) -> SourceSpan:
        return self.exprs[blamed[0]].tree.span if blamed else self.span


def check_worth(
    sink: Sink, kind: Kind, params: Mapping[str, Expr], values: Env, span: SourceSpan, needs: NeedsRule | None = None
) -> None:
    """Report errors that every side would have, each once: a parameter without a value (T…, B…), a size below 1
    (B004), a number of tokens below 0 (B005), or both a window and a chunk (B006). The last two are in the cache's own
    `needs`, or else in the kind's.
    """
    defaults = {n: p.default for n, p in kind.params.items() if n not in params and p.default is not None}
    given = GivenParams(params, defaults, span)
    ready = {name: expr for name, expr in params.items() if is_ready(expr, values)}
    found = {name: guarded(sink, partial(evaluate, expr, values)) for name, expr in ready.items()}
    env = {name: value for name, value in values.items() if name not in kind.params} | _given(kind, params)
    env |= {name: value for name, value in found.items() if value is not None}
    accused: set[SourceSpan] = set()
    for fault in (*_settled(given, env), *_sizes(kind, given, env), *_needs(kind, needs, given, env)):
        if fault.span not in accused:
            sink.errors.append(fault)
        accused.add(fault.span)


def doubts_of(kind: Kind, cache: Cache, values: Env, engines: Sequence[Engine]) -> Iterator[Diagnostic]:
    """Warnings about a cache's numbers that hold for every side: doubts of its kind (W002), and failed expectations of
    engines (W003)."""
    given, env = known_values(kind, cache, values)
    for doubt in kind.doubts:
        if (not doubt.of or doubt.of in cache.params) and holds(doubt.when, env):
            place = given.place((doubt.of,) if doubt.of else given.blamed(doubt.when, env))
            yield Diagnostic("W002", filled(doubt.say, env), place, (), CORRECT, in_play(doubt.when, env))
    yield from _narrowed(kind, cache, values)
    for name, rule in ((engine.name, rule) for engine in engines for rule in engine.expect):
        if kind.name in rule.kinds and holds(rule.that, env) is False:
            message, place = f"{name}: {filled(rule.say, env)}", given.place(given.blamed(rule.that, env))
            yield Diagnostic("W003", message, place, (), "compare with the engine", in_play(rule.that, env))


def _narrowed(kind: Kind, cache: Cache, values: Env) -> Iterator[Diagnostic]:
    """Warnings about limits of a cache's `needs` that keep fewer tokens than those of its kind, for every side."""
    own = dict(cache.needs.limits) if cache.needs else {}
    for name, expr in (limit for limit in (kind.needs.limits if kind.needs else ()) if limit[0] in own):
        mine, theirs = (settled_value(one, kind, cache, values) for one in (own[name], expr))
        if isinstance(mine, int) and isinstance(theirs, int) and 0 < mine < theirs:
            text = f"needs: {{{name}: {mine}}} moves fewer tokens than layers with a {name} of {theirs} read"
            yield Diagnostic("W002", text, own[name].tree.span, (), CORRECT)


def settled_value(expr: Expr, kind: Kind, cache: Cache, values: Env) -> Value | SizeSet | None:
    """The value of a kind's expression for a cache; None if it depends on a side."""
    _, env = known_values(kind, cache, values)
    return evaluate(expr, env) if is_ready(expr, env) else None


def known_values(kind: Kind, cache: Cache, values: Env) -> tuple[GivenParams, dict[str, Value | SizeSet]]:
    """The parameters of a cache, and the values that hold for every side."""
    defaults = {n: p.default for n, p in kind.params.items() if n not in cache.params and p.default is not None}
    given = GivenParams(cache.params, defaults, cache.span)
    ready = {name: evaluate(expr, values) for name, expr in cache.params.items() if is_ready(expr, values)}
    own = {name: value for name, value in values.items() if name not in kind.params}
    env = {**own, **_given(kind, cache.params), **ready}
    _settled(given, env)
    return given, env


def _given(kind: Kind, params: Mapping[str, Expr]) -> dict[str, Value | SizeSet]:
    """Whether a model gives each parameter of a kind, under the names by which expressions ask."""
    return {word: name in params for name, word in given_words(kind.params).items()}


def _settled(given: GivenParams, env: dict[str, Value | SizeSet]) -> list[Diagnostic]:
    """Put the values of all defaults that do not depend on a side into `env`, in any order of use; return errors."""
    faults, waiting = [], dict(given.defaults)
    while ready := [name for name, expr in waiting.items() if is_ready(expr, env)]:
        for name in ready:
            expr = waiting.pop(name)
            try:
                env[name] = evaluate(expr, env)
            except DslError as error:
                faults.append(_mended(error, f"the default of '{name}'", expr, given, env))
    return faults


def _sizes(kind: Kind, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    """Errors in the tensor sizes of every record that the cache may have."""
    for variant in kind.variants:
        chosen = holds(variant.when, env)
        if chosen is not False:
            yield from _sizes_of(variant.tensors, chosen is True, given, env)
        if chosen:
            return
    certain = all(holds(variant.when, env) is False for variant in kind.variants)
    yield from _sizes_of(kind.tensors, certain, given, env)


def _sizes_of(tensors: Mapping[str, TensorSpec], certain: bool, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    for spec in tensors.values():
        exists = holds(spec.when, env) if spec.when else True
        exists = exists if certain or exists is False else None
        units = (("a row of its token axis", spec.tokens_per_row),)
        for what, expr in (*((f"axis '{axis}'", expr) for axis, expr in spec.axes), *units):
            # A bad size that the model itself gives is wrong on every side.
            if (
                expr is not None
                and is_ready(expr, env)
                and (exists or (exists is None and isinstance(expr.tree, Name)))
            ):
                yield from _size(f"{what} of tensor {spec.name}", expr, given, env)


def _size(what: str, expr: Expr, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    try:
        value = evaluate(expr, env)
    except DslError as error:
        yield _mended(error, what, expr, given, env)
        return
    if isinstance(value, bool) or not isinstance(value, int):
        blamed = given.blamed(expr, env)
        yield Diagnostic("T001", f"{what} is {value}, not a number", given.place(blamed), values=in_play(expr, env))
    elif value < 1:
        yield from _too_small(what, expr, value, given, env)


def _needs(kind: Kind, own: NeedsRule | None, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    """Errors in needs: at the cache's own `needs`, or, for the kind's, at the numbers that the model gives."""
    needs = own or kind.needs
    for name, expr in needs.limits if needs else ():
        if not is_ready(expr, env):
            continue
        plain = not own and expr.text in given.exprs
        what = f"'{expr.text}'" if plain else f"'{name}' of needs"
        place = expr.tree.span if own else given.place(given.blamed(expr, env))
        yield from _tokens(what, expr, place, "" if own else given.told(what, expr), env)
    if needs and needs.window and needs.chunk:
        yield from _at_once(needs.window, needs.chunk, own is not None, given, env)


def _at_once(window: Expr, chunk: Expr, own: bool, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    """B006 at the chunk, or at the parameter that gives it. Two plain numbers were already refused by `parse_needs`."""
    if not _names(window) | _names(chunk) or not is_ready(window, env) or not is_ready(chunk, env):
        return
    blamed = given.blamed(chunk, env) or given.blamed(window, env)
    place = chunk.tree.span if own else given.place(blamed)
    with suppress(DslError):
        yield from at_once((evaluate(window, env), evaluate(chunk, env)), place)


def _tokens(what: str, expr: Expr, place: SourceSpan, note: str, env: Env) -> Iterator[Diagnostic]:
    help, played, notes = "give a whole number of tokens, or 0 for none", in_play(expr, env), (note,) if note else ()
    try:
        value = evaluate(expr, env)
    except DslError as error:
        first = error.diagnostics[0]
        yield Diagnostic(first.code, f"{what}: {first.message}", place, notes, first.help, played)
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield Diagnostic("T001", f"{what} is {value}, not a number", place, notes, help, played)
    elif value < 0:
        yield Diagnostic("B005", f"{what} is {value}", place, notes, help, played)


def _too_small(what: str, expr: Expr, value: int, given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    """An error for each parameter below 1, or one for the first parameter that the size depends on."""
    blamed = given.blamed(expr, env)
    notes = (f"its size is {expr.text}",) if expr.text not in blamed else ()
    small = tuple(name for name in blamed if _small(env.get(name)))
    for name in small or blamed[:1] or ("",):
        place = given.place((name,) if name else ())
        help = "sizes are whole numbers from 1"
        yield Diagnostic("B004", f"{what} comes out as {value}", place, notes, help, in_play(expr, env))


def _mended(error: DslError, what: str, expr: Expr, given: GivenParams, env: Env) -> Diagnostic:
    """An error in a kind's expression, moved to the numbers in the model that cause it."""
    first = error.diagnostics[0]
    place = given.place(given.blamed(expr, env))
    message, note = f"{what}: {first.message}", given.told(what, expr)
    return Diagnostic(first.code, message, place, (note,) if note else (), first.help, in_play(expr, env))


def holds(when: Expr, env: Env) -> bool | None:
    """Whether a condition holds on every side; None if it depends on the side."""
    if not is_ready(when, env):
        return None
    try:
        return is_true(when, env)
    except DslError:
        return False


def is_ready(expr: Expr, env: Env) -> bool:
    return expr.names <= env.keys()


def _names(expr: Expr | None) -> frozenset[str]:
    return expr.names if expr else frozenset()


def _small(value: Value | SizeSet | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1
