"""A rollout of changed plans: what running engines become, which can talk meanwhile, and in which order to roll them.

It assumes one index with the plans of OLD and of NEW, as `kvplan push` leaves it. `fleet_pairs` decides which engines
can talk after each step; the verdict of a pair is the review's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from msgspec.structs import replace

from kvplan.fleet.pairs import FleetPair, fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState
from kvplan.plan.files.index import IndexEntry
from kvplan.review.classes import EngineClass, Index, engine_classes, roles, verdict
from kvplan.review.review import Review
from kvplan.review.rules import RolloutVerdict

# The number of a class of engines, and whether they are rolled.
Variant = tuple[int, bool]
# The number of engines of each variant after a step.
Counts = Mapping[Variant, int]
# The plan of two variants, or why they have none, by prefill and decode.
Answers = Mapping[tuple[Variant, Variant], FleetPair]
NOW, AFTER = "now", "OLD removed"


@dataclass(frozen=True, slots=True)
class ClassPair:
    """A prefill class and a decode class, by number, with their plan in each state of a rollout.

    `before`: neither is rolled; `after`: both are. `settled` is `after` with only NEW in the index. `engines` counts
    pairs of engines. The verdict is the review's, SAME if their plan stays.
    """

    prefill: int
    decode: int
    engines: int
    verdict: RolloutVerdict
    before: FleetPair
    prefill_first: FleetPair
    decode_first: FleetPair
    after: FleetPair
    settled: FleetPair


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The state after a step: how many pairs of engines can talk, and how many engines cannot talk to anyone."""

    what: str
    pairs: int
    alone: int


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """Steps that roll engines. `cut` counts the pairs of engines that can talk now and cannot after the first step."""

    name: str
    steps: tuple[RolloutStep, ...]
    cut: int = 0

    @property
    def silent(self) -> bool:
        """Whether pairs can talk now, and none can after some step that rolls only a part of the engines."""
        now, *steps = self.steps[:-1]
        return now.pairs > 0 and any(step.pairs == 0 for step in steps[:-1])

    @property
    def alone(self) -> int:
        """The number of engines that cannot talk to anyone after the worst step, while OLD is in the index."""
        return max(step.alone for step in self.steps[:-1])


@dataclass(frozen=True, slots=True)
class ModelRollout:
    """The rollout of the engines of one model: its classes, by number, their pairs, and the orders, the best first.

    `options` are the numbers of plans whose compile options change. Engines do not announce these: orders ignore them.
    Orders also leave all engines of `shared` classes as they are, which changed plans and other pairs need.
    `refused` counts pairs that NEW refuses: orders lack their plans.
    """

    model: str
    classes: tuple[int, ...]
    pairs: tuple[ClassPair, ...]
    orders: tuple[RolloutOrder, ...]
    options: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    refused: int = 0

    @property
    def best(self) -> RolloutOrder:
        return self.orders[0]


@dataclass(frozen=True, slots=True)
class FleetRollout:
    """The classes and models of a fleet, without the engines that drain and `others`, whose models have no plans."""

    classes: tuple[EngineClass, ...]
    models: tuple[ModelRollout, ...]
    draining: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def engines(self) -> int:
        return sum(len(one.names) for one in self.classes)


def fleet_rollout(
    engines: Mapping[str, EngineRecord], review: Review, before: Sequence[IndexEntry], after: Sequence[IndexEntry]
) -> FleetRollout:
    """The rollout of engines that have plans of `before` and will have plans of `after`."""
    planned = {one.model for one in (*before, *after)}
    others = tuple(name for name in sorted(engines) if engines[name].model not in planned)
    here = {name: engines[name] for name in sorted(engines) if name not in others}
    draining = tuple(name for name, one in here.items() if one.state is EngineState.DRAINING)
    staying = {name: one for name, one in here.items() if name not in draining}
    classes = tuple(engine_classes(staying, review, before, after))
    answers = [_answers(classes, index) for index in ((*before, *after), after)]
    by_model: dict[str, dict[int, EngineClass]] = defaultdict(dict)
    for number, one in enumerate(classes):
        by_model[one.now.model][number] = one
    models = tuple(_model(model, RollingEngines(some, *answers), review) for model, some in sorted(by_model.items()))
    return FleetRollout(classes, models, draining, others)


def _answers(classes: Sequence[EngineClass], index: Index) -> Answers:
    """The plan of any two variants in an index. Each variant is asked for twice: no engine is a pair with itself."""
    variants = {(number, False): one.now for number, one in enumerate(classes)}
    variants |= {(number, True): one.then for number, one in enumerate(classes) if one.then is not None and one.rolls}
    named = {f"{number} {rolled} {copy}": (number, rolled) for number, rolled in variants for copy in range(2)}
    asked = {name: replace(variants[variant], name=name) for name, variant in named.items()}
    return {(named[pair.prefill.name], named[pair.decode.name]): pair for pair in fleet_pairs(asked, index)}


def _model(model: str, engines: RollingEngines, review: Review) -> ModelRollout:
    pairs = engines.pairs(review)
    concerned = {number for one in engines.classes.values() for number in one.plans}
    others = (number for number, pair in enumerate(review.changed, 1) if "COMPILE_OPTION" in pair.rules)
    options = tuple(number for number in others if number in concerned)
    shared = tuple(number for number, one in engines.classes.items() if one.others)
    refused = sum(one.model == model for one in review.refused)
    return ModelRollout(model, tuple(engines.classes), pairs, engines.orders(pairs), options, shared, refused)


