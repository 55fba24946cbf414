"""A real vLLM engine on CPUs asked for the specs of its caches, for each configuration. Runs in vLLM's environment.

A line of JSON in for each, {"key", "config"}, and one out: {"key"} with "specs", fields by the layer's name, or with
"error". Weights are dummies; vLLM is imported once, and each engine is a fork.
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys
import tempfile

SETTINGS = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TORCHDYNAMO_DISABLE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SSM_CONV_STATE_LAYOUT": "DS",
}  # fmt: skip
LIMIT_S = 300


def specs(config):
    """The specs of the engine's own layers, by name."""
    from vllm import LLM

    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    engine = LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=512,
        num_gpu_blocks_override=512,
        enable_prefix_caching=False,
        block_size=32,
    )
    (found,) = engine.llm_engine.engine_core.engine_core.model_executor.collective_rpc("get_kv_cache_spec")
    return {name: fields(spec) for name, spec in found.items()}


def fields(spec):
    found = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    return {"class": type(spec).__name__, **{name: plain(value) for name, value in found.items()}}


def plain(value):
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int) else str(value).removeprefix("torch.")


def answer(request, path):
    """Write what an engine says into a file, and end this process."""
    sys.stdout = sys.stderr
    signal.alarm(LIMIT_S)
    try:
        found = {"specs": specs(request["config"])}
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    path.write_text(json.dumps({"key": request["key"], **found}))
    os._exit(0)


def main():
    os.environ.update(SETTINGS)
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401
    from vllm.model_executor.models import registry

    # It would start a process, which imports vLLM again, to look at each model's class.
    registry._run_in_subprocess = lambda function: function()
    for line in sys.stdin:
        request, path = json.loads(line), pathlib.Path(tempfile.mkdtemp(), "answer")
        if not os.fork():
            answer(request, path)
        os.wait()
        none = json.dumps({"key": request["key"], "error": f"it ended, or took more than {LIMIT_S} s"})
        print(path.read_text() if path.exists() else none, flush=True)


if __name__ == "__main__":
    main()
