"""The names by which the workers of two engines know a request. Engines of all kinds make the same names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The most bytes of a router's name of a request: the runtime takes names of 256.
LONGEST_TRANSFER = 200
AGAIN = ".again"
# Seconds that prefill's workers may take to hold a prompt by its second name after one of them gave up the first.
REMADE = 5.0


def held_name(request: str, prompt: str) -> str:
    """Return the held name of a request that a router calls `request`, and whose prompt has this digest.

    The digest is part of it, so that a peer without the prompt cannot name a held request.
    """
    return f"{request}#{prompt}"


def again(name: str) -> str:
    """Return the second name of a request whose prompt was computed again, in other blocks than those offered first."""
    return name + AGAIN


def prompt_digest(tokens: npt.ArrayLike | Sequence[int], also: Sequence[str] = ()) -> str:
    """Return the SHA-256 of a prompt, 32 hex digits: its token ids, and other names that its caches depend on."""
    digest = hashlib.sha256(np.asarray(tokens, "<i8").tobytes())
    for name in also:
        digest.update(hashlib.sha256(name.encode()).digest())
    return digest.hexdigest()[:32]


def salted(salt: str) -> str:
    """Return the name of a cache salt for a digest: requests with different salts share no caches."""
    return f"salt {salt}"
