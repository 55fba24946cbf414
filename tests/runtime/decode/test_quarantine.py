import numpy as np
import pytest

from kvplan.plan.types import Group, Side
from kvplan.runtime.decode.quarantine import BlockLedger
from kvplan.runtime.errors import QuarantinedError

SIDE = Side(
    "d", "", (Group("a", "tokens", 4, 4, 1, 0), Group("b", "tokens", 4, 4, 1, 0), Group("c", "state", 0, 0, 1, 1)), ()
)


def test_groups_of_one_arena_share_their_blocks() -> None:
    ledger = BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8})
    ledger.take({"a": np.array([1, 2]), "c": np.array([3])})
    with pytest.raises(QuarantinedError, match="block 2 of group 'b' is being written"):
        ledger.take({"b": np.array([5, 2])})
    ledger.take({"b": np.array([5, 3])})


def test_what_is_refused_takes_nothing() -> None:
    ledger = BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8})
    ledger.quarantine({"c": np.array([0])})
    with pytest.raises(
        QuarantinedError, match="in quarantine: use others until its transfer ends, or close this worker"
    ):
        ledger.take({"a": np.array([1]), "c": np.array([0])})
    ledger.take({"a": np.array([1])})
    assert ledger.quarantined() == {1: (0,)}
    ledger.free({"c": np.array([0])})
    assert ledger.quarantined() == {}
