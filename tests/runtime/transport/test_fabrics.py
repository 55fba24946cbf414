"""Which fabrics a process has: RDMA where there is a device, a host's memory, and neither where UCX may not use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.runtime.transport import fabrics as module
from kvplan.runtime.transport.fabrics import fabrics


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an RDMA device."""
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    (tmp_path / "verbs").mkdir()
    (tmp_path / "boot_id").write_text("b00t\n")
    monkeypatch.setattr(module, "RDMA_DEVICES", tmp_path / "infiniband")
    monkeypatch.setattr(module, "VERBS", tmp_path / "verbs")
    monkeypatch.setattr(module, "BOOT", tmp_path / "boot_id")
    monkeypatch.delenv("UCX_TLS", raising=False)
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    return tmp_path


def kinds() -> set[str]:
    return {name.partition(" ")[0] for name in fabrics()}


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ("all", {"rdma", "host"}),
        ("tcp", set()),
        ("tcp,self", set()),
        ("rc_mlx5,self", {"rdma"}),
        ("\\rc,tcp", {"rdma"}),
        ("ib", {"rdma"}),
        ("posix,cma,self", {"host"}),
        ("tcp,cuda_ipc,cuda_copy", set()),
        ("tcp,cuda_copy", set()),
        ("tcp,posix", set()),
        ("sysv,mm,tcp", set()),
        ("tcp,sm", {"host"}),
        ("^sm", {"rdma"}),
        ("^shm,ib,srd,gga", set()),
        ("^tcp", {"rdma", "host"}),
        ("^ib,rc,dc,ud,srd,rdmacm,gga", {"host"}),
    ],
)
def test_what_ucx_may_use(machine: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, expected: set[str]) -> None:
    monkeypatch.setenv("UCX_TLS", allowed)
    assert kinds() == expected


@pytest.mark.parametrize("allowed", ["all", "cuda,tcp", "tcp,cuda_ipc,cuda_copy", "sm,cuda"])
def test_memory_of_a_gpu_is_read_by_rdma_alone(machine: Path, monkeypatch: pytest.MonkeyPatch, allowed: str) -> None:
    monkeypatch.setenv("UCX_TLS", allowed)
    assert fabrics("VRAM") == ({"rdma"} if allowed == "all" else set())


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("eth0", {"host"}),
        ("mlx5_0:1", {"rdma", "host"}),
        ("eth0,mlx5_0", {"rdma", "host"}),
        ("^mlx5_0", {"host"}),
        ("^eth0", {"rdma", "host"}),
    ],
)
def test_which_devices_ucx_may_use(
    machine: Path, monkeypatch: pytest.MonkeyPatch, devices: str, expected: set[str]
) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", devices)
    assert kinds() == expected
    (machine / "verbs").rmdir()
    assert kinds() == {"host"}


def test_a_machine_without_devices(machine: Path) -> None:
    (machine / "infiniband" / "mlx5_0").rmdir()
    assert kinds() == {"host"}
    (machine / "infiniband").rmdir()
    (machine / "boot_id").unlink()
    assert fabrics() == frozenset()


def test_hosts_differ_by_their_boot_and_their_namespaces(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = fabrics()
    assert fabrics() == here
    (machine / "boot_id").write_text("0ther\n")
    assert fabrics() & here == {"rdma"}
    (machine / "boot_id").write_text("b00t\n")
    monkeypatch.setattr(module, "_namespace", lambda name: f"{name}:[1]")
    assert fabrics() & here == {"rdma"}
