"""SGLang asked for the buffers that it registers, for each configuration. Runs in SGLang's environment, on a CPU.

A line of JSON in for each, {"key", "config", "options"}, and one out: {"key"} with "pools", a pool for each of the
options, or with "error". The runner of a model is SGLang's own, without the model: its pools follow from the
configuration alone. SGLang is imported once, and each pool is made in a fork.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import types

from tests.sglang import stubs
from tests.sglang.machines import CPU_ENVIRONMENT, ON_CPU

LIMIT_S, LONGEST = 120, 300
# Kernels of attention, in the order in which SGLang is asked for them.
KERNELS = ("torch_native", "triton", "intel_amx")
SETTINGS = {**CPU_ENVIRONMENT, "SGLANG_LOG_LEVEL": "ERROR"}
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


def pool(config, options):
    """What SGLang registers with a transfer backend, as bytes and layers."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.disaggregation.utils import build_kv_layer_ids, get_kv_transfer_buf_infos, setup_state_kv_args
    from sglang.srt.distributed import bootstrap
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, ServerArgs

    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    given = {**ON_CPU, **FEW, "load_format": "dummy", "disaggregation_mode": "prefill", **options}
    given |= {"disaggregation_transfer_backend": "nixl"}
    arguments = ServerArgs(model_path=folder, **given)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    ModelRunner.initialize = without_model
    ModelRunner.check_quantized_moe_compatibility = ModelRunner._init_post_memory_pool_components = nothing
    model = ModelConfig.from_server_args(arguments)
    port = PortArgs.init_new(arguments).nccl_port
    bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=port)
    bootstrap.init_layer_runtime(model_config=model)
    runner = ModelRunner(model, 0.1, 0, port, arguments)
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
    states = {str(getattr(kind, "value", kind)): buffers(own, numbers) for kind, own, numbers in every}
    return {
        "side": side(model, runner, options),
        "class": type(found).__name__,
        "pages": buffers(items, layers),
        "states": states,
    }


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
    return {"items": list(items), "layers": list(layers or ())}


def side(model, runner, options):
    """The options of a side of kvplan that are as this engine's."""
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.mamba_utils import mamba2_state_dtype

    states = mamba2_state_dtype(model.hf_text_config) if mambaish_config(model) else None
    plain = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
    recurrent = {"recurrent": states.temporal, "convolution": states.conv} if states else {}
    said = {word: plain[str(dtype).removeprefix("torch.")] for word, dtype in recurrent.items()}
    return {"block": options.get("page_size", 1), **said}


def answer(request, path):
    """Write what an engine says into a file, and end this process."""
    sys.stdout = sys.stderr
    signal.alarm(LIMIT_S)
    try:
        found = {"pool": pool(request["config"], request["options"])}
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]}
    path.write_text(json.dumps(found))
    os._exit(0)


def asked(config, options):
    """What SGLang says with the first kernels that it takes for a model; none of them run."""
    if not served(config.get("architectures") or ()):
        return {"error": "NotImplementedError: SGLang has no class for it"}
    every = (forked(config, {**options, "attention_backend": kernels}) for kernels in KERNELS)
    first = next(every)
    if "attention backend" not in first.get("error", ""):
        return first
    return next((one for one in every if "pool" in one), first)


def forked(config, options):
    path = pathlib.Path(tempfile.mkdtemp(), "answer")
    if not os.fork():
        answer({"config": config, "options": options}, path)
    os.wait()
    return json.loads(path.read_text()) if path.exists() else {"error": f"it ended, or took more than {LIMIT_S} s"}


def main():
    os.environ.update(SETTINGS)
    stubs.install()
    import sglang.srt.disaggregation.prefill
    import sglang.srt.model_executor.model_runner
    import sglang.srt.models.registry  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        found = [asked(request["config"], options) for options in request["options"]]
        pools = [one["pool"] for one in found if "pool" in one]
        errors = [one["error"] for one in found if "error" in one]
        print(json.dumps({"key": request["key"], "pools": pools, "error": "" if pools else errors[0]}), flush=True)


if __name__ == "__main__":
    main()
