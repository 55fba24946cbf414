"""By what names the workers of two engines know a request. Engines of all kinds make the same names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# Bytes of what a router calls a request: the runtime takes names of 256.
LONGEST_TRANSFER = 200
AGAIN = ".again"
# Seconds that prefill's workers may take to hold a prompt by its second name, once one of them gave up the first.
REMADE = 5.0


def held_name(request: str, prompt: str) -> str:
    """The name of a request that a router calls `request`, and whose prompt has this digest.

    The digest is part of it: who names a request without its prompt names one that nobody holds.
    """
    return f"{request}#{prompt}"


def again(name: str) -> str:
    """The name of a request whose prompt was begun again, in other blocks than those that were offered by its first."""
    return name + AGAIN


def prompt_digest(tokens: npt.ArrayLike | Sequence[int], also: Sequence[str] = ()) -> str:
    """The SHA-256 of a prompt, 32 hex digits: its token ids, and the names of what else its caches depend on."""
    digest = hashlib.sha256(np.asarray(tokens, "<i8").tobytes())
    for name in also:
        digest.update(hashlib.sha256(name.encode()).digest())
    return digest.hexdigest()[:32]


def salted(salt: str) -> str:
    """What a digest says of a cache salt: requests with another one share no caches."""
    return f"salt {salt}"
