"""Decode workers that leave, freeze, or wait for a comparison: nothing of theirs stays held, nothing good ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.decode.test_races import pair, rounds, writing
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import world
from tests.runtime.simulation.channels import Net

from kvplan.runtime import Limits, Sample, errors


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_a_request_lasts_while_its_checksums_wait(net: Net, mode: str) -> None:
    made = pair(net, mode, lease=1.0)
    request = ask(made, (0, 12))
    filled(made, request)
    made.prefill[0].hold("r", request.prefill)
    transfer = made.decode[0].submit(request, 60, checksum=Sample())
    while not (tasks := net.tasks):
        rounds(made, net, 1)
    tasks.pop(0)()
    while not net.tasks:
        rounds(made, net, 1)
    rounds(made, net, 20)
    assert (transfer.state, made.prefill[0].released()) == ("running", [])
    net.tasks.pop(0)()
    rounds(made, net)
    assert transfer.state == "done", transfer.error
    check(made, 0, request)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_frozen_decode_engine_keeps_no_blocks_longer_than_their_lease(net: Net, dropped: bool) -> None:
    """Bytes that are written to it after that are not taken for the request."""
    made = pair(net, "push", lease=0.5)
    transfer = writing(made)
    source = made.prefill[0]
    if dropped:
        source.drop("decode")
        with pytest.raises(errors.HandshakeError, match="is not connected"):
            source.drop("decode")
    for _ in range(2):
        net.time += 0.5
        source.run_once()
    assert [(one.request, one.why) for one in source.released()] == [("r", "expired")]
    for array in made.prefill_memory[0].values():
        array[:] = 0xEE
    made.hub.frozen.clear()
    rounds(made, net)
    assert isinstance(transfer.error, errors.LeaseError if not dropped else errors.TransferError), transfer.error
    assert made.decode[0].quarantined() == {}
    assert source.inspect().writes == ()


def test_connecting_again_and_again_leaves_nobody_behind() -> None:
    made = world(Shape(1), Shape(1))
    for _ in range(20):
        made.decode[0].connect(made.prefill[0].address, 10)
    until(lambda: len(made.prefill[0].inspect().readers) == 1, made.prefill[0].run_once)
    assert made.decode[0].peers()


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_one_poll_posts_one_slice(net: Net, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.decode.worker.Limits", lambda: Limits(slice_bytes=64))
    made = pair(net, mode, limits=Limits(slice_bytes=64))
    mover = (made.prefill if mode == "push" else made.decode)[0]
    posted = []
    transport = made.transport(mover)

    def counting(post: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            posted.append(1)
            return post(*arguments)

        return counted

    for name in ("post", "post_spans"):
        monkeypatch.setattr(transport, name, counting(getattr(transport, name)))
    request = ask(made, (0, 36))
    filled(made, request)
    made.prefill[0].hold("r", request.prefill)
    transfer = made.decode[0].submit(request, 60)
    most = 0
    while not transfer.ended:
        posted.clear()
        rounds(made, net, 1)
        most = max(most, len(posted))
    assert transfer.state == "done"
    assert 1 <= most <= 3
