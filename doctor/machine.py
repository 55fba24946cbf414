"""The machine that `kvplan doctor` runs on: NIXL, ports, keys, UCX, releases. Each check has a deadline."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvplan.plan.errors import KvplanError

NIXL_S = 30.0
# Runs in its own process, so that a hang or a crash is a finding, too.
NIXL = """
import json
from kvplan.runtime.transport.nixl import Nixl, api
module = api()
agent = Nixl("doctor")
print(json.dumps({"module": module.__name__}))
"""
NETWORK = {"all", "tcp", "ib", "rc", "rc_v", "rc_x", "dc", "dc_x", "ud", "ud_v", "ud_x"}
DEVICES = (Path("/sys/class/net"), Path("/sys/class/infiniband"))
OWNER_ONLY = 0o077


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """The finding of one check. `help` is what to do, empty if all is well."""

    what: str
    said: str
    help: str = ""


def nixl(seconds: float = NIXL_S) -> MachineFinding:
    """Check that NIXL can be imported and makes an agent with UCX."""
    command = [sys.executable, "-c", NIXL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return MachineFinding(
            "NIXL", f"made no agent in {seconds:g} s", "unset UCX_*, and try again with NIXL_LOG_LEVEL=INFO"
        )
    if done.returncode == 0:
        return MachineFinding("NIXL", f"{json.loads(done.stdout.splitlines()[-1])['module']} with UCX works")
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), f"ended with {done.returncode}")
    return MachineFinding("NIXL", last.strip(), "on Linux: pip install --no-deps nixl nixl-cu12")


def release(package: str, installed: str, supported: str, good: bool) -> MachineFinding:
    """Check that the engine installed here is a release that the connector supports."""
    if not installed:
        help = "run doctor in the environment of the engine, or say --no-machine if engines run elsewhere"
        return MachineFinding(package, "not installed in this environment", help)
    if good:
        return MachineFinding(package, f"{installed} is installed; the connector is for {supported}")
    return MachineFinding(
        package, f"{installed} is installed", f"install {package} {supported}, which the connector is for"
    )


def ports(host: str, wanted: Sequence[int]) -> MachineFinding:
    """Check that the ports that engines will open on this machine are free."""
    taken = [(port, why) for port in wanted if (why := _bind_error(host, port))]
    if not taken:
        return MachineFinding("ports", f"free on {host}: {', '.join(map(str, wanted))}")
    said = "; ".join(f"{host}:{port}: {why}" for port, why in taken)
    return MachineFinding("ports", said, "stop who listens there, or choose another --port or --host")


def _bind_error(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def keys(folder: Path) -> MachineFinding:
    """Check that a folder has one secret key that only its owner can read, and a peer's public key."""
    from kvplan.runtime.control.keys import SECRET, Keys

    if not folder.is_dir():
        return MachineFinding("keys", f"{folder} is not made yet")
    open_to_others = [path for path in sorted(folder.glob(f"*{SECRET}")) if path.stat().st_mode & OWNER_ONLY]
    if open_to_others:
        path = open_to_others[0]
        return MachineFinding("keys", f"{path} can be read by others", f"chmod 600 {path}")
    try:
        peers = len(Keys.load(folder).peers)
    except (KvplanError, OSError) as error:
        return MachineFinding("keys", str(error), "the commands below make keys and copy the public ones")
    return MachineFinding("keys", f"{folder} has a secret key and {peers} of peers")


def ucx(environment: Mapping[str, str], gpu: bool, devices: Sequence[Path] = DEVICES) -> Iterator[MachineFinding]:
    """Check UCX's environment variables for missing transports and unknown network devices."""
    bad = [*_transports(environment, gpu), *_networks(environment, devices)]
    there = sorted(name for name in environment if name.startswith("UCX_"))
    if bad:
        yield from bad
    else:
        said = f"{', '.join(there)}: nothing that is known to break it" if there else "no UCX_* is set"
        yield MachineFinding("UCX", said)


def _transports(environment: Mapping[str, str], gpu: bool) -> Iterator[MachineFinding]:
    value = environment.get("UCX_TLS", "")
    words = {word.strip() for word in value.removeprefix("^").split(",") if word.strip()}
    if not words:
        return
    without = value.startswith("^")
    has_network = not ("tcp" in words and "ib" in words) if without else bool(words & NETWORK)
    if not has_network and environment.get("UCX_MM_ERROR_HANDLING") != "y":
        said = f"UCX_TLS={value} leaves no transport that reports a peer's failure"
        yield MachineFinding("UCX", said, "unset UCX_TLS, or add tcp")
    cuda = {word for word in words if word.startswith("cuda")}
    if gpu and (bool(cuda) if without else not cuda and "all" not in words):
        said = f"UCX_TLS={value} leaves CUDA out, so GPU memory cannot be registered"
        yield MachineFinding("UCX", said, "unset UCX_TLS, or add cuda")


def _networks(environment: Mapping[str, str], devices: Sequence[Path]) -> Iterator[MachineFinding]:
    value = environment.get("UCX_NET_DEVICES", "all")
    known = {path.name for folder in devices if folder.is_dir() for path in folder.iterdir()}
    named = [word.strip().partition(":")[0] for word in value.split(",")]
    missing = [name for name in named if name not in {*known, "all", ""}]
    if missing:
        help = f"unset UCX_NET_DEVICES, or name some of: {', '.join(sorted(known))}"
        yield MachineFinding("UCX", f"UCX_NET_DEVICES names {missing[0]}, which this machine does not have", help)


def as_lines(found: Sequence[MachineFinding]) -> list[str]:
    """Return a line for each finding, and another one for its `help`."""
    lines = ["", "THIS MACHINE"]
    for each in found:
        lines.append(f"  {'NOT OK' if each.help else 'ok'}: {each.what}: {each.said}")
        lines += [f"   = {each.help}"] if each.help else []
    return lines
