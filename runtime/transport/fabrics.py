"""Fabrics over which memory is read one-sided, without the help of the process that owns it.

Two agents that share a fabric can read each other by it: RDMA, or the memory of one host. TCP is not one-sided: UCX
answers a read in the process that owns the memory, and ends that process with "Endpoint timeout" if a reader dies
during a read (NIXL 1.5.1 with UCX 1.23; docs/hazards.md has the experiments). Agents without a common fabric write
instead, which is safe.
"""

from __future__ import annotations

import os
from pathlib import Path

RDMA_DEVICES, VERBS = Path("/sys/class/infiniband"), Path("/dev/infiniband")
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACES = ("ipc", "pid")
# The words of UCX_TLS in UCX 1.23, with the transports that read another process's host memory one-sided. Other
# transports do not: posix, sysv and mm need memory that was allocated to be shared, and cuda_ipc and the like read only
# device memory. They would read a cache in host memory with the owner's help.
RC, DC, UD = ({f"{name}_verbs", f"{name}_mlx5"} for name in ("rc", "dc", "ud"))
RDMA = RC | DC | UD | {"srd", "gga_mlx5"}
HOST = {"cma", "knem", "xpmem"}
ALIASES: dict[str, set[str]] = {
    **{word: {word} for word in RDMA | HOST},
    "all": RDMA | HOST,
    "ib": RC | DC | UD,
    "rc": RC,
    "dc": DC,
    "ud": UD,
    **{f"{name}_x": {f"{name}_mlx5"} for name in ("rc", "dc", "ud")},
    **{f"{name}_v": {f"{name}_verbs"} for name in ("rc", "dc", "ud")},
    "gga": {"gga_mlx5"},
    "shm": HOST,
    "sm": HOST,
}


def fabrics(mem_type: str = "DRAM") -> frozenset[str]:
    """Return the fabrics that UCX_TLS lets this process use: `rdma`, and one name for this host's memory.

    GPU memory has no host fabric: cuda_ipc reads it only over NVLink, and never memory of expandable segments.
    Otherwise a read goes over TCP. (cuda_ipc writes to it everywhere.)
    """
    found, allowed = set[str](), _allowed()
    if allowed & RDMA and _device():
        found.add("rdma")
    if mem_type == "DRAM" and allowed & HOST and BOOT.is_file():
        found.add(" ".join(["host", BOOT.read_text().strip(), *(_namespace(name) for name in NAMESPACES)]))
    return frozenset(found)


def _allowed() -> set[str]:
    """Return the transports that UCX_TLS allows: all if it is not set, and all but those listed after a `^`."""
    listed = os.environ.get("UCX_TLS", "all")
    words = [word.strip().lstrip("\\") for word in listed.removeprefix("^").split(",")]
    named = set[str]().union(*(ALIASES.get(word, set()) for word in words))
    return ALIASES["all"] - named if listed.startswith("^") else named


def _device() -> bool:
    """Return whether this process can see an RDMA device that UCX_NET_DEVICES does not exclude."""
    if not VERBS.is_dir() or not RDMA_DEVICES.is_dir():
        return False
    listed = os.environ.get("UCX_NET_DEVICES", "all").removeprefix("^")
    names = {word.strip().partition(":")[0] for word in listed.split(",")}
    left_out = os.environ.get("UCX_NET_DEVICES", "").startswith("^")
    devices = {path.name for path in RDMA_DEVICES.iterdir()}
    return bool(devices - names if left_out else devices if "all" in names else devices & names)


def _namespace(name: str) -> str:
    """Return the identity of a namespace of this process, or an empty text if the system has none."""
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""
