"""NIXL with both ends in this process: every byte, the number of requests, and the hazards of its API."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kvplan.runtime import Nixl, errors
from kvplan.runtime.nixl import MODULES, api
from kvplan.runtime.plan import Ints
from tests.runtime.plans import Model, Shape
from tests.runtime.test_pull import PAIRS, ask, finished, pull
from tests.runtime.worlds import world

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)

LENGTH = 1 << 16


@pytest.mark.parametrize(("prefill", "decode", "model"), PAIRS)
def test_every_byte_and_the_predicted_requests(prefill: Shape, decode: Shape, model: Model) -> None:
    made = world(prefill, decode, model, nixl=True)
    try:
        for number, (tokens, order) in enumerate([((0, 48), "random"), ((5, 45), "rising"), ((0, 47), "edges")]):
            for arrays in made.decode_memory:
                for array in arrays.values():
                    array[:] = 0
            pull(made, ask(made, tokens, order, name=f"r{number}"))
        assert finished(made)[0][0] == "r0"
    finally:
        made.close()


class Two:
    """An agent that reads and one that is read, with a buffer each."""

    def __init__(self) -> None:
        self.reader, self.owner = Nixl("reader", telemetry=True), Nixl("owner")
        self.mine, self.theirs = np.zeros(LENGTH, np.uint8), np.arange(LENGTH, dtype=np.uint16).astype(np.uint8)
        self.reader.register(region(self.mine), "DRAM")
        self.owner.register(region(self.theirs), "DRAM")
        self.peer = self.reader.add_peer(self.owner.metadata())

    def lists(self, size: int = 64) -> tuple[Any, Any]:
        rows = [np.array([[a.ctypes.data, size, 0, size, LENGTH // size]]) for a in (self.mine, self.theirs)]
        return self.reader.prepare(None, rows[0], "DRAM"), self.reader.prepare(self.peer, rows[1], "DRAM")

    def read(self, index: np.ndarray) -> Any:
        local, remote = self.lists()
        return self.reader.read(self.peer, local, index, remote, index)

    def until_done(self, handle: Any) -> None:
        until = time.monotonic() + 10
        while not handle.poll():
            self.owner.notifications()
            self.reader.notifications()
            assert time.monotonic() < until

    def close(self) -> None:
        self.reader.close()
        self.owner.close()


def region(array: np.ndarray) -> Ints:
    return np.array([[array.ctypes.data, array.nbytes, 0]])


def index(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.close()


def test_a_handle_is_refused_after_its_release(two: Two) -> None:
    handle = two.read(index(1, 2))
    two.until_done(handle)
    assert handle.requests() == 1
    handle.release()
    handle.release()
    for call in (handle.poll, handle.post):
        with pytest.raises(errors.HandleError):
            call()


def test_a_read_under_way_is_not_released(two: Two) -> None:
    handle = two.read(index(1))
    if handle.state == "done":
        pytest.skip("the read was done when it was posted")
    with pytest.raises(errors.HandleError, match="may still write"):
        handle.release()
    two.until_done(handle)


def test_nothing_moves_while_the_target_does_not_poll(two: Two) -> None:
    handle = two.read(index(1))
    for _ in range(50):
        two.reader.notifications()
        assert not handle.poll()
    two.until_done(handle)
    np.testing.assert_array_equal(two.mine[64:128], two.theirs[64:128])


def test_lists_of_another_agent_are_refused(two: Two) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.HandleError, match="another agent"):
        two.owner.read(two.peer, local, index(0), remote, index(0))
    with pytest.raises(errors.HandleError, match="another agent"):
        two.reader.read(two.peer, remote, index(0), local, index(0))


def test_released_lists_are_refused(two: Two) -> None:
    local, remote = two.lists()
    remote.release()
    with pytest.raises(errors.HandleError, match="after its release"):
        two.reader.read(two.peer, local, index(0), remote, index(0))


@pytest.mark.parametrize("wrong", [np.array([1]), np.array([1.7]), np.array([1 << 32])])
def test_indices_are_never_cast(two: Two, wrong: np.ndarray) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.TransportError, match="int32"):
        two.reader.read(two.peer, local, wrong, remote, wrong)


@pytest.mark.parametrize("at", [-1, LENGTH // 64])
def test_an_index_out_of_range_is_refused(two: Two, at: int) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.TransportError, match="InvalidParam"):
        two.reader.read(two.peer, local, index(at), remote, index(at))


@pytest.mark.parametrize(
    "row",
    [
        (0, 64, 0, 64, 1),
        (8, 0, 0, 64, 1),
        (8, (1 << 63) - 4, 0, 64, 1),
        (8, 64, 0, 1 << 60, 100),
        (8, 64, 0, 0, 2),
        (8, 64, -1, 64, 1),
    ],
)
def test_rows_that_wrap_or_are_empty_are_refused(two: Two, row: tuple[int, ...]) -> None:
    with pytest.raises(errors.AddressError):
        two.reader.prepare(None, np.array([row]), "DRAM")


def test_spans_that_wrap_or_are_empty_are_refused(two: Two) -> None:
    good = region(two.mine)
    for bad in ([[8, -4, 0]], [[8, 0, 0]], [[(1 << 63) - 10, 100, 0]]):
        with pytest.raises(errors.AddressError):
            two.reader.read_spans(two.peer, np.array(bad), "DRAM", good, "DRAM")


def test_memory_that_is_not_registered_is_refused(two: Two) -> None:
    other = np.zeros(64, np.uint8)
    with pytest.raises(errors.TransportError, match="NotFound"):
        two.reader.prepare(None, np.array([[other.ctypes.data, 64, 0, 64, 1]]), "DRAM")


def test_a_restarted_peer_has_another_name(two: Two) -> None:
    again = Nixl("owner")
    again.register(region(two.theirs), "DRAM")
    assert again.name != two.owner.name
    peer = two.reader.add_peer(again.metadata())
    two.reader.remove_peer(peer)
    again.close()


def test_a_removed_peer_reads_nothing(two: Two) -> None:
    local, remote = two.lists()
    two.reader.remove_peer(two.peer)
    with pytest.raises(errors.TransportError):
        two.reader.read(two.peer, local, index(0), remote, index(0))


def test_notifications_of_any_bytes(two: Two) -> None:
    sent = [b"", bytes(range(256)), b"x" * (1 << 20)]
    for message in sent:
        two.reader.notify(two.peer, message)
    found: list[bytes] = []
    until = time.monotonic() + 10
    while len(found) < len(sent) and time.monotonic() < until:
        two.reader.notifications()
        found += [message for _, message in two.owner.notifications()]
    assert sorted(found, key=len) == sent


def test_what_was_tried_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.NixlMissingError) as caught:
        api()
    assert all(name in str(caught.value) for name in MODULES)


def test_an_old_nixl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.4.9")
    with pytest.raises(errors.NixlMissingError, match=r"version 1\.4"):
        api()


def test_a_failing_release_of_a_read_that_ended_is_logged(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    handle = two.read(index(1))
    two.until_done(handle)
    real, handle.value = handle.value, Failing()
    handle.release()
    assert handle.state == "released"
    assert "release of a read" in caplog.text
    real.release()


class Failing:
    """Stands for NIXL where every call that gives something back fails."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> None:
            self.calls.append(name)
            raise RuntimeError(name)

        return call


