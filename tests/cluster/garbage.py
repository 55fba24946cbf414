"""Garbage that a peer might send: noise, damaged messages, and well-formed messages without meaning."""

from __future__ import annotations

import glob
import os
import re
import socket
import string
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any, get_args

import msgspec
from msgspec import inspect

from kvplan.runtime.control.card import MAGIC, PROTOCOL, checksum
from kvplan.runtime.control.messages import ToDecode, ToPrefill

NUMBERS = (0, 1, -1, 7, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
DEEP = 3000


def message(random: Random, kinds: Any = ToPrefill) -> msgspec.Struct:
    """A struct of one of `kinds` with anything in its fields, in bounds and out of them."""
    made: msgspec.Struct = _draw(_info(random.choice(get_args(kinds))), random)
    return made


def sealed(body: bytes) -> bytes:
    return MAGIC + checksum(body) + body


def frame(random: Random, kinds: Any = ToPrefill | ToDecode) -> bytes:
    """One message as it travels: whole, torn, bent, sealed nonsense or noise."""
    body = msgspec.msgpack.encode(message(random, kinds))
    return random.choice(BENT)(body, random)


BENT: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda body, random: sealed(body),
    lambda body, random: sealed(body),
    lambda body, random: sealed(body)[: random.randrange(len(body) + 24)],
    lambda body, random: _flip(sealed(body), random),
    lambda body, random: sealed(_flip(body, random)),
    lambda body, random: sealed(body[: random.randrange(len(body))]),
    lambda body, random: sealed(body + random.randbytes(random.randrange(40))),
    lambda body, random: sealed(b"\x91" * random.randrange(DEEP)),
    lambda body, random: sealed(b"\xdf\xff\xff\xff\xff" + body),
    lambda body, random: MAGIC + random.randbytes(random.randrange(60)),
    lambda body, random: random.randbytes(random.randrange(300)),
    lambda body, random: b"",
)


def to_zmq(address: str, count: int, random: Random) -> int:
    """Send `count` messages to a socket that is bound at `address`; return how many were sent."""
    import zmq

    sent = 0
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 1000)
        dealer.setsockopt(zmq.SNDTIMEO, 2000)
        dealer.connect(address)
        for _ in range(count):
            frames = [frame(random) for _ in range(random.choice((1, 1, 1, 1, 2, 3, 20)))]
            try:
                dealer.send_multipart(frames)
            except zmq.Again:
                break
            sent += 1
    return sent


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)


def to_port(host: str, port: int, count: int, random: Random) -> int:
    """Connect `count` times to a port and send nonsense; return how many connections were made. Half are cut short."""
    made = 0
    for _ in range(count):
        try:
            with socket.create_connection((host, port), 2) as one:
                one.settimeout(0.05)
                one.sendall(random.choice((b"", GREETING, GREETING[:9], b"GET / HTTP/1.1\r\n\r\n", MAGIC)))
                one.sendall(random.randbytes(random.randrange(2000)))
                made += 1
                if random.random() < 0.5:
                    one.recv(100)
        except OSError:
            continue
    return made


def ports(process: int) -> list[int]:
    """TCP ports that a process listens at, opened by any library."""
    nodes = {
        name for path in glob.glob(f"/proc/{process}/fd/*") if (name := _link(path)) and name.startswith("socket:")
    }
    found = set[int]()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{process}/net/{table}") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in nodes:
                    found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(found)


@contextmanager
def liar(answer: Callable[[bytes], list[bytes]]) -> Iterator[str]:
    """The address of a socket that answers every message with `answer` of it."""
    import zmq

    stop = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind("tcp://127.0.0.1:*")
        address = router.getsockopt_string(zmq.LAST_ENDPOINT)
        thread = threading.Thread(target=_lie, args=(router, stop, answer), daemon=True)
        thread.start()
        try:
            yield address
        finally:
            stop.set()
            thread.join(10)


def port_of(address: str) -> tuple[str, int]:
    found = re.fullmatch(r"tcp://(.+):(\d+)", address)
    assert found
    return found[1], int(found[2])


def _lie(router: Any, stop: threading.Event, answer: Callable[[bytes], list[bytes]]) -> None:
    while not stop.is_set():
        if router.poll(50):
            peer, *rest = router.recv_multipart()
            router.send_multipart([peer, *answer(rest[-1] if rest else b"")])


@cache
def _info(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _flip(data: bytes, random: Random) -> bytes:
    bent = bytearray(data)
    for _ in range(random.choice((1, 1, 5))):
        bent[random.randrange(len(bent))] ^= 1 << random.randrange(8)
    return bytes(bent)


def _draw(kind: Any, random: Random) -> Any:
    """A value of a msgspec type, in or out of its bounds."""
    match kind:
        case inspect.StructType():
            return _spoken(kind.cls(**{field.name: _draw(field.type, random) for field in kind.fields}), random)
        case inspect.IntType():
            return random.choice((*NUMBERS, random.randrange(100)))
        case inspect.StrType():
            return "".join(random.choices(string.printable + "é", k=random.choice((0, 1, 8, 300))))
        case inspect.BytesType():
            return random.randbytes(random.choice((0, 8, 16, 17, 200)))
        case inspect.BoolType():
            return random.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.FloatType():
            return random.choice((0.0, -1.5, 1e308, float("nan"), float("inf")))
        case inspect.TupleType():
            return tuple(_draw(item, random) for item in kind.item_types)
        case inspect.VarTupleType() | inspect.ListType():
            return tuple(_draw(kind.item_type, random) for _ in range(random.choice((0, 1, 3))))
        case inspect.DictType():
            return {_draw(kind.key_type, random): _draw(kind.value_type, random) for _ in range(random.choice((0, 2)))}
        case inspect.EnumType():
            return random.choice(list(kind.cls))
        case inspect.UnionType():
            return _draw(random.choice(kind.types), random)
        case _:
            raise NotImplementedError(kind)


def _spoken(value: Any, random: Random) -> Any:
    """A message mostly of this protocol: workers do not parse messages of another one further."""
    if not hasattr(value, "protocol") or random.random() < 0.2:
        return value
    return msgspec.structs.replace(value, protocol=PROTOCOL)


def throw(address: str, others: list[int], random: Random) -> None:
    """Garbage at the address of a worker, as messages and as bytes; at its `others` ports, bytes."""
    to_zmq(address, 300, random)
    host, port = port_of(address)
    for one in {port, *others}:
        to_port(host, one, 5, random)


if __name__ == "__main__":
    throw(sys.argv[1], [int(word) for word in sys.argv[3:]], Random(sys.argv[2]))
