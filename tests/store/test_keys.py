"""Keys are a chain of hashes that others have, too."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from kvplan.store import keys
from kvplan.store.errors import StoreKeyError
from kvplan.store.keys import block_keys, chain, root

# RFC 8949, appendix A.
VECTORS = [
    (0, "00"), (10, "0a"), (23, "17"), (24, "1818"), (100, "1864"), (1000, "1903e8"), (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"), (18446744073709551615, "1bffffffffffffffff"), (-1, "20"), (-100, "3863"),
    (False, "f4"), (True, "f5"), (None, "f6"), (b"\x01\x02\x03\x04", "4401020304"), ("IETF", "6449455446"),
    ("ü", "62c3bc"), ((), "80"), ((1, (2, 3), (4, 5)), "8301820203820405"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_the_encoding(value: keys.Extra, text: str) -> None:
    assert b"".join(keys._encoded(value)).hex() == text


def test_a_link_is_the_hash_of_parent_tokens_and_extra() -> None:
    """`sha256_cbor` of vLLM 0.33 gives this for (parent, (1, 300), None), whose root is that of "vllm-none-hash"."""
    parent = root("vllm-none-hash")
    assert parent == hashlib.sha256(b"\x6evllm-none-hash").digest()
    encoded = b"\x83" + b"\x58\x20" + parent + b"\x82\x01\x19\x01\x2c" + b"\xf6"
    assert chain(parent, [1, 300]) == hashlib.sha256(encoded).digest()


def test_keys_stand_for_all_tokens_before() -> None:
    tokens = list(range(64))
    every = block_keys(tokens, 16)
    assert len(set(every)) == 4
    assert block_keys(tokens[:47], 16) == every[:2]
    changed = block_keys([9, *tokens[1:]], 16)
    assert not set(every) & set(changed)
    assert not set(every) & set(block_keys(tokens, 16, extra=("adapter",)))


def test_smaller_links_end_in_the_keys_of_larger_blocks() -> None:
    tokens = list(range(64))
    assert block_keys(tokens, 32, hashed=16) == block_keys(tokens, 16)[1::2]


@pytest.mark.parametrize("extra", [1.5, [1], 1 << 64])
def test_what_has_no_encoding(extra: object) -> None:
    with pytest.raises(StoreKeyError):
        chain(root("x"), [1], extra)  # type: ignore[arg-type]


def test_numbers_of_an_array_are_numbers() -> None:
    block: Any = np.int64(16)
    assert block_keys(range(32), block, hashed=block) == block_keys(range(32), 16)
    odd: Any = 1.5
    with pytest.raises(StoreKeyError):
        block_keys(range(32), odd)
