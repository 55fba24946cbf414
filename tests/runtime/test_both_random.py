"""Two engines that do both, through whatever may happen to them: bytes are right, and they meet again."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.runtime.helpers.both import Both, Engines, check, engines, hold, move, request, submit
from tests.runtime.helpers.plans import Shape
from tests.shares import later

from kvplan.plan.errors import KvplanError
from kvplan.runtime import Transfer

STEPS = 150
# The possible events with their weights.
OFTEN = {"meet": 15, "drop": 5, "drop reader": 5, "restart": 4, "sleep": 3, "moves": 32}


class Walk:
    """Engines a and b, and random events. `moved` counts requests whose bytes were compared."""

    def __init__(self, made: Engines, chance: random.Random) -> None:
        self.made, self.chance, self.moved, self.runs = made, chance, 0, 0
        self.shapes = {"a": Shape(chance.choice((1, 2)), 4), "b": Shape(chance.choice((1, 2)), 2, 2)}
        self.engines = {name: self.fresh(name) for name in "ab"}

    def fresh(self, name: str) -> Both:
        self.runs += 1
        other = "b" if name == "a" else "a"
        shapes = self.shapes[name], self.shapes[other]
        return self.made.engine(name, f"{name}{self.runs}", shapes, lease=self.chance.choice((1.0, 5.0)))

    def step(self, number: int) -> None:
        """One thing; what cannot be done now is not."""
        (what,) = self.chance.choices(list(OFTEN), list(OFTEN.values()))
        one, other = self.chance.sample(sorted(self.engines), 2)
        with suppress(KvplanError):
            getattr(self, what.replace(" ", "_"))(one, other, number)

    def meet(self, one: str, other: str, number: int) -> None:
        mode = self.chance.choice(("pull", "push"))
        for worker in self.engines[one].decode:
            worker.connect(self.engines[other].address, 20, mode=mode)

    def drop(self, one: str, other: str, number: int) -> None:
        self.engines[one].decode[0].drop(other)

    def drop_reader(self, one: str, other: str, number: int) -> None:
        self.engines[one].prefill[0].drop(other)

    def restart(self, one: str, other: str, number: int) -> None:
        self.engines[one].close()
        self.made.made.remove(self.engines[one])
        self.engines[one] = self.fresh(one)

    def sleep(self, one: str, other: str, number: int) -> None:
        for worker in self.engines[one].prefill:
            worker.suspend()
            worker.resume(worker.endpoint.pool)

    def moves(self, one: str, other: str, number: int) -> None:
        """A request in one direction, and maybe one in the other at the same time."""
        running = []
        for seed, (source, target) in enumerate(((one, other), (other, one))[: self.chance.randint(1, 2)]):
            there, here = self.engines[source], self.engines[target]
            asked = request((there.shape, here.shape), f"{number}{source}", seed)
            hold(there, asked, seed)
            running.append((there, here, asked, seed, submit(here, asked, source, 5)))
        for there, here, asked, seed, transfers in running:
            ended = [arrived(transfer) for transfer in transfers]
            if all(ended):
                check(here, asked, seed)
                self.moved += 1
            for worker in there.prefill:
                with suppress(KvplanError):
                    worker.withdraw(asked.id)


def arrived(transfer: Transfer) -> bool:
    """Whether it did, once it has ended."""
    with suppress(KvplanError):
        transfer.wait()
    return transfer.error is None


@pytest.mark.parametrize("seed", [0, 1, *later([2, 3])])
def test_bytes_are_right_and_both_meet_again(seed: int) -> None:
    chance = random.Random(seed)
    with engines(*chance.choice(((), ("pack", "unpack")))) as made:
        walk = Walk(made, chance)
        for number in range(STEPS):
            walk.step(number)
        a, b = walk.engines["a"], walk.engines["b"]
        for one, other in ((a, b), (b, a)):
            for worker in one.decode:
                # The other one may have dropped it a moment ago, which it has not heard yet.
                with suppress(KvplanError):
                    worker.drop(other.name)
                worker.connect(other.address, 20)
        move(a, b, "last ab", 0)
        move(b, a, "last ba", 1)
    assert walk.moved > STEPS // 30
