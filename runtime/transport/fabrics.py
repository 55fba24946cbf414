"""Fabrics over which memory is read one-sided, without the help of the process that it belongs to.

Two agents that share one read each other by it: RDMA, or the memory of one host. Over TCP nothing is one-sided: UCX
answers a read in the process that is read from, and ends that process with "Endpoint timeout" where a reader dies
within a read (NIXL 1.5.1 with UCX 1.23; docs/hazards.md has what was tried). Who shares no fabric writes, which harms
nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

RDMA_DEVICES, VERBS = Path("/sys/class/infiniband"), Path("/dev/infiniband")
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACES = ("ipc", "pid")
# The words of UCX_TLS, as UCX 1.23 has them, with the transports that read others' host memory one-sided. What a name
# stands for besides does not: posix, sysv and mm share what was allocated to be shared, cuda_ipc and the like read a
# device's memory alone: with these a cache in host memory would be read with the owner's help.
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
    """The fabrics of this process as UCX_TLS lets it use them: `rdma`, and one name for this host's memory.

    Not of a GPU's: it is written by cuda_ipc everywhere, and read by it only over NVLink, and never where it is of
    expandable segments; otherwise a read goes over TCP.
    """
    found, allowed = set[str](), _allowed()
    if allowed & RDMA and _device():
        found.add("rdma")
    if mem_type == "DRAM" and allowed & HOST and BOOT.is_file():
        found.add(" ".join(["host", BOOT.read_text().strip(), *(_namespace(name) for name in NAMESPACES)]))
    return frozenset(found)


def _allowed() -> set[str]:
    """The transports that UCX_TLS leaves: all where it is not set, all others after a `^`."""
    listed = os.environ.get("UCX_TLS", "all")
    words = [word.strip().lstrip("\\") for word in listed.removeprefix("^").split(",")]
    named = set[str]().union(*(ALIASES.get(word, set()) for word in words))
    return ALIASES["all"] - named if listed.startswith("^") else named


def _device() -> bool:
    """Whether there is an RDMA device that this process may open, and that UCX_NET_DEVICES does not leave out."""
    if not VERBS.is_dir() or not RDMA_DEVICES.is_dir():
        return False
    listed = os.environ.get("UCX_NET_DEVICES", "all").removeprefix("^")
    names = {word.strip().partition(":")[0] for word in listed.split(",")}
    left_out = os.environ.get("UCX_NET_DEVICES", "").startswith("^")
    devices = {path.name for path in RDMA_DEVICES.iterdir()}
    return bool(devices - names if left_out else devices if "all" in names else devices & names)


def _namespace(name: str) -> str:
    """A namespace of this process, in which other processes can be named; nothing where the system has none."""
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""
