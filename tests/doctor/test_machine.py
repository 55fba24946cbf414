"""`kvplan doctor` describes the machine that it runs on, and no check of it hangs."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.paths import FIXTURES

from kvplan.cli.main import main
from kvplan.doctor import machine
from kvplan.runtime.control.keys import Keys

CONFIG = FIXTURES / "configs" / "llama-3.1-8b.json"


def test_what_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NIXL", "import time; time.sleep(60)")
    began = time.monotonic()
    found = machine.nixl(seconds=0.5)
    assert time.monotonic() - began < 10
    assert (found.said, bool(found.help)) == ("made no agent in 0.5 s", True)


def test_what_ends_the_process_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NIXL", "raise SystemExit('nixlBackendError')")
    assert (machine.nixl().said, bool(machine.nixl().help)) == ("nixlBackendError", True)


def test_nixl_that_is_there() -> None:
    pytest.importorskip("nixl")
    assert machine.nixl().help == ""


@pytest.mark.parametrize(
    ("variables", "gpu", "said"),
    [
        ({}, True, ""),
        ({"UCX_TLS": "all"}, True, ""),
        ({"UCX_TLS": "^ib"}, True, ""),
        ({"UCX_TLS": "tcp,cuda_copy,self"}, True, ""),
        ({"UCX_TLS": "tcp"}, False, ""),
        ({"UCX_TLS": "tcp"}, True, "leaves CUDA out"),
        ({"UCX_TLS": "^cuda"}, True, "leaves CUDA out"),
        ({"UCX_TLS": "posix,cma,self"}, False, "no transport that reports"),
        ({"UCX_TLS": "sm", "UCX_MM_ERROR_HANDLING": "y"}, False, ""),
        ({"UCX_NET_DEVICES": "eth7"}, False, "names eth7"),
        ({"UCX_NET_DEVICES": "lo"}, False, ""),
        ({"UCX_NET_DEVICES": "mlx5_0:1,lo"}, False, "names mlx5_0"),
    ],
)
def test_variables_of_ucx(variables: dict[str, str], gpu: bool, said: str, tmp_path: Path) -> None:
    (tmp_path / "lo").mkdir()
    (found,) = machine.ucx(variables, gpu, (tmp_path,))
    assert (said in found.said, bool(found.help)) == (True, bool(said))


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = machine.ports("127.0.0.1", [port])
    assert (f"127.0.0.1:{port}: " in found.said, bool(found.help)) == (True, True)
    assert machine.ports("127.0.0.1", [port]).help == ""


def test_an_address_that_is_not_this_machines() -> None:
    assert machine.ports("192.0.2.1", [7600]).help


def test_keys(tmp_path: Path) -> None:
    folder = tmp_path / "keys-this"
    assert machine.keys(folder).help == ""
    _, secret = Keys.make(folder, "this")
    assert "no public key of a peer" in machine.keys(folder).said
    public, _ = Keys.make(tmp_path / "keys-peer", "peer")
    (folder / public.name).write_bytes(public.read_bytes())
    assert machine.keys(folder).said == f"{folder} has a secret key and 1 of peers"
    secret.chmod(0o644)
    assert machine.keys(folder).help == f"chmod 600 {secret}"


def test_a_machine_that_is_not_ready_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["doctor", str(CONFIG), "--engine", "vllm", "--format", "json"]
    monkeypatch.setattr(machine, "nixl", lambda: machine.MachineFinding("NIXL", "is not there", "install it"))
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, json.loads(done.stdout)["machine"][0]["help"]) == (1, "install it")
    for check in ("nixl", "release", "ports"):
        monkeypatch.setattr(machine, check, lambda *_: machine.MachineFinding("all", "is well"))
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert CliRunner().invoke(main, words).exit_code == 0
