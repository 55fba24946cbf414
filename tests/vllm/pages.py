"""The contents of an engine's pages, token by token, as digests that do not depend on block sizes and block ids.

Runs in vLLM's environment. An oracle of its own: it knows how the CPU backend's kernels fill a page, nothing of kvplan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CPUINFO = Path("/proc/cpuinfo")
# A layer: {"from": first position, "rows": by position the digests of its heads}; a state: {"state": by part of it the
# digests of its channels or heads}.
Content = dict[str, Any]
# The parts of a gated delta net's convolution, as the layer's names for their numbers of channels: q, k and v.
DELTA = ("key_dim", "key_dim", "value_dim")


def of_worker(worker: Any, blocks: Any, count: int, before: int = 0) -> dict[str, Content]:
    """One worker's part by layer: the first `count` tokens of a request; `blocks` are its ids by group.

    A window has only the tokens that the next token needs, and `before` more: decode computes the last token again.
    """
    runner = getattr(worker, "worker", worker).model_runner  # vLLM wraps workers
    layers = runner.vllm_config.compilation_config.static_forward_context
    groups = zip(runner.kv_cache_config.kv_cache_groups, blocks, strict=True)
    return {
        name: content(spec_of(group, name), layers[name], ids, count, before)
        for group, ids in groups
        for name in group.layer_names
        if name in layers  # other stages of a pipeline have the others
    }


def joined(workers: Sequence[Mapping[str, Content]]) -> dict[str, Content]:
    """The parts of all workers: layers of each stage, heads of each worker of a stage in their order."""
    layers: dict[str, Content] = {}
    for name, part in ((name, part) for worker in workers for name, part in worker.items()):
        layers[name] = part if name not in layers else widened(layers[name], part)
    return layers


def widened(content: Content, part: Content) -> Content:
    """A layer with the heads of one more worker. Latents are the same on every worker."""
    if content.get("latent"):
        return content
    if "state" in content:
        return {"state": [[*left, *right] for left, right in zip(content["state"], part["state"], strict=True)]}
    return {**content, "rows": [[*left, *right] for left, right in zip(content["rows"], part["rows"], strict=True)]}


def spec_of(group: Any, layer: str) -> Any:
    """The layer's own spec, where layers of a group differ."""
    return getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(layer, group.kv_cache_spec)


def content(spec: Any, layer: Any, ids: Any, count: int, before: int) -> Content:
    cache = layer.kv_cache
    if "Mamba" in type(spec).__name__:
        return {"state": [[digest(raw(one)) for one in part] for part in state(spec, layer, ids)]}
    window = getattr(spec, "sliding_window", None)
    first = max(0, count - window + 1 - before) if window else 0
    read = [[digest(head) for head in row] for row in rows(spec, cache, ids, first, count)]
    return {"from": first, "rows": read, "latent": is_latent(spec)}


def state(spec: Any, layer: Any, ids: Any) -> list[Any]:
    """A sequence's state: its convolution (DS) by what it is over, and the others by heads.

    The slots behind its own are for drafts, as are the last taps of the convolution.
    """
    spare = spec.num_speculative_blocks
    convolution, *others = [tensor[ids[-1 - spare]] for tensor in layer.kv_cache]
    return [*convolution[..., : convolution.shape[-1] - spare].split(channels(layer, len(convolution))), *others]


def channels(layer: Any, all_of_them: int) -> list[int]:
    """How many a convolution has of each thing; those of Mamba are not told apart, and its workers cannot be joined."""
    if not hasattr(layer, DELTA[0]):
        return [all_of_them]
    return [getattr(layer, name) // layer.tp_size for name in DELTA]


def is_latent(spec: Any) -> bool:
    return "MLA" in type(spec).__name__


def rows(spec: Any, cache: Any, ids: Any, first: int, count: int) -> Iterator[list[bytes]]:
    """The bytes of each token from `first` to `count`, head by head."""
    size = spec.block_size
    for number in range(first // size, -(-count // size)):
        tokens = by_token(spec, cache[ids[number]])
        for position in range(max(first, number * size), min(count, (number + 1) * size)):
            yield [head.tobytes() for head in tokens[position % size]]


def by_token(spec: Any, page: Any) -> np.ndarray:
    """A page as (tokens, heads, elements). Raises ValueError for a page in several kernel blocks."""
    if page.shape[-2] != spec.block_size:
        raise ValueError(f"a page of {spec.block_size} tokens is registered as {tuple(page.shape)}")
    items = words(page)
    if is_latent(spec):
        return items.reshape(spec.block_size, 1, -1)
    heads, tokens, width = items.shape
    pair = items.reshape(heads, 2, tokens * width // 2)
    order = tiled if items.itemsize == 2 and has_amx() else transposed
    keys, values = order(pair, tokens, width // 2)
    return np.ascontiguousarray(np.concatenate([keys, values], 2).transpose(1, 0, 2))


def transposed(pair: np.ndarray, tokens: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values (heads, tokens, dim) of the vector kernels: K is [dim][token], V is [token][dim]."""
    heads = len(pair)
    return pair[:, 0].reshape(heads, dim, tokens).transpose(0, 2, 1), pair[:, 1].reshape(heads, tokens, dim)


def tiled(pair: np.ndarray, tokens: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Undo the tiles of the AMX kernels: K [token/16][dim/2][token%16][dim%2], V [dim/16][token/2][dim%16][token%2]."""
    heads = len(pair)
    keys = pair[:, 0].reshape(heads, tokens // 16, dim // 2, 16, 2).transpose(0, 1, 3, 2, 4)
    values = pair[:, 1].reshape(heads, dim // 16, tokens // 2, 16, 2).transpose(0, 2, 4, 1, 3)
    return keys.reshape(heads, tokens, dim), values.reshape(heads, tokens, dim)


@cache
def has_amx() -> bool:
    """Whether kernels for bf16 are those of matrix instructions."""
    return "amx_tile" in CPUINFO.read_text()


def words(tensor: Any) -> np.ndarray:
    """A tensor's items as whole numbers of their width."""
    import torch

    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(width).numpy()


def raw(tensor: Any) -> bytes:
    return words(tensor).tobytes()


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def unequal(sent: Mapping[str, Content], loaded: Mapping[str, Content]) -> list[str]:
    """The layers whose loaded tokens are not those that were sent; one that is not there at all, too."""
    return [name for name, there in loaded.items() if not same(sent.get(name, {}), there)]


def same(sent: Content, loaded: Content) -> bool:
    if "state" in loaded:
        return sent.get("state") == loaded["state"]
    skipped = loaded["from"] - sent.get("from", 0)
    wanted = loaded["rows"]
    return skipped >= 0 and sent.get("rows", [])[skipped : skipped + len(wanted)] == wanted
