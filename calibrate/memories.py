"""Measured memory: the host's through numpy, a device's through torch. Both allocate, view and copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.compiler.errors import BadInput

if TYPE_CHECKING:
    import torch

    from kvplan.runtime.prefill.events import ComputeEvent

# Item types by bytes, as numpy and torch name them. The 16-byte type is complex only for its width: it copies bits.
ITEMS = {2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class CalibratedMemory(Protocol):
    """A kind of memory by NIXL's name for it. `allocate` returns flat bytes."""

    mem_type: str

    def allocate(self, size: int) -> Any: ...

    def noise(self, size: int) -> Any:
        """Allocate bytes that differ, the same ones each time."""

    def event(self) -> ComputeEvent | None:
        """Return an event after all work begun so far, None if work is complete when a call returns."""

    def view(self, whole: Any, item: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        """Return a view of `whole` as items of `item` bytes, with a step in items for each axis."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy views of one shape, and wait until that is done."""


class HostMemory:
    """DRAM, through numpy."""

    mem_type = "DRAM"

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        # Written, because pages that were never written are all one page, which always hits the cache.
        return np.ones(size, np.uint8)

    def noise(self, size: int) -> npt.NDArray[np.uint8]:
        return np.random.default_rng(1).integers(0, 256, size, np.uint8)

    def event(self) -> None:
        return None

    def view(self, whole: npt.NDArray[np.uint8], item: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        return np.lib.stride_tricks.as_strided(whole.view(ITEMS[item]), shape, [step * item for step in steps])

    def copy(self, target: Any, source: Any) -> None:
        np.copyto(target, source)


class DeviceMemory:
    """VRAM of the first device, through torch. Raises BadInput (S031) if torch or a device is missing."""

    mem_type = "VRAM"

    def __init__(self) -> None:
        try:
            import torch

            torch.cuda.init()
        except (ImportError, RuntimeError, AssertionError) as error:
            help = "install torch where there is a GPU, or measure DRAM"
            raise BadInput("S031", f"no VRAM can be measured here: {error}", help) from error
        self._torch = torch

    def allocate(self, size: int) -> torch.Tensor:
        return self._allocated(self._torch.ones, size)

    def noise(self, size: int) -> torch.Tensor:
        generator = self._torch.Generator("cuda").manual_seed(1)
        return self._allocated(self._torch.randint, 0, 256, (size,), generator=generator)

    def _allocated(self, make: Callable[..., torch.Tensor], *arguments: object, **more: object) -> torch.Tensor:
        """Raises BadInput (S031) if the device has no room."""
        try:
            return make(*arguments, **more, dtype=self._torch.uint8, device="cuda")
        except RuntimeError as error:
            help = "end what else runs on that GPU, or measure DRAM"
            raise BadInput("S031", f"no memory of the GPU can be had: {error}", help) from error

    def event(self) -> ComputeEvent:
        event = self._torch.cuda.Event()
        event.record()
        recorded: ComputeEvent = event
        return recorded

    def view(self, whole: torch.Tensor, item: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> torch.Tensor:
        return whole.view(getattr(self._torch, ITEMS[item])).as_strided(shape, steps)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)
        self._torch.cuda.synchronize()


def memory_of(mem_type: str) -> CalibratedMemory:
    """Return the memory by NIXL's name: DRAM or VRAM."""
    return HostMemory() if mem_type == HostMemory.mem_type else DeviceMemory()
