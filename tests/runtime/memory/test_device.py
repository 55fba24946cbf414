"""Memory of a device: which context a thread gets, and torch's view of memory, by a made up driver and torch."""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.worlds import world

from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory import device
from kvplan.runtime.memory.device import enter, tensor_at
from kvplan.runtime.memory.geometry import Geometry


class Driver:
    """A fake CUDA driver that records its calls and their threads; the call `fails` does not work."""

    def __init__(self, fails: str = "") -> None:
        self.calls, self.fails = list[tuple[str, str]](), fails
        self.current = dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            thread = threading.current_thread().name
            self.calls.append((name, thread))
            return 999 if name == self.fails else self._answer(name, thread, arguments)

        return call

    def _answer(self, name: str, thread: str, arguments: tuple[Any, ...]) -> int:
        if name == "cuPointerGetAttribute":
            of_8192 = {device.DEVICE: 1, device.IPC_CAPABLE: 0}
            put(arguments[0], of_8192[arguments[1]] if arguments[2].value == 8192 else 1)
        if name == "cuCtxGetCurrent":
            put(arguments[0], self.current.get(thread, 0), ctypes.c_size_t)
        if name == "cuDeviceGet":
            put(arguments[0], arguments[1])
        if name == "cuDevicePrimaryCtxRetain":
            put(arguments[0], 1000 + arguments[1].value, ctypes.c_size_t)
        if name == "cuCtxSetCurrent":
            self.current[thread] = arguments[0].value
        return 0


def put(where: Any, value: int, kind: Any = ctypes.c_int) -> None:
    """Write through a pointer that a call was given."""
    ctypes.cast(where, ctypes.POINTER(kind))[0] = value


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(device, "_thread", threading.local())
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def memory(mem_type: str = "VRAM", number: int = 3) -> Geometry:
    one = np.ones(1, np.int64)
    return Geometry(one, one, one, one, one * number, one * 0, np.array([[1, 1, number]]), (mem_type,))


def test_a_thread_that_speaks_of_no_device_speaks_of_its_memory_s(driver: Driver) -> None:
    enter(memory())
    assert driver.current == {"MainThread": 1003}
    before = len(driver.calls)
    enter(memory())
    assert len(driver.calls) == before


def test_one_that_speaks_of_a_device_goes_on_to(driver: Driver) -> None:
    driver.current["MainThread"] = 1000
    enter(memory())
    assert driver.current == {"MainThread": 1000}


def test_host_memory_asks_no_driver(driver: Driver) -> None:
    enter(memory("DRAM"))
    assert not driver.calls


def test_of_memory_in_several_places_the_device_s_counts(driver: Driver) -> None:
    both = memory()
    enter(replace(both, regions=np.array([[1, 1, 0], [1, 1, 3]]), mem_types=("DRAM", "VRAM")))
    assert driver.current == {"MainThread": 1003}


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"])
def test_a_driver_that_fails_is_logged(driver: Driver, call: str, caplog: pytest.LogCaptureFixture) -> None:
    driver.fails = call
    enter(memory())
    assert not driver.current
    assert f"device not entered device=3 call={call} code=999" in caplog.text


def test_without_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_thread", threading.local())
    monkeypatch.setattr(device, "DRIVER", "libno-such-driver.so.1")
    enter(memory())


def test_memory_that_other_processes_can_map(driver: Driver) -> None:
    assert [device.shareable(address) for address in (4096, 8192)] == [True, False]


def test_memory_on_another_device_than_was_said_is_refused(driver: Driver) -> None:
    device.check_device(8192, 1)
    with pytest.raises(RegisterError, match=r"is on device 1, not 3: pass Memory\(..., device=1\)"):
        device.check_device(8192, 3)
    driver.fails = "cuPointerGetAttribute"
    device.check_device(8192, 3)


def test_memory_of_which_nobody_says_so_counts_as_such(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.fails = "cuPointerGetAttribute"
    assert device.shareable(8192)
    monkeypatch.undo()
    monkeypatch.setattr(device, "DRIVER", "libno-such-driver.so.1")
    assert device.shareable(8192)


def test_whoever_meets_or_polls_speaks_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that another test left in this process may poll meanwhile: they have other memory."""
    entered = list[tuple[Geometry, str]]()

    def enters(memory: Geometry) -> None:
        entered.append((memory, threading.current_thread().name))

    for module in ("decode.worker", "decode.connecting", "prefill.worker", "endpoint"):
        monkeypatch.setattr(f"kvplan.runtime.{module}.enter", enters)
    made = world(Shape(1), Shape(1))
    own = {id(worker.endpoint.pool.geometry) for worker in (made.prefill[0], made.decode[0])}
    made.decode[0].start()
    made.decode[0].connect_soon(made.prefill[0].address, 10).result(10)
    made.close()
    threads = {name for memory, name in entered if id(memory) in own}
    assert {"MainThread", "kvplan-prefill-0", "kvplan-meeting", "kvplan-decode-0"} == threads


class FakeTorch:
    """Hands out what lies at an address, or a copy of it where that is another device's."""

    def __init__(self, moved: int) -> None:
        self.moved, self.asked = moved, ""

    def as_tensor(self, lent: Any, device: str) -> FakeTorch:
        self.asked, self.address = device, lent.__cuda_array_interface__["data"][0] + self.moved
        return self

    def data_ptr(self) -> int:
        return int(self.address)


@pytest.mark.parametrize("moved", [0, 4096])
def test_a_copy_of_another_device_s_memory_is_refused(moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(moved)
    monkeypatch.setitem(sys.modules, "torch", torch)
    if not moved:
        assert tensor_at(8192, (2, 2), (2, 1), "|u1", 1) is torch
        assert torch.asked == "cuda:1"
        return
    with pytest.raises(RegisterError, match="not on device 1"):
        tensor_at(8192, (2, 2), (2, 1), "|u1", 1)


def test_what_runs_backwards_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(0))
    with pytest.raises(RegisterError, match="run backwards"):
        tensor_at(8192, (2, 2), (-2, 1), "|u1", 1)
