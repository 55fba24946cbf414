"""A real etcd of one member on this machine, which can be killed, restarted and frozen. Tests use it, too."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

ETCD = shutil.which("etcd")


class EtcdServer:
    """An etcd whose ports and data survive restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        client, peer = _free_ports(2)
        self.url, self._peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        words = [str(ETCD), "--data-dir", str(self._folder / "etcd"), "--log-level", "error"]
        words += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        words += ["--listen-peer-urls", self._peers, "--initial-advertise-peer-urls", self._peers]
        words += ["--initial-cluster", f"default={self._peers}"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def freeze(self, frozen: bool = True) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def resident(self) -> float:
        """Return the KiB of memory that it has now."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
