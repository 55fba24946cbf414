"""A rolling upgrade of four engines, in every order: no request is lost, whatever drains meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from tests.fleet.rolling import MODEL, House, Release, upgraded
from tests.runtime.helpers.plans import Shape, plan
from tests.shares import later

from kvplan.plan.digest import sealed
from kvplan.plan.files.index import entry

OLD, NEW = (Shape(1), Shape(1)), (Shape(1, kernel=2), Shape(1, kernel=2))
# Which sides the new release changes: with other sides and another layout of the model, or with decode's alone.
CHANGES = {"both sides": NEW, "decode alone": (OLD[0], NEW[1])}
ORDERS = list(permutations(("p0", "p1", "d0", "d1")))
# One of the orders that differ only in which engine of a side comes first.
UNLIKE = [order for order in ORDERS if order.index("p0") < order.index("p1") and order.index("d0") < order.index("d1")]
MODES = {"pull": ("pull", 0), "push": ("push", 0), "told late": ("pull", 3)}
FIRST = "both sides", "pull"
CASES = [(*case, order) for case in product(CHANGES, MODES) for order in (ORDERS if case == FIRST else UNLIKE)]
# Every mode in every order that differs from the others, the changes by turns.
NOW = [
    (change, how, order)
    for (change, how), order in product(product(CHANGES, MODES), UNLIKE)
    if ([*CHANGES].index(change) + [*MODES].index(how) + UNLIKE.index(order)) % 2 == 0
]
AFTER = 8  # requests once all four run the new release


def release(name: str, shapes: tuple[Shape, Shape], model_digest: str) -> Release:
    return Release(name, sealed(replace(plan(*shapes, MODEL), model_digest=model_digest)), shapes)


@pytest.mark.parametrize(
    ("change", "how", "order"),
    [*NOW, *later(case for case in CASES if case not in NOW)],
    ids=lambda part: part if isinstance(part, str) else "-".join(part),
)
def test_no_request_is_lost(change: str, how: str, order: tuple[str, ...]) -> None:
    both, (mode, lag) = change == "both sides", MODES[how]
    old, new = release("old", OLD, "m" * 32), release("new", CHANGES[change], ("n" if both else "m") * 32)
    plans = (old.plan, new.plan)
    house = House(plans, tuple(entry(f"{number}.py", b"", one) for number, one in enumerate(plans)), mode)
    made, router = upgraded(house, old, new, order, AFTER, lag)
    assert all(request.done for request in made)
    served = {request.decode.release.name for request in made if request.decode}
    assert served == {"old", "new"}
    if not lag:
        assert router.refused == 0, "who drains is sent nothing"
    if not both:
        assert sum(request.again for request in made) == 0, "prefill of either release has a plan for whoever is ready"
