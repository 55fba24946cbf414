"""A reader of a hold gets that hold: each way in which another hold's bytes could take the place of its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runtime.decode.test_races import pair, rounds
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net
from tests.runtime.simulation.invariants import empty, rested

from kvplan.plan.block_tables import Tables
from kvplan.plan.types import Blocks
from kvplan.runtime import Request, Slot, Transfer, errors

MODES = pytest.mark.parametrize("mode", ["pull", "push"])
END, LEASE = 12, 6.0
CHUNKS = (((0, 4), None), ((4, END), (3,)), ((4, END), (7,)))
OTHERS = "other blocks of group 'kv' than decode knows"


def tables(first: int, more: int = 0) -> Tables:
    """Blocks and a slot of a request from `first` on, and so many more ids."""
    ids = [first, first + 1, first + 2, *[first] * more]
    return {"kv": Blocks(0, np.array(ids, np.int64)), "state": Slot(first, END)}


EARLY, LATE, OURS = tables(3), tables(13), tables(23)


def held(made: World, named: Tables, fed: bool = False) -> None:
    """Hold request r whole, or fed in chunks, in these blocks."""
    for worker in made.prefill:
        if not fed:
            worker.hold("r", named)
            continue
        worker.open("r", (0, END))
        for number, (tokens, layers) in enumerate(CHUNKS, 1):
            some = named if tokens[1] == END else {"kv": named["kv"]}
            worker.offer("r", tokens, some, layers=layers, last=number == len(CHUNKS))


def expired(made: World, net: Net) -> None:
    """A hold that decode knows, and for which it comes too late."""
    held(made, EARLY)
    net.time += LEASE + 1
    made.poll()
    assert made.released() == {("r", "expired")}


def ask(made: World, told: Tables, streamed: bool = False) -> Transfer:
    """Decode asks for request r, which it was told that prefill has in these blocks."""
    worker = made.decode[0]
    return (worker.open if streamed else worker.submit)(Request("r", (0, END), told, OURS), 20)


def refused(
    made: World, net: Net, transfer: Transfer, match: str, error: type[errors.RequestError] = errors.LeaseError
) -> None:
    """It fails, and when all has ended nothing is left."""
    rounds(made, net)
    with pytest.raises(error, match=match):
        transfer.wait()
    rounds(made, net, 60)
    made.released()
    rested(made.decode[0])
    for worker in made.prefill:
        empty(worker)


@MODES
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fed", [False, True])
def test_who_was_told_of_an_earlier_hold_is_refused(net: Net, mode: str, streamed: bool, fed: bool) -> None:
    made = pair(net, mode)
    expired(made, net)
    held(made, LATE, fed)
    refused(made, net, ask(made, EARLY, streamed), OTHERS)


@MODES
@pytest.mark.parametrize("told", [LATE, {}])
def test_a_name_that_is_fed_again_brings_every_table(net: Net, mode: str, told: Tables) -> None:
    """Blocks of groups that no chunk names could only be those that decode was told of before."""
    made = pair(net, mode)
    expired(made, net)
    held(made, {"kv": LATE["kv"]}, fed=True)
    missing = "group 'state' of the prefill side is missing"
    refused(made, net, ask(made, told, streamed=True), missing, errors.RequestError)


def test_blocks_are_compared_each_time_that_they_are_named(net: Net) -> None:
    """Also where prefill was not told that an earlier request of this connection is given up."""
    made = pair(net, "pull")
    expired(made, net)
    held(made, LATE)
    first = ask(made, LATE)
    made.decode[0].run_once()
    made.poll()
    net.full = 1.0
    first.cancel()
    net.full = 0.0
    made.decode[0].run_once()
    refused(made, net, ask(made, EARLY), OTHERS)


@MODES
@pytest.mark.parametrize("streamed", [False, True])
def test_a_claim_that_is_larger_than_a_message_is_refused_as_a_whole(
    net: Net, mode: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workers of the prefill engine refuse it, even one that has room for its part."""
    monkeypatch.setattr("kvplan.runtime.control.card.LARGEST", 6000)
    made, large = pair(net, mode, workers=2), tables(3, more=900)
    held(made, large)
    refused(made, net, ask(made, large, streamed), "bytes is above", errors.RequestError)
