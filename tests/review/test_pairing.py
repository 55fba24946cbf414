"""Which plans of before and now are of one pair."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.review.cases import plan

from kvplan.review.pairing import PlanFile, nearest, paired


def file(path: str, prefill: str, decode: str) -> PlanFile:
    """A plan under a path, as if it had been asked for with these sides."""
    found = plan()
    sides = replace(found.prefill, key=prefill), replace(found.decode, key=decode)
    digest = f"{prefill} {decode}"
    return PlanFile(path, digest, replace(found, digest=digest, prefill=sides[0], decode=sides[1]))


def names(*sides: list[tuple[str, str, str]]) -> list[tuple[str | None, str | None]]:
    before, after = ({path: file(path, *keys) for path, *keys in some} for some in sides)
    return [
        (pair.before.path if pair.before else None, pair.after.path if pair.after else None)
        for pair in paired(before, after)
    ]  # fmt: skip


OTHER = ("m/p_x.py", "tp=16", "tp=16")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Options change: the name stays.
        ([("m/p_a.py", "tp=1", "tp=2")], [("m/p_a.py", "tp=1", "tp=2,block=32")], [("m/p_a.py", "m/p_a.py")]),
        # One of two with a name in common goes, and the other one gets the short name.
        (
            [("m/p_a.py", "tp=1", "tp=2"), ("m/p_a_block32.py", "tp=1", "tp=2,block=32")],
            [("m/p_a.py", "tp=1", "tp=2,block=32")],
            [("m/p_a_block32.py", "m/p_a.py"), ("m/p_a.py", None)],
        ),
        # A plan that both have stays, whatever its name: engines find it by digest.
        (
            [("m/chat.py", "tp=1", "tp=2"), ("m/long.py", "tp=1", "tp=4")],
            [("m/chat.py", "tp=1", "tp=4"), ("m/long.py", "tp=1", "tp=2")],
            [("m/long.py", "m/chat.py"), ("m/chat.py", "m/long.py")],
        ),
        # One of two files with the same plan goes: the plan stays.
        (
            [("m/a.py", "tp=1", "tp=2"), ("m/b.py", "tp=1", "tp=2")],
            [("m/b.py", "tp=1", "tp=2")],
            [("m/b.py", "m/b.py"), ("m/a.py", "m/b.py")],
        ),
        # A second file with a plan that is there is new.
        (
            [("m/b.py", "tp=1", "tp=2")],
            [("m/a.py", "tp=1", "tp=2"), ("m/b.py", "tp=1", "tp=2")],
            [("m/b.py", "m/b.py"), (None, "m/a.py")],
        ),
        # Beside that, a name that somebody gave counts more than what a plan is for.
        (
            [("m/chat.py", "tp=1", "tp=2"), ("m/long.py", "tp=1", "tp=4")],
            [("m/chat.py", "tp=1", "tp=4,block=32"), ("m/long.py", "tp=1", "tp=2,block=32")],
            [("m/chat.py", "m/chat.py"), ("m/long.py", "m/long.py")],
        ),
        # The mesh of one side changes.
        ([("m/p_a.py", "tp=1", "tp=2")], [("m/p_b.py", "tp=1", "tp=4")], [("m/p_a.py", "m/p_b.py")]),
        # Neither of two candidates is taken.
        (
            [("m/p_a.py", "tp=1", "tp=2")],
            [("m/p_b.py", "tp=1", "tp=4"), ("m/p_c.py", "tp=1", "tp=8")],
            [("m/p_a.py", None), (None, "m/p_b.py"), (None, "m/p_c.py")],
        ),
    ],
)
def test_pairs(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], expected: list[tuple[str | None, str | None]]
) -> None:
    found = names([*before, OTHER], [*after, OTHER])
    assert found == sorted([*expected, ("m/p_x.py", "m/p_x.py")], key=lambda pair: pair[1] or pair[0] or "")


def test_a_plan_that_is_named_is_compared_with_the_only_other() -> None:
    (pair,) = paired({"": file("", "tp=1", "tp=2")}, {"b.py": PlanFile("b.py", "", None)})
    assert (pair.before, pair.after) != (None, None)


def test_the_nearest_plan_has_the_fewest_other_options_and_is_the_first_of_several() -> None:
    new = file("m/new.py", "tp=2", "tp=4,block=32")
    far, near, too = file("m/a.py", "tp=1", "tp=4"), file("m/b.py", "tp=2", "tp=4"), file("m/c.py", "tp=2", "tp=4")
    other = file("n/d.py", "tp=2", "tp=4,block=32")
    assert other.plan
    other = replace(other, plan=replace(other.plan, model="another"))
    assert nearest(new, [far, near, too, other]) is near
    assert nearest(new, [too, near]) is too
    assert nearest(new, [other]) is None
