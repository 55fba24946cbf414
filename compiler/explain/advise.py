"""Advice: the cost of a pair of sides with other settings of its engines, and by other strategies.

The settings are those that engine files name under `choices`; the rest of a side stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bind.options import option_values
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.cost.cost import TOKENS, Moves, plan_cost
from kvplan.compiler.cost.strategy import with_strategies
from kvplan.compiler.cost.times import moved, times_us
from kvplan.compiler.errors import Refused
from kvplan.compiler.options import AUTO, DIRECT
from kvplan.compiler.side.keys import check_pool, side_keys
from kvplan.compiler.side.text import parse_side
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.dsl.schema.model import Model
from kvplan.dsl.schema.serve import LayoutChoice
from kvplan.dsl.text.diagnostics import as_written

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

# Times whose relative difference is smaller count as equal.
NEAR = 0.01
Values = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """An option of a side, prefill or decode, to change. `now` and `then` are the engine's own words.

    `setting` is the flag or the environment variable that sets it, or the option itself without one.
    `alias` is another word for `now`: the side's, or else the engine file's; empty if there is none.
    """

    side: str
    option: str
    setting: str
    now: str
    then: str
    alias: str


@dataclass(frozen=True, slots=True)
class PossibleSide:
    """A possible side: bound, with the values of all choices, and the changes that lead to it."""

    text: str
    bound: BoundSide
    values: Values
    changes: tuple[SettingChange, ...]


@dataclass(frozen=True, slots=True)
class AdvisedPair:
    """The cost of one request by one strategy: all decode workers together, including states.

    `us` is the time of the slowest decode worker in microseconds, by a machine's profile.
    """

    prefill: str
    decode: str
    strategy: str
    changes: tuple[SettingChange, ...]
    descriptors: int
    bytes: int
    us: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A pair as it is, and its alternatives, the fastest first; `refused` counts alternatives that a rule forbids.

    `every` are both sides with all values of their choices, in the form that `kvplan matrix` takes.
    """

    now: AdvisedPair
    others: tuple[AdvisedPair, ...]
    refused: int
    every: tuple[str, str]


Sides = tuple[PossibleSide, PossibleSide]
Watched = Callable[[Sequence[Sides]], Iterable[Sides]]


def advise(
    library: Library,
    model: str,
    prefill: str,
    decode: str,
    profile: MachineProfile,
    watched: Watched = iter,
    strategy: str = DIRECT,
    tokens: int = TOKENS,
) -> Advice:
    """Try every choice of either side alone, and equal ones of both sides, by every strategy; each plan is proved.

    `strategy` is the pair's own. `watched` wraps the pairs and yields each as its work begins.
    Raises DslError, BadInput, ProofFailed, and Refused for the pair as it is.
    """
    layout = library.model(model)
    prefills, no_prefill = _possible(library, layout, "prefill", prefill)
    decodes, no_decode = _possible(library, layout, "decode", decode)
    pairs, refused = _pairs(prefills, decodes), no_prefill + no_decode
    advised = [] if strategy in (DIRECT, AUTO) else _advised(pairs[0], layout.title, profile, strategy, tokens)
    for sides in watched(pairs):
        try:
            found = _advised(sides, layout.title, profile, AUTO, tokens)
            advised += [each for each in found if each not in advised]
        except Refused:
            if sides == pairs[0]:
                raise
            refused += 1
    now = _own(advised, strategy)
    others = [each for each in advised if each is not now]
    every = (_every(library, prefills[0], prefill), _every(library, decodes[0], decode))
    return Advice(now, tuple(sorted(others, key=lambda each: (each.us, len(each.changes)))), refused, every)


def _possible(library: Library, model: Model, role: str, text: str) -> tuple[list[PossibleSide], int]:
    """Return a side with every value of every choice, the present one first, and the number of refused ones."""
    check_pool(text)
    engine = library.engine(parse_side(text).get("engine", library.default_engine))
    given = side_keys(engine, text)
    now = _values(library, engine, model, given)
    sides, refused = [PossibleSide(_text(given), bind(library, model, _text(given)), now, ())], 0
    for values in _others(engine.choices, now):
        changed = {name: value for name, value in values if dict(now)[name] != value}
        then = _text({**given, **changed})
        try:
            sides.append(
                PossibleSide(then, bind(library, model, then), values, _changes(role, engine, given, now, changed))
            )
        except Refused:
            refused += 1
    return sides, refused