def test_close_tries_every_step(two: Two) -> None:
    handle, real, failing = two.read(index(1)), two.reader._agent, Failing()
    two.until_done(handle)
    handle.release()
    two.reader._agent = failing
    two.reader.close()
    two.reader.close()
    assert failing.calls == ["remove_remote_agent", "deregister_memory"]
    assert two.reader._agent is None
    del real


def test_calls_after_close_are_typed_errors(two: Two) -> None:
    local, remote = two.lists()
    two.reader.close()
    spans = region(two.mine)
    for call in (
        two.reader.metadata,
        two.reader.notifications,
        lambda: two.reader.notify(two.peer, b""),
        lambda: two.reader.add_peer(b"x"),
        lambda: two.reader.register(spans, "DRAM"),
        lambda: two.reader.prepare(None, np.array([[8, 64, 0, 64, 1]]), "DRAM"),
        lambda: two.reader.read(two.peer, local, index(0), remote, index(0)),
        lambda: two.reader.read_spans(two.peer, spans, "DRAM", spans, "DRAM"),
    ):
        with pytest.raises(errors.TransportError, match="is closed"):
            call()


def test_a_read_that_did_not_begin_is_told_from_one_that_failed(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = two.lists()
    far, near = np.array([[8, 64, 0]]), region(two.mine[:64])
    with pytest.raises(errors.NotBegunError):
        two.reader.read(two.peer, local, index(1 << 20), remote, index(0))
    with pytest.raises(errors.NotBegunError):
        two.reader.read_spans(two.peer, near, "DRAM", far, "DRAM")
    monkeypatch.setattr(two.reader.agent, "transfer", lambda handle: "ERR")
    with pytest.raises(errors.TransportError) as caught:
        two.reader.read(two.peer, local, index(0), remote, index(0))
    assert not isinstance(caught.value, errors.HandleError)


def test_a_read_that_did_not_begin_leaves_no_quarantine() -> None:
    made = world(Shape(1), Shape(1), nixl=True)
    try:
        agent = made.decode[0]._transport.agent  # type: ignore[attr-defined]
        agent.make_prepped_xfer = agent.initialize_xfer = Failing().refuse
        transfer = made.decode[0].submit(ask(made, (0, 12)), 5)
        assert isinstance(transfer.error, errors.TransferError)
        assert made.decode[0].quarantined() == {}
    finally:
        made.close()
