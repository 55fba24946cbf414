"""SGLang asked for the buffers that it registers, for each configuration. Runs in SGLang's environment, on a CPU.

A line of JSON in for each, {"key", "config", "options"}, and one out: {"key"} with "pools", a pool for each of the
options, or with "error". The runner of a model is SGLang's own, without the model: its pools follow from the
configuration alone. SGLang is imported once, and each pool is made in a fork.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import types

from tests.sglang import stubs
from tests.sglang.machines import CPU_ENVIRONMENT, ON_CPU

LIMIT_S, LONGEST = 120, 300
# Kernels of attention, in the order in which SGLang is asked for them.
KERNELS = ("torch_native", "triton", "intel_amx")
SETTINGS = {**CPU_ENVIRONMENT, "SGLANG_LOG_LEVEL": "ERROR"}
# One core for each of two ranks.
BOUND = {"SGLANG_CPU_OMP_THREADS_BIND": "0|0"}
# Some models ask which device they run on: an NVIDIA H100.
CAPABILITY = (9, 0)
SCALES = "block_scale"
# Elements of 8 bits that some models have without being told, as options of a side.
FP8 = {"torch.float8_e4m3fn": "fp8"}
# A pool of a few pages, however long requests may be.
FEW = {
    "max_total_tokens": 512,
    "context_length": 256,
    "max_running_requests": 2,
    "log_level": "error",
    "dtype": "bfloat16",
}


class NoModel:
    """In place of the model: nothing of a pool is asked of it."""

    def forward(self):
        """Nothing to run."""


def pool(config, options, rank, port):
    """The pools that a rank of SGLang registers with a transfer backend, as bytes and layers."""
    import torch
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.disaggregation.utils import build_kv_layer_ids, get_kv_transfer_buf_infos, setup_state_kv_args
    from sglang.srt.distributed import bootstrap
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    known(config)
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    plain = {word: value for word, value in options.items() if word != "kv_cache_dtype"}
    given = {**ON_CPU, **FEW, "load_format": "dummy", "disaggregation_mode": "prefill", **plain}
    given |= {"disaggregation_transfer_backend": "nixl"}
    arguments = ServerArgs(model_path=folder, **given)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=rank))
    ModelRunner.initialize = without_model
    ModelRunner.check_quantized_moe_compatibility = ModelRunner._init_post_memory_pool_components = nothing
    model = ModelConfig.from_server_args(arguments)
    bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=port)
    bootstrap.init_layer_runtime(model_config=model)
    runner = ModelRunner(model, 0.1, rank, port, arguments)
    if runner.use_mla_backend and options.get("kv_cache_dtype") == "mxfp8":
        raise ValueError("no kernel reads latents of mxfp8")
    small = options.get("kv_cache_dtype") or FP8.get(str(runner.kv_cache_dtype))
    if small:
        # Kernels for CPUs take no small elements. A pool asks for their size alone.
        runner.kv_cache_dtype_str, runner.kv_cache_dtype = small, torch.float8_e5m2
    runner.alloc_memory_pool()
    found, kv = runner.token_to_kv_pool, types.SimpleNamespace()
    *_, items = get_kv_transfer_buf_infos(found)
    layers = build_kv_layer_ids(
        token_to_kv_pool=found,
        draft_token_to_kv_pool=None,
        num_draft_entries=0,
        num_hidden_layers=model.num_hidden_layers,
    )
    setup_state_kv_args(kv, found, None, model.num_hidden_layers, req_to_token_pool=runner.req_to_token_pool)
    every = zip(kv.state_types, kv.state_item_lens, kv.state_layer_ids, strict=True)
    registered = {str(getattr(kind, "value", kind)): buffers(own, numbers) for kind, own, numbers in every}
    states = {**exponents(found), **registered}
    return {
        "side": side(model, runner.page_size, small, options),
        "class": type(found).__name__,
        "pages": buffers(items, layers),
        "states": states,
    }


def known(config):
    """A class for a kind of configuration that only a checkpoint's own code has: it keeps what is written."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

    inner = [value for value in config.values() if isinstance(value, dict) and "model_type" in value]
    for kind in [own["model_type"] for own in (*inner, config)]:
        if kind not in CONFIG_MAPPING:
            AutoConfig.register(kind, type("Written", (PretrainedConfig,), {"model_type": kind}))