def _every(library: Library, side: PossibleSide, text: str) -> str:
    """Return a side's text with all values of its choices, the present ones first."""
    engine = library.engine(parse_side(text).get("engine", library.default_engine))
    values = {name: dict.fromkeys((value, *engine.choices[name].values)) for name, value in side.values}
    return _text({**side_keys(engine, text), **{name: "/".join(each) for name, each in values.items()}})


def _values(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> Values:
    """Return the present values of an engine's choices, by option."""
    own = {name: value for name, value in given.items() if name != "engine"}
    env = option_values(library, engine, model, own)
    return tuple((name, as_written(env[name])) for name in engine.choices)


def _others(choices: Mapping[str, LayoutChoice], now: Values) -> Iterator[Values]:
    """Yield every combination of values except the present one."""
    for values in product(*(dict.fromkeys((value, *choices[name].values)) for name, value in now)):
        chosen = tuple(zip(choices, values, strict=True))
        if chosen != now:
            yield chosen


def _text(given: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in given.items())


def _changes(
    role: str, engine: Engine, given: Mapping[str, str], now: Values, changed: Mapping[str, str]
) -> tuple[SettingChange, ...]:
    return tuple(
        _change(
            role, name, engine.choices[name], value, changed[name], (given.get(name, ""), engine.alias(name, value))
        )
        for name, value in now
        if name in changed
    )


def _change(role: str, option: str, choice: LayoutChoice, now: str, then: str, aliases: Sequence[str]) -> SettingChange:
    setting = choice.setting
    before, after = (setting.value_word(value) for value in (now, then))
    alias = next((word for word in aliases if word not in ("", before)), "")
    return SettingChange(role, option, setting.name or option, before, after, alias)


def _pairs(prefills: Sequence[PossibleSide], decodes: Sequence[PossibleSide]) -> list[Sides]:
    """Return the present pair, then pairs with one changed side, then pairs with both sides changed to equal values."""
    prefill, decode = prefills[0], decodes[0]
    either = [*((other, decode) for other in prefills[1:]), *((prefill, other) for other in decodes[1:])]
    both = [(p, d) for p in prefills[1:] for d in decodes[1:] if p.values == d.values]
    return [(prefill, decode), *either, *both]


def _own(advised: Sequence[AdvisedPair], strategy: str) -> AdvisedPair:
    """Return the present pair by its own strategy; direct if nothing of it is staged."""
    direct, *staged = (each for each in advised if not each.changes)
    own = [each for each in staged if strategy in (AUTO, each.strategy)]
    return own[0] if own else direct


def _advised(sides: Sides, title: str, profile: MachineProfile, strategy: str, tokens: int) -> list[AdvisedPair]:
    """Return a pair by every strategy that a plan with `strategy` has, direct first. Raises Refused."""
    prefill, decode = sides
    plan = compile_bound(prefill.bound, decode.bound, {"strategy": strategy}, title, profile=profile).plan
    moves = with_strategies(plan_cost(plan, tokens=tokens), plan, profile, tokens).moves
    names = dict.fromkeys([DIRECT, *(stage.strategy for move in moves for stage in move.staged)])
    changes = (*prefill.changes, *decode.changes)
    return [AdvisedPair(prefill.text, decode.text, name, changes, *_figures(moves, name, profile)) for name in names]


def _figures(moves: Sequence[Moves], strategy: str, profile: MachineProfile) -> tuple[int, int, float]:
    """Return descriptors and bytes of all decode workers by a strategy, and the time of the slowest one."""
    return *moved(moves, strategy), max(times_us(moves, strategy, profile).values(), default=0.0)


def worth(advice: Advice) -> list[AdvisedPair]:
    """Return the changes that save time: at each number of changes the fastest, fewest changes first.

    It leaves out alternatives that save less than a hundredth over fewer changes.
    """
    winners: list[AdvisedPair] = []
    best = advice.now.us
    for count in sorted({len(each.changes) for each in advice.others}):
        alike = [each for each in advice.others if len(each.changes) == count]
        least = min(each.us for each in alike)
        if least < (1 - NEAR) * best:
            winners += [each for each in alike if each.us <= (1 + NEAR) * least]
            best = least
    return winners
