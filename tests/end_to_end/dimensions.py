"""The dimensions in which two engines may differ, with their values: those of the model, and those of either side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tests.end_to_end.pairwise import Setting, covering

from kvplan.plan.types import ALL, Needs

NEEDS = {
    "all": ALL,
    "window": Needs(keep=37),
    "window and sinks": Needs(keep=30, sink=5),
    "chunk": Needs(chunk=50),
    "chunk and sinks": Needs(chunk=64, sink=9),
}
# Workers of a stage, how many of them take turns of the tokens, and what a turn is.
MESHES = {
    "1": (1, 1, ""),
    "2": (2, 1, ""),
    "3": (3, 1, ""),
    "4": (4, 1, ""),
    "6": (6, 1, ""),
    "2 by rows": (2, 2, "row"),
    "4 by blocks": (4, 2, "block"),
    "3 by several blocks": (3, 3, "blocks"),
    "6 by uneven turns": (6, 2, "uneven"),
    "4 of 4 by uneven turns": (4, 4, "uneven"),
}
# Tokens of a kernel block, kernel blocks of a logical block.
BLOCKS = {"16": (16, 1), "48": (48, 1), "32": (32, 1), "16x3": (16, 3), "4x13": (4, 13), "4x25": (4, 25)}
INSIDE = ("BLHNC", "BLNHC", "BHLNC")

MODEL = {
    "kind": ("heads", "whole", "rows of 4", "records", "unlike rows"),
    "heads": ("1", "2", "5", "6"),
    "needs": tuple(NEEDS),
    "second": ("none", "beside", "own length"),
    "optional": ("none", "prefill", "decode"),
    "state groups": ("1", "4"),
    "elect": ("one", "spread"),
}
SIDE = {
    "mesh": tuple(MESHES),
    "stages": ("whole", "cut"),
    "copies": ("consecutive", "round_robin"),
    "shares": ("equal", "listed"),
    "order": ("LBHNC", "LBNHC", "LHBNC", *INSIDE, "apart", "planes", "parts", "dim tiles", "token tiles"),
    "padding": ("none", "row", "page", "stride", "fused row", "overlaid"),
    "block": tuple(BLOCKS),
    "groups": ("own", "halves", "together"),
    "ids": ("apart", "shared"),
    "state": ("channels first", "taps first", "drafts", "parts", "padded"),
    "ring": ("none", "tight", "spare"),
}
DIMENSIONS = {
    **MODEL,
    **{f"prefill {name}": values for name, values in SIDE.items()},
    **{f"decode {name}": values for name, values in SIDE.items()},
}


@dataclass(frozen=True, slots=True)
class Case:
    """One value of every dimension. `number` seeds the rest: tokens, tables and ids."""

    number: int
    values: tuple[Setting, ...]

    def __getitem__(self, name: str) -> str:
        return dict(self.values)[name]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.values)


def clash(one: Setting, other: Setting) -> bool:
    """Whether two values exclude each other: two tables for the layers of one cache that lie inside one page; a ring
    and a cache that needs all tokens, or the first ones."""
    if one[0] == "needs" and other[0].endswith(" ring") and other[1] != "none":
        return one[1] not in ("window", "chunk")
    side, _, name = one[0].partition(" ")
    return (name, other) == ("order", (f"{side} groups", "halves")) and one[1] in INSIDE


@cache
def cases() -> tuple[Case, ...]:
    """The cases in which every two values meet."""
    return tuple(Case(n, tuple(case.items())) for n, case in enumerate(covering(DIMENSIONS, clash)))


def plain(number: int = 0, **changed: str) -> Case:
    """The case with the first value of every dimension, but for `changed`, written prefill_order=…"""
    names = {name.replace(" ", "_"): name for name in DIMENSIONS}
    first = {name: values[0] for name, values in DIMENSIONS.items()}
    return Case(number, tuple((first | {names[key]: value for key, value in changed.items()}).items()))
