"""Hosts for processes: network namespaces at one switch, whose cables can be pulled. Linux, as root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

OURS = "kvplan-test"
NET = "10.231.77"


class Unable(Exception):
    """This machine does not let us; the text says what."""


def ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise Unable(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


@cache
def unable() -> str:
    """Why no hosts can be made here; empty where they can."""
    if not shutil.which("ip"):
        return "no network namespaces: there is no `ip` command"
    try:
        with hosts(1):
            return ""
    except Unable as error:
        return f"no network namespaces: {error}"


@cache
def undelayed() -> str:
    """Why a link cannot be slowed here; empty where it can."""
    if reason := unable():
        return reason
    try:
        with hosts(1) as made:
            made[0].delay(1)
            return ""
    except Unable as error:
        return f"no delayed links: {error}"


@dataclass(slots=True)
class Host:
    """A namespace with one cable to the switch."""

    name: str
    address: str
    switch: str
    port: str
    prefix: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Pull the cable at the switch: packets vanish, and nobody is told."""
        ip("-n", self.switch, "link", "set", self.port, "nomaster")

    def heal(self) -> None:
        ip("-n", self.switch, "link", "set", self.port, "master", "switch")

    def delay(self, milliseconds: int) -> None:
        """Let every packet from here take longer. Raises Unable where the kernel has no netem."""
        _run(*self.prefix, "tc", "qdisc", "replace", "dev", "cable", "root", "netem", "delay", f"{milliseconds}ms")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts, and nothing left of them afterwards. Raises Unable."""
    sweep()
    prefix = f"{OURS}-{os.getpid()}-{os.urandom(2).hex()}"
    switch = f"{prefix}-switch"
    made = [Host(f"{prefix}-{n}", f"{NET}.{n + 1}", switch, f"port{n}") for n in range(count)]
    try:
        _switch(switch)
        for host in made:
            _host(host)
        yield made
    finally:
        for name in (switch, *(host.name for host in made)):
            _remove(name)


def sweep() -> None:
    """Remove what runs that were killed have left behind."""
    for name, pid in re.findall(rf"^({OURS}-(\d+)-\S+)", ip("netns", "list"), re.M):
        if not os.path.exists(f"/proc/{pid}"):
            _remove(name)


def _remove(name: str) -> None:
    if os.path.exists(f"/run/netns/{name}"):
        ip("netns", "del", name)


def _switch(name: str) -> None:
    ip("netns", "add", name)
    ip("-n", name, "link", "add", "switch", "type", "bridge")
    ip("-n", name, "link", "set", "switch", "up")


def _host(host: Host) -> None:
    ip("netns", "add", host.name)
    ip("-n", host.name, "link", "add", "cable", "type", "veth", "peer", "name", host.port, "netns", host.switch)
    ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "cable")
    for device in ("lo", "cable"):
        ip("-n", host.name, "link", "set", device, "up")
    ip("-n", host.switch, "link", "set", host.port, "master", "switch", "up")