def served(names):
    """Whether SGLang has a class of its own for one of these architectures."""
    from sglang.srt.models.registry import ModelRegistry

    return any(name in ModelRegistry.models for name in names)


def without_model(self):
    """ModelRunner.initialize, without a model's weights and layers."""
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices

    self.init_memory_saver_adapter()
    self.model, self.dtype = NoModel(), self.model_config.dtype
    self.sliding_window_size = self.model_config.sliding_window_size
    self.layer_info = resolve_layer_indices(model=self.model, model_config=self.model_config, is_draft_worker=False)
    self.configure_kv_cache_dtype()


def nothing(self, *args, **more):
    """Nothing to do."""


def buffers(items, layers):
    """Buffers with something in them."""
    return {"items": [item for item in items if item], "layers": list(layers or ())}


def exponents(pool):
    """The exponents of a pool inside another, which are in memory although SGLang moves them to no other engine."""
    infos = getattr(getattr(pool, "full_kv_pool", None), "get_kv_scale_buf_infos", None)
    return {SCALES: buffers(infos()[-1], ())} if infos else {}


def side(model, page, small, options):
    """The options of a side of kvplan that are as this engine's."""
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.mamba_utils import mamba2_state_dtype

    states = mamba2_state_dtype(model.hf_text_config) if mambaish_config(model) else None
    plain = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
    recurrent = {"recurrent": states.temporal, "convolution": states.conv} if states else {}
    said = {word: plain[str(dtype).removeprefix("torch.")] for word, dtype in recurrent.items()}
    own = {"tp": options.get("tp_size"), "kv_dtype": small}
    return {"block": page, **{word: value for word, value in own.items() if value}, **said}


def answer(config, options, rank, port, path):
    """Write what a rank of an engine says into a file, and end this process."""
    sys.stdout = sys.stderr
    signal.alarm(LIMIT_S)
    os.environ.update(BOUND if options.get("tp_size") else {})
    try:
        found = {"pool": pool(config, options, rank, port)}
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]}
    path.write_text(json.dumps(found))
    os._exit(0)


def asked(config, options):
    """Return SGLang's answer with the first kernels that it accepts for a model; none of them run."""
    if not served(config.get("architectures") or ()):
        return {"error": "NotImplementedError: SGLang has no class for it"}
    every = (forked(config, {**options, "attention_backend": kernels}) for kernels in KERNELS)
    first = next(every)
    if "attention backend" not in first.get("error", ""):
        return first
    return next((one for one in every if "pool" in one), first)


def forked(config, options):
    """Run every rank in a process of its own, and return the answer of the first."""
    paths, port = [pathlib.Path(tempfile.mkdtemp(), "answer") for _ in range(options.get("tp_size", 1))], free_port()
    children = [os.fork() or answer(config, options, rank, port, path) for rank, path in enumerate(paths)]
    for child in children:
        os.waitpid(child, 0)
    return (
        json.loads(paths[0].read_text()) if paths[0].exists() else {"error": f"it ended, or took more than {LIMIT_S} s"}
    )


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main():
    os.environ.update(SETTINGS)
    stubs.install()
    import sglang.srt.disaggregation.prefill
    import sglang.srt.model_executor.model_runner
    import sglang.srt.models.registry  # noqa: F401
    import torch

    torch.cuda.get_device_capability = lambda *_: CAPABILITY
    for line in sys.stdin:
        request = json.loads(line)
        found = [asked(request["config"], options) for options in request["options"]]
        pools = [one["pool"] for one in found if "pool" in one]
        errors = [one["error"] for one in found if "error" in one]
        print(json.dumps({"key": request["key"], "pools": pools, "error": "" if pools else errors[0]}), flush=True)


if __name__ == "__main__":
    main()
