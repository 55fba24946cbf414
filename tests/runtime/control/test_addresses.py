"""Addresses: what is one, where IPv6 is meant, and requests over it with keys, from the card to the last byte."""

from __future__ import annotations

import pytest
from tests.runtime.control.test_channel import ipv6, talk
from tests.runtime.helpers.control import pair
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, move
from tests.runtime.helpers.worlds import world

from kvplan.runtime import Plain, errors
from kvplan.runtime.control.addresses import check_address, is_everywhere, is_ipv6, is_loopback
from kvplan.runtime.control.channel import ControlClient, ControlServer

needs_ipv6 = pytest.mark.skipif(not ipv6(), reason="this machine has no IPv6")
ANYWHERE = ["tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://[0:0:0:0:0:0:0:0]:1", "tcp://[::ffff:0.0.0.0]:1"]
SOMEWHERE = [
    "tcp://10.0.0.1:1",
    "tcp://prefill-0:*",
    "tcp://[::1]:1",
    "tcp://[fe80::1%eth0]:1",
    "tcp://[prefill-0]:1",
    "tcp://eth1:0;10.0.0.1:5",
]


@pytest.mark.parametrize("address", [*ANYWHERE, *SOMEWHERE, "ipc:///tmp/a"])
def test_addresses(address: str) -> None:
    check_address(address)
    assert is_everywhere(address) == (address in ANYWHERE)
    assert is_ipv6(address) == ("[" in address)


HERE = ["tcp://127.0.0.1:1", "tcp://127.1.2.3:*", "tcp://localhost:1", "tcp://[::1]:1", "ipc:///tmp/a"]
BEYOND = [
    *ANYWHERE,
    *SOMEWHERE[:2],
    "tcp://127.0.0.1:0;10.0.0.1:5",
    "tcp://127.0.0.1.example:1",
    "tcp://127.1:1",
    "tcp://127.0.0.0/8:1",
    "tcp://[localhost6]:1",
    "tcp://[::ffff:127.0.0.1]:1",
]


def test_which_addresses_are_this_machine_s() -> None:
    assert [is_loopback(address) for address in (*HERE, *BEYOND)] == [*[True] * len(HERE), *[False] * len(BEYOND)]


@pytest.mark.parametrize("address", BEYOND)
def test_without_keys_no_socket_of_loopback_listens_or_connects_beyond(address: str) -> None:
    for make in (ControlServer, ControlClient):
        with pytest.raises(errors.KeysError, match=r"not on this machine, and there are no keys.*`kvplan keys`"):
            make(address, Plain(loopback=True))


@pytest.mark.parametrize("address", ["tcp://::1:5555", "tcp://fe80::1%eth0:5555", "tcp://2001:db8::1", "tcp://:::*"])
def test_ipv6_without_brackets_is_told_so(address: str) -> None:
    keys, _ = pair()
    for make in (ControlServer, ControlClient):
        with pytest.raises(errors.HandshakeError, match=r"put an IPv6 host in brackets, as in tcp://\[::1\]:5555"):
            make(address, keys)


@pytest.mark.parametrize(
    "address", [None, b"tcp://a:1", "", "x", "tcp://a", "tcp://[::1]", "tcp://[::1:5", "udp://a:1"]
)
def test_what_is_no_address(address: object) -> None:
    with pytest.raises(errors.HandshakeError, match="is no address: give the one that the worker prints"):
        check_address(address)


@needs_ipv6
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_requests_over_ipv6(mode: str) -> None:
    keys, d_keys = pair()
    made = world(Shape(2), Shape(1), mode=mode, bind="tcp://[::1]:*", keys=keys, d_keys=d_keys)
    assert all(source.address.startswith("tcp://[::1]:") for source in made.prefill)
    move(made, ask(made, (0, 12)))


@needs_ipv6
def test_a_server_of_both_families() -> None:
    """[::] listens to IPv4, too: engines of both meet it."""
    one, other = pair()
    desk = ControlServer("tcp://[::]:*", one)
    port = desk.address.rpartition(":")[2]
    for host in ("[::1]", "127.0.0.1"):
        line = ControlClient(f"tcp://{host}:{port}", other)
        talk(desk, line)
        line.close()
    desk.close()
