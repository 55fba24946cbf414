"""SGLang's pools of HiSparse, filled by kvplan: latents in its host pool, indexers in its device pool. Runs in SGLang's
environment, on a CPU.

`python -m tests.sglang.host_pools PLAN.py` moves a request from the device pool of a prefill engine, and compares what
SGLang's own functions find in both pools of decode. Without a device here, memory that SGLang has on one is registered
as a device's with a transport that keeps the two types apart. It prints a line of JSON.
"""

import json
import os
import sys

from tests.sglang import stubs
from tests.sglang.machines import CPU_ENVIRONMENT

PAGE, PAGES, LAYERS = 64, 6, 2
TOKENS = 5 * PAGE - 10
# Page 0 is padding in all pools.
PREFILL, LATENTS, KEYS = (3, 1, 5, 2, 4), (7, 2, 9, 4, 1), (6, 11, 3, 8, 5)


def main(path):
    os.environ.update({**CPU_ENVIRONMENT, "SGLANG_LOG_LEVEL": "ERROR"})
    stubs.install()
    import numpy as np
    import torch
    from sglang.srt.mem_cache.hisparse_memory_pool import HiSparseDSATokenToKVPool
    from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

    from kvplan.plan.planes import planes
    from kvplan.runtime import (
        Blocks,
        DecodeWorker,
        Identity,
        InMemory,
        Memory,
        Plain,
        PrefillWorker,
        Request,
        load_plan,
        views,
    )
    from kvplan.runtime.transport.inmemory import Hub

    sizes = {
        "size": PAGES * PAGE, "page_size": PAGE, "kv_lora_rank": 512, "dtype": torch.bfloat16, "qk_rope_head_dim": 64,
        "layer_num": LAYERS, "device": "cpu", "index_head_dim": 128, "enable_memory_saver": False, "kv_cache_dim": 576,
    }  # fmt: skip
    prefill = DSATokenToKVPool(**sizes, index_buf_size=PAGES * PAGE)
    device = HiSparseDSATokenToKVPool(**sizes, host_to_device_ratio=2)
    host = MLATokenToKVPoolHost(
        buffer_info=device.get_device_pool_infos()[0].buffer_info,
        device_capacity_tokens=device.size,
        start_layer=device.start_layer,
        end_layer=device.end_layer,
        target_layer_num=LAYERS,
        host_to_device_ratio=2,
        host_size=0,
        page_size=PAGE,
        layout="layer_first",
        override_kv_cache_dim=device.kv_cache_dim,
        pin_memory=False,
    )
    random = np.random.default_rng(3)
    for tensor in (*prefill.kv_buffer, *prefill.index_k_with_scale_buffer):
        raw = tensor.view(torch.uint8).numpy()
        raw[...] = random.integers(0, 256, raw.shape, np.uint8)
    host.kv_buffer.zero_()
    for tensor in device.index_k_with_scale_buffer:
        tensor.zero_()

    plan, hub = load_plan(path), Hub()

    def memory(side, latents, keys, types):
        """The planes of a side in two pools' own lists of buffers."""
        lists = {"attention": (*latents, types[0]), "indexer": (*keys, types[1])}
        found = {}
        for plane in planes(side.workers[0]):
            pointers, lengths, items, kind = lists[plane.cache]
            size, item = lengths[plane.layer], items[plane.layer]
            assert (plane.page, plane.stride) == (item, item), (plane, item)
            found[plane.name] = Memory(pointers[plane.layer], item, size // item, size, kind)
        return views(side, 0, found)

    source = memory(plan.prefill, prefill.get_contiguous_buf_infos(), prefill.get_state_buf_infos(), ("VRAM", "VRAM"))
    target = memory(plan.decode, host.get_contiguous_buf_infos(), device.get_state_buf_infos(), ("DRAM", "VRAM"))
    agents = [InMemory(hub, name, pretends=True) for name in ("p", "d")]
    owner = PrefillWorker(plan, 0, source, agents[0], identity=Identity("prefill"), keys=Plain())
    owner.announce([owner.address])
    there = {"attention": Blocks(0, np.array(PREFILL)), "indexer": Blocks(0, np.array(PREFILL))}
    here = {"attention": Blocks(0, np.array(LATENTS)), "indexer": Blocks(0, np.array(KEYS))}
    owner.hold("r", there)
    reader = DecodeWorker(plan, 0, target, agents[1], identity=Identity("decode"), keys=Plain())
    reader.connect(owner.address, 10)
    state = reader.submit(Request("r", (0, TOKENS), there, here), 10).wait().state
    reader.close()
    owner.close()
    print(json.dumps({"state": state, "wrong": wrong(prefill, host, device), "side": plan.decode.key}))


def wrong(prefill, host, device):
    """The faults in decode's pools after a request, found by SGLang's own views."""
    import torch

    found = []
    slots = torch.arange(TOKENS)
    from_, to = (torch.tensor(ids)[slots // PAGE] * PAGE + slots % PAGE for ids in (PREFILL, LATENTS))
    others = torch.ones(host.size, dtype=torch.bool)
    others[to] = False
    for layer in range(LAYERS):
        if not torch.equal(
            host.data_refs[layer][to].view(torch.uint8), prefill.kv_buffer[layer][from_].view(torch.uint8)
        ):
            found.append(f"latents of layer {layer}")
        if host.data_refs[layer][others].view(torch.uint8).any():
            found.append(f"latents of layer {layer} that nobody asked for")
        if device.kv_buffer[layer].view(torch.uint8).any():
            found.append(f"hot pages of layer {layer}")
        keys, theirs = (pool.index_k_with_scale_buffer[layer] for pool in (device, prefill))
        full = TOKENS // PAGE
        if not torch.equal(keys[list(KEYS[:full])], theirs[list(PREFILL[:full])]):
            found.append(f"keys of layer {layer}")
    return found


if __name__ == "__main__":
    main(sys.argv[1])
