"""Keys of stored blocks: a chain of hashes, each over the one before it and a block's tokens.

So a key stands for all tokens up to its block's end, and for all else that is hashed (`extra`: adapters, images). The
encoding is canonical CBOR (RFC 8949, 4.2.1), so any program that hashes (parent, tokens, extra) so makes the same keys.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from numbers import Integral

from kvplan.store.errors import StoreKeyError

Extra = None | bool | int | str | bytes | tuple["Extra", ...]
SEED, KEY_BYTES = "kvplan", 32
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)
_SIMPLE = {None: b"\xf6", False: b"\xf4", True: b"\xf5"}


def root(seed: str) -> bytes:
    """Return the parent of a first block: the hash of a text that all who share keys agree on."""
    return hashlib.sha256(b"".join(_encoded(seed))).digest()


def chain(parent: bytes, tokens: Sequence[int], extra: Extra = None) -> bytes:
    """Return SHA-256 of the CBOR of (parent, tokens, extra), 32 bytes. Raises StoreKeyError if one has no encoding."""
    try:
        # Not `int`, which would make the same token of 1 and 1.5.
        numbers = tuple(map(operator.index, tokens))
    except TypeError as error:
        raise StoreKeyError(f"a token is a whole number: {error}") from error
    return hashlib.sha256(b"".join(_encoded((parent, numbers, extra)))).digest()


def block_keys(
    tokens: Sequence[int], block: int, *, hashed: int = 0, seed: str = SEED, extra: Extra = None
) -> tuple[bytes, ...]:
    """Return the keys of all whole blocks of `block` tokens. Tokens after the last whole block have none.

    `hashed` tokens make a link of the chain, by default a whole block. An engine that hashes smaller blocks has the
    same keys. `seed` is the text of the chain's `root`. Raises StoreKeyError if `hashed` does not divide `block`.
    """
    step = hashed or block
    whole = isinstance(block, Integral) and isinstance(step, Integral)
    if not whole or block < 1 or step < 1 or block % step:
        raise StoreKeyError(f"links of {step} tokens make no block of {block}: give a divisor of it")
    links, parent = list[bytes](), root(seed)
    for start in range(0, len(tokens) // block * block, step):
        parent = chain(parent, tokens[start : start + step], extra)
        links.append(parent)
    return tuple(links[block // step - 1 :: block // step])


def _encoded(value: Extra) -> Iterator[bytes]:
    if value is None or isinstance(value, bool):
        yield _SIMPLE[value]
    elif isinstance(value, int):
        yield _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    elif isinstance(value, bytes):
        yield _head(_BYTES, len(value)) + value
    elif isinstance(value, str):
        text = _utf8(value)
        yield _head(_TEXT, len(text)) + text
    elif isinstance(value, tuple):
        yield _head(_ARRAY, len(value))
        for item in value:
            yield from _encoded(item)
    else:
        raise StoreKeyError(f"a {type(value).__name__} is no part of a key: give numbers, texts, bytes or tuples")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise StoreKeyError(f"{text!a} is no UTF-8: {error.reason}") from error


def _head(major: int, number: int) -> bytes:
    """Return the CBOR head of a type and a number, in the fewest bytes."""
    if number < 24:
        return bytes([major << 5 | number])
    for code, width in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * width:
            return bytes([major << 5 | code]) + number.to_bytes(width, "big")
    raise StoreKeyError(f"{number} is above 2^64: no part of a key")
