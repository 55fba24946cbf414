"""The memory that a worker of vLLM has allocated, as a dump: the same facts and form that `kvplan from-cache` reads.

vLLM's objects are read by the names of their fields; nothing of vLLM is imported.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.compiler.dumps.dump import Dump, number_in, read_dump
from kvplan.integrations.shared.facts import EngineFacts, plain_word

AXES = ("block", "head", "token", "content")
# vLLM's names of draft layers that it counts from 0; other draft layers continue the model's own numbers.
DRAFTS = ("mtp.", "draft_model.")
LIMITS = {"window": "sliding_window", "chunk": "attention_chunk_size"}


def dumped(
    facts: EngineFacts, options: Mapping[str, str], caches: Any, tensors: Mapping[str, Any], own: int, drafts: int
) -> Dump:
    """Make the dump of a worker. `caches` is vLLM's KVCacheConfig, `tensors` are those registered, by layer.

    The model has `own` layers, then come those of its drafts. Raises BadInput (D00x) if the dump is invalid.
    """
    here = [(group, [name for name in group.layer_names if name in tensors]) for group in moved_groups(caches)]
    kept = [(group, names) for group, names in here if names]
    allocations = _allocations(tensors)
    layers = [
        {
            **_layer(name, number, tensors[name], allocations, _described(_spec(group, name))),
            **_number(name, own, drafts),
        }
        for number, (group, names) in enumerate(kept)
        for name in names
    ]
    plain = {
        "kvplan-dump": 1,
        "engine": {"name": facts.name, "version": facts.version},
        "model": {"id": facts.config},
        "side": dict(options),
        "mesh": dict(facts.mesh),
        "rank": dict(facts.rank),
        "blocks": caches.num_blocks,
        "allocations": list(allocations.values()),
        "axes": list(AXES),
        "groups": [_group(group, names, caches.num_blocks, tensors[names[0]]) for group, names in kept],
        "layers": layers,
    }
    return read_dump(json.dumps(plain))


def moved_groups(caches: Any) -> list[Any]:
    """Return the groups of the engine's KVCacheConfig that a connector moves, in the order of its block tables."""
    return [caches.kv_cache_groups[number] for number in caches.transfer_group_ids]


def block_sizes(caches: Any) -> list[int]:
    """Return the tokens of a block of each group of tokens, even of groups without a layer on this worker."""
    return [group.kv_cache_spec.block_size for group in moved_groups(caches) if not is_state(first_spec(group))]


def _spec(group: Any, layer: str) -> Any:
    """Return the spec of one layer of a group; layers share one, or each has its own."""
    return getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(layer, group.kv_cache_spec)


def first_spec(group: Any) -> Any:
    """Return the spec of a group's layers, or of its first layer if each has its own."""
    return next(iter(getattr(group.kv_cache_spec, "kv_cache_specs", {}).values()), group.kv_cache_spec)


def _group(group: Any, names: Sequence[str], blocks: int, tensor: Any) -> dict[str, object]:
    spec = _spec(group, names[0])
    if is_state(spec):
        return {"store": "state", "layers": list(names)}
    tokens, ratio = group.kv_cache_spec.block_size, max(1, tensor.shape[0] // blocks)
    limits = {word: value for word, field in LIMITS.items() if (value := getattr(spec, field, None))}
    return {"store": "tokens", "tokens": tokens, "kernel_tokens": tokens // ratio, **limits, "layers": list(names)}


def limited(spec: Any) -> bool:
    """Whether a cache keeps only a window or a chunk of its tokens."""
    return any(getattr(spec, field, None) for field in LIMITS.values())


def is_state(spec: Any) -> bool:
    """Whether a cache has one value per sequence: caches of tokens have heads."""
    return not hasattr(spec, "num_kv_heads")


def _allocations(tensors: Mapping[str, Any]) -> dict[int, int]:
    """Return the bytes of each allocation by its address, in order of first use."""
    stores = [tensor.untyped_storage() for tensor in tensors.values()]
    return {store.data_ptr(): store.nbytes() for store in stores}


def _number(name: str, own: int, drafts: int) -> dict[str, int]:
    """Return the number of a layer; those of the drafts follow the model's `own` layers.

    If a layer has two caches and names are numbers, some classes number the second caches after the last layer.
    """
    number = number_in(name)
    if number is None:
        return {}
    if name.startswith(DRAFTS) and number < drafts:
        return {"layer": own + number}
    return {"layer": number if number < own + drafts else number % (own + drafts)}


def _layer(
    name: str, group: int, tensor: Any, allocations: Mapping[int, int], spec: Mapping[str, object]
) -> dict[str, object]:
    size = tensor.element_size()
    return {
        "name": name,
        "group": group,
        "allocation": list(allocations).index(tensor.untyped_storage().data_ptr()),
        "offset": tensor.storage_offset() * size,
        "shape": list(tensor.shape),
        "strides": [step * size for step in tensor.stride()],
        "dtype": plain_word(tensor.dtype),
        "spec": spec,
    }


def _described(spec: Any) -> dict[str, object]:
    """Return the class of a spec and its fields without unset ones."""
    fields = {each.name: _plain(getattr(spec, each.name)) for each in dataclasses.fields(spec)}
    return {"class": type(spec).__name__, **{n: v for n, v in fields.items() if v not in (None, False, "none")}}


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else plain_word(value)
