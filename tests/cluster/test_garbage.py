"""The rig's garbage: it has every kind of message in it, good ones and bad ones, and gets where it is sent."""

from __future__ import annotations

import os
import socket
from random import Random
from typing import get_args

import msgspec
import zmq
from tests.cluster import garbage
from tests.runtime.helpers.control import unsealed

from kvplan.runtime.control.messages import ToDecode, ToPrefill
from kvplan.runtime.errors import CardError


def test_every_kind_of_message_is_drawn() -> None:
    random = Random(1)
    for kinds in (ToPrefill, ToDecode):
        drawn = {type(garbage.message(random, kinds)) for _ in range(500)}
        assert drawn == set(get_args(kinds))


def test_some_is_understood_and_some_is_refused_and_nothing_else_happens() -> None:
    random, understood, refused = Random(2), 0, 0
    for _ in range(3000):
        try:
            assert isinstance(unsealed(garbage.frame(random), ToPrefill), msgspec.Struct)
            understood += 1
        except CardError:
            refused += 1
    assert understood > 100
    assert refused > 1000


def test_it_arrives() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind("tcp://127.0.0.1:*")
        host, port = garbage.port_of(router.getsockopt_string(zmq.LAST_ENDPOINT))
        assert port in garbage.ports(os.getpid())
        assert garbage.to_port(host, port, 20, Random(3)) == 20
        assert garbage.to_zmq(f"tcp://{host}:{port}", 50, Random(3)) == 50
        assert router.poll(5000)


def test_a_liar_answers() -> None:
    liar = garbage.liar(lambda asked: [asked, b"lies"])
    with liar as address, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        dealer.send(b"x")
        assert dealer.poll(5000)
        assert dealer.recv_multipart() == [b"x", b"lies"]


def test_nobody_listens_at_a_port_that_is_closed() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert one.getsockname()[1] not in garbage.ports(os.getpid())
