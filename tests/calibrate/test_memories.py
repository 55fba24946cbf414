"""Memory of a GPU that is not to be had, by a torch that is made up."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.calibrate.memories import DeviceMemory
from kvplan.compiler.errors import BadInput


def full(*_: Any, **__: Any) -> None:
    raise RuntimeError("CUDA out of memory")


@pytest.mark.parametrize("what", ["allocate", "noise"])
def test_a_gpu_without_room_is_an_error_with_its_reason(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = SimpleNamespace(manual_seed=lambda _: None)
    torch = SimpleNamespace(
        cuda=SimpleNamespace(init=lambda: None), Generator=lambda _: generator, ones=full, randint=full, uint8=None
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(BadInput, match="no memory of the GPU can be had: CUDA out of memory") as error:
        getattr(DeviceMemory(), what)(1 << 20)
    assert error.value.code == "S031"
