"""Memory that is measured: the host's through numpy, a device's through torch. Both allocate, look and copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.compiler.errors import BadInput

if TYPE_CHECKING:
    import torch

WORD = 8


class CalibratedMemory(Protocol):
    """A sort of memory by NIXL's name for it. What `allocate` gives is flat, bytes; `words` sees it in words of 8."""

    mem_type: str

    def allocate(self, size: int) -> Any: ...

    def words(self, whole: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        """A view of `whole` with a step in bytes for each axis."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy views of one shape, and wait until that is done."""


class HostMemory:
    """DRAM, through numpy."""

    mem_type = "DRAM"

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        # Pages that were never written are all one page, which no cache misses.
        return np.ones(size, np.uint8)

    def words(self, whole: npt.NDArray[np.uint8], shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        return np.lib.stride_tricks.as_strided(whole.view(np.uint64), shape, steps)

    def copy(self, target: Any, source: Any) -> None:
        np.copyto(target, source)


class DeviceMemory:
    """VRAM of the first device, through torch. Raises BadInput (S031) where either is not there."""

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
        return self._torch.ones(size, dtype=self._torch.uint8, device="cuda")

    def words(self, whole: torch.Tensor, shape: tuple[int, ...], steps: tuple[int, ...]) -> torch.Tensor:
        return whole.view(self._torch.int64).as_strided(shape, [step // WORD for step in steps])

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)
        self._torch.cuda.synchronize()


def memory_of(mem_type: str) -> CalibratedMemory:
    """The memory that NIXL calls so: DRAM or VRAM."""
    return HostMemory() if mem_type == HostMemory.mem_type else DeviceMemory()
