"""Chains of blocks: those that lie side by side on both sides, in the order in which they are asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Ints
from kvplan.runtime.transport.base import Index

Mask = npt.NDArray[np.bool_]
Ids = Ints | Index


def following(p: Ids, d: Ids) -> Mask:
    """Which block pairs go up by one on both sides from the pair before them: the first never does."""
    follows = np.zeros(len(p), np.bool_)
    follows[1:] = (p[1:] - p[:-1] == 1) & (d[1:] - d[:-1] == 1)
    return follows


def chains(p: Ids, d: Ids) -> tuple[Ints, Ints]:
    """Where runs of block pairs begin that both go up by one, and how long they are."""
    cut = np.flatnonzero(np.concatenate((~following(p, d), [True])))
    return cut[:-1], cut[1:] - cut[:-1]