@dataclass(frozen=True, slots=True)
class RollingEngines:
    """The classes of one model, by number, with the answers of an index of `both` OLD and NEW, and of one of `new`."""

    classes: Mapping[int, EngineClass]
    both: Answers
    new: Answers

    def pairs(self, review: Review) -> tuple[ClassPair, ...]:
        """The pairs of classes that can talk now or afterwards."""
        numbered = product(self.classes, repeat=2)
        asked = [(p, d) for p, d in numbered if ((p, False), (d, False)) in self.both]
        pairs = [self._pair(p, d, review) for p, d in asked]
        return tuple(pair for pair in pairs if pair.engines and (pair.before.plan or pair.after.plan))

    def orders(self, pairs: Sequence[ClassPair]) -> tuple[RolloutOrder, ...]:
        """The possible orders; first the one that leaves the fewest engines without a partner."""
        prefill, decode = (self._rolling(role) for role in (EngineRole.PREFILL, EngineRole.DECODE))
        if not prefill and not decode:
            return (RolloutOrder("nothing", self._steps()),)
        whole = prefill | decode
        if whole in (prefill, decode):
            side = "both sides" if prefill and decode else "prefill" if prefill else "decode"
            return (self._order(side, pairs, (f"{side} rolled", whole)),)
        orders = [
            self._order("prefill first", pairs, ("prefill rolled", prefill), ("decode rolled", whole)),
            self._order("decode first", pairs, ("decode rolled", decode), ("prefill rolled", whole)),
        ]
        halves = {number: count // 2 for number, count in whole.items()}
        if self._halves_serve(halves):
            steps = self._steps(("half of both sides rolled", halves), ("all rolled", whole))
            orders.insert(0, RolloutOrder("together", steps))
        return tuple(sorted(orders, key=lambda order: order.alone))

    def _order(self, name: str, pairs: Sequence[ClassPair], *rolled: tuple[str, Mapping[int, int]]) -> RolloutOrder:
        return RolloutOrder(name, self._steps(*rolled), self._cut(pairs, rolled[0][1]))

    def _halves_serve(self, halves: Mapping[int, int]) -> bool:
        """Whether some pair can talk while the first half is rolled, and while the second is.

        Half of one engine is none: the second half is that engine. Engines that are not rolled serve meanwhile.
        """
        half = self._counts(halves)
        first = {variant: count for variant, count in half.items() if not variant[1]}
        then = {variant: count for variant, count in half.items() if variant[1] or variant[0] not in halves}
        return all(_step("", counts, self.both).pairs for counts in (first, then))

    def _cut(self, pairs: Sequence[ClassPair], rolled: Mapping[int, int]) -> int:
        """The number of pairs of engines that can talk now, and cannot once the classes in `rolled` are rolled."""
        return sum(
            pair.engines
            for pair in pairs
            for p, d in [(pair.prefill, pair.decode)]
            if pair.before.plan and not self.both[(p, p in rolled), (d, d in rolled)].plan
        )

    def _pair(self, prefill: int, decode: int, review: Review) -> ClassPair:
        p, d = self.classes[prefill], self.classes[decode]
        before, after = ((prefill, False), (decode, False)), ((prefill, p.rolls), (decode, d.rolls))
        return ClassPair(
            prefill,
            decode,
            len(p.names) * (len(d.names) - (prefill == decode)),
            verdict(p.now, d.now, review),
            self.both[before],
            self.both[after[0], before[1]],
            self.both[before[0], after[1]],
            self.both[after],
            self.new[after],
        )

    def _rolling(self, role: EngineRole) -> dict[int, int]:
        """The number of engines by class that are rolled if all engines of a role are."""
        return {n: len(one.names) for n, one in self.classes.items() if one.rolls and role in roles(one.now)}

    def _steps(self, *rolled: tuple[str, Mapping[int, int]]) -> tuple[RolloutStep, ...]:
        """The state now, after each step, and last without the plans of OLD."""
        states: list[tuple[str, Mapping[int, int]]] = [(NOW, {}), *rolled]
        steps = [_step(what, self._counts(some), self.both) for what, some in states]
        return (*steps, _step(AFTER, self._counts(states[-1][1]), self.new))

    def _counts(self, rolled: Mapping[int, int]) -> Counts:
        counts: dict[Variant, int] = {}
        for number, one in self.classes.items():
            done = rolled.get(number, 0)
            counts |= {(number, False): len(one.names) - done, (number, True): done}
        return {variant: count for variant, count in counts.items() if count}


def _step(what: str, counts: Counts, answers: Answers) -> RolloutStep:
    talking = {
        (p, d): counts[p] * (counts[d] - (p == d))
        for p, d in product(counts, repeat=2)
        if (p, d) in answers and answers[p, d].plan
    }
    met = {variant for both, pairs in talking.items() if pairs for variant in both}
    alone = sum(count for variant, count in counts.items() if variant not in met)
    return RolloutStep(what, sum(talking.values()), alone)
