"""Hosts: packets pass, vanish while a cable is pulled, pass again; and nothing is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cluster.hosts import OURS, Host, Unable, hosts, ip, sweep, unable, undelayed

if unable():
    pytest.skip(unable(), allow_module_level=True)

SERVE = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 4000))
print("up", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(int(sys.argv[2])):
    s.settimeout(float(sys.argv[3]))
    s.sendto(b"x", (sys.argv[1], 4000))
    try:
        s.recv(100)
        sys.exit(0)
    except OSError:
        pass
sys.exit(1)
"""


@pytest.fixture
def pair() -> Iterator[list[Host]]:
    with hosts(2) as made:
        server = subprocess.Popen(
            [*made[0].prefix, sys.executable, "-c", SERVE, made[0].address], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "up\n"
            yield made
        finally:
            server.kill()
            server.wait(10)
            server.stdout.close()


def answers(made: list[Host], tries: int = 40, wait: float = 0.25) -> bool:
    command = [*made[1].prefix, sys.executable, "-c", ASK, made[0].address, str(tries), str(wait)]
    return subprocess.run(command, timeout=60).returncode == 0


def test_a_cable_is_pulled_and_plugged_in_again(pair: list[Host]) -> None:
    assert answers(pair)
    for host in pair:
        host.cut()
        assert not answers(pair, 2, 0.1)
        host.heal()
        assert answers(pair)


def test_a_slow_link_still_answers(pair: list[Host]) -> None:
    if undelayed():
        pytest.skip(undelayed())
    pair[0].delay(100)
    assert answers(pair)


def test_hosts_do_not_see_the_machine(pair: list[Host]) -> None:
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        command = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 1)"
        port = str(listening.getsockname()[1])
        done = subprocess.run([*pair[1].prefix, sys.executable, "-c", command, port], stderr=subprocess.DEVNULL)
        assert done.returncode


def test_nothing_is_left_behind_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), hosts(2):
        _ = 1 / 0
    assert f"{OURS}-{os.getpid()}-" not in ip("netns", "list")


def test_what_a_killed_run_left_is_swept() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(20)
    name = f"{OURS}-{gone.pid}-left"
    ip("netns", "add", name)
    sweep()
    assert name not in ip("netns", "list")


def test_what_the_machine_refuses_is_named() -> None:
    with pytest.raises(Unable, match="ip: "):
        ip("netns", "del", f"{OURS}-none")
