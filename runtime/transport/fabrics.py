"""Fabrics over which memory is read one-sided, without the help of the process that it belongs to.

Two agents that share one read each other by it: RDMA, or the memory of one host. Over TCP nothing is one-sided: UCX
answers a read in the process that is read from, and ends that process with "Endpoint timeout" where a reader dies
within a read (NIXL 1.5.1 with UCX 1.23; docs/hazards.md has what was tried). Who shares no fabric writes, which harms
nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

RDMA_DEVICES, BOOT = Path("/sys/class/infiniband"), Path("/proc/sys/kernel/random/boot_id")
NAMESPACES = ("ipc", "pid")
# Names that UCX_TLS may have for the transports of a kind, as UCX 1.23 has them; a name may end in _verbs, _mlx5 or so.
RDMA = ("ib", "rc", "dc", "ud", "srd", "rdmacm", "gga")
SHARED = ("shm", "sm", "mm", "posix", "sysv", "cma", "knem", "xpmem", "cuda", "rocm", "ze")


def fabrics() -> frozenset[str]:
    """The fabrics of this process as UCX_TLS lets it use them: `rdma`, and one name for this host's memory."""
    found = set[str]()
    if _allowed(RDMA) and RDMA_DEVICES.is_dir() and any(RDMA_DEVICES.iterdir()):
        found.add("rdma")
    if _allowed(SHARED) and BOOT.is_file():
        found.add(" ".join(["host", BOOT.read_text().strip(), *(_namespace(name) for name in NAMESPACES)]))
    return frozenset(found)


def _allowed(kinds: tuple[str, ...]) -> bool:
    """Whether UCX_TLS leaves a transport of one of `kinds`: all where it is not set, all others after a `^`."""
    listed = os.environ.get("UCX_TLS", "all")
    words = [word.strip().lstrip("\\") for word in listed.removeprefix("^").split(",")]
    named = {kind for kind in kinds for word in words if word.partition("_")[0] == kind}
    if listed.startswith("^"):
        return named != set(kinds)
    return "all" in words or bool(named)


def _namespace(name: str) -> str:
    """A namespace of this process, in which other processes can be named; nothing where the system has none."""
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""
