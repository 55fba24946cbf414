"""Device memory: the CUDA context that a thread needs for it, and torch's view of it, which is never a copy."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs

DRIVER = "libcuda.so.1"
# CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL and _IS_LEGACY_CUDA_IPC_CAPABLE
DEVICE, IPC_CAPABLE = 9, 10
_thread = threading.local()


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Device memory that torch wraps without a copy. Its owner keeps it alive."""

    __cuda_array_interface__: dict[str, object]


def enter(geometry: Geometry) -> None:
    """Set this thread's CUDA context to the device of the memory, if it is on one and the thread has no context.

    Without it, UCX finds no path between GPUs, and torch's calls make a context on the first device, which takes
    hundreds of megabytes in each process.
    """
    if "VRAM" not in geometry.mem_types or getattr(_thread, "entered", False):
        return
    _thread.entered = True
    try:
        _enter(ctypes.CDLL(DRIVER), min(device for mem_type, device in geometry.memories if mem_type == "VRAM"))
    except OSError as error:  # Devices of other vendors have no such driver.
        logs.event(logs.DEBUG, "no CUDA driver", error=error)


def _enter(driver: Any, number: int) -> None:
    context, device = ctypes.c_void_p(), ctypes.c_int()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    if context:
        return
    calls = (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(device), number),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxSetCurrent", context),
    )
    for name, *arguments in calls:
        if code := getattr(driver, name)(*arguments):
            logs.event(logs.WARNING, "device not entered", device=number, call=name, code=code)
            return


def check_device(address: int, said: int) -> None:
    """Raises RegisterError if the driver knows that memory is on another device than `said`."""
    if (found := _driver_attribute(address, DEVICE)) not in (None, said):
        raise RegisterError(
            f"memory at {address:#x} is on device {found}, not {said}: pass Memory(..., device={found})"
        )


def shareable(address: int) -> bool:
    """Return whether other processes of this host can map a device's memory, True if the driver does not know.

    They cannot map memory of expandable segments, or of an engine that can sleep.
    """
    return _driver_attribute(address, IPC_CAPABLE) != 0


def _driver_attribute(address: int, attribute: int) -> int | None:
    """Return the driver's attribute of a device's memory, or None if it has none."""
    value = ctypes.c_int()
    try:
        code = ctypes.CDLL(DRIVER).cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(address))
    except OSError:
        return None
    return None if code else value.value


def tensor_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], item: str, device: int) -> Any:
    """Return device memory as a torch tensor, with `strides` in bytes. Raises RegisterError for another device's."""
    import torch

    if min(strides) < 0:
        raise RegisterError(f"strides {strides} of a copy on a device run backwards: compile the plan again")
    facts = {"shape": shape, "strides": strides, "typestr": item, "data": (address, False), "version": 3}
    tensor = torch.as_tensor(DeviceArray(facts), device=f"cuda:{device}")
    # torch silently copies memory of another device, and writes to the copy would be lost.
    if tensor.data_ptr() != address:
        raise RegisterError(f"memory at {address:#x} is not on device {device}: give the device that it is on")
    return tensor
