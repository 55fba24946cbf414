"""Transformers asked for its own cache, for each configuration. Runs in the environment of a release of vLLM.

A line of JSON in for each, {"key", "config"}, and one out: {"key"} with "layers", what the cache holds of each, or with
"error". The model's class reads a few tokens on the meta device, without weights. Transformers is imported once, and
each model is built in a fork. One that asks for values is built in memory instead, if it is small.
"""

import contextlib
import copy
import json
import os
import pathlib
import signal
import sys
import tempfile

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
LIMIT_S, LONGEST, TOKENS = 60, 300, 7
# Attention that reads no values, and experts that run whatever is chosen: without values nothing can be chosen.
WITHOUT_VALUES = {"set_attn_implementation": "eager", "set_experts_implementation": "batched_mm"}
AS_IT_IS: dict[str, str] = {}
ATTEMPTS = (("meta", WITHOUT_VALUES), ("meta", AS_IT_IS), ("cpu", AS_IT_IS))
# Limits for models that are built in memory: parameters, and widths that no cache depends on.
MOST_PARAMETERS = 1_000_000_000
NARROW = {"vocab_size": 512, "intermediate_size": 128, "moe_intermediate_size": 64}


def layers(config):
    """The cache's figures for each layer after some tokens."""
    import transformers

    name = config["architectures"][0]
    made = transformers.AutoConfig.for_model(**{**config, "dtype": "bfloat16"})
    if getattr(made, "is_decoder", None) is False and not made.is_encoder_decoder:
        # Old encoders write text, and keep a cache, if this is set.
        made.is_decoder = True
    cache = cache_of(first_read(getattr(transformers, name), made))
    return [held(layer) for layer in cache.layers]


def first_read(model_class, config):
    """Return the output of the first attempt that succeeds for some tokens; raise the first error if none does."""
    errors = []
    for device, options in ATTEMPTS:
        try:
            return read(model_class, config, device, options)
        except Exception as error:
            errors.append(error)
    raise errors[0]


def read(model_class, config, device, options):
    """Run some tokens through a model, without values on `meta` or with arbitrary ones."""
    import torch
    from transformers.initialization import no_init_weights

    config = config if device == "meta" else narrowed(config)
    with torch.device("meta"):
        if device == "cpu" and sum(p.numel() for p in model_class(config).parameters()) > MOST_PARAMETERS:
            raise ValueError("too large to be built in memory")
    with torch.device(device), torch.no_grad(), no_init_weights():
        model = model_class(config).eval()
        for choose, name in options.items():
            getattr(model, choose)(name)
        return model(input_ids=torch.ones(1, TOKENS, dtype=torch.long), use_cache=True)


def narrowed(config):
    """A configuration of a model that is as small as its caches allow."""
    made = copy.deepcopy(config)
    for own in (made, made.get_text_config()):
        for key in NARROW.keys() & vars(own).keys():
            setattr(own, key, NARROW[key])
    return made


def cache_of(found):
    """The cache that a model returns, under either name; of a decoder beside an encoder that of its own tokens."""
    cache = getattr(found, "past_key_values", None) or found.cache_params
    return getattr(cache, "self_attention_cache", cache)


def held(layer):
    """Heads and elements of keys and values, a window, shapes of states: without the request, taps and tokens."""
    keys = getattr(layer, "keys", None)
    kv = [keys.shape[1], keys.shape[-1], layer.values.shape[-1]] if keys is not None and keys.dim() == 4 else None
    window = getattr(layer, "sliding_window", None) if kv else None
    conv = [tensor.shape[1] for tensor in tensors(layer, "conv_states")]
    states = [list(tensor.shape[1:]) for tensor in tensors(layer, "recurrent_states")]
    every = {"kv": kv, "window": window, "conv": conv, "states": states}
    return {word: value for word, value in every.items() if value}


def tensors(layer, name):
    found = getattr(layer, name, None)
    every = found.values() if isinstance(found, dict) else [found]
    return [tensor for tensor in every if tensor is not None]


def answer(request, path):
    """Write what transformers says into a file, and end this process."""
    sys.stdout = sys.stderr
    signal.alarm(LIMIT_S)
    try:
        found = {"layers": layers(request["config"])}
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]}
    path.write_text(json.dumps({"key": request["key"], **found}))
    os._exit(0)


def defaults():
    """The configuration that each class of a model that writes text has by default, by architecture."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = {}
    for kind, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        for name in [names] if isinstance(names, str) else names:
            # A class that wants something has no defaults.
            with contextlib.suppress(Exception):
                config = json.loads(json.dumps(CONFIG_MAPPING[kind]().to_dict(), default=str))
                kept = {key: value for key, value in config.items() if key != "transformers_version"}
                found[name] = {**kept, "model_type": kind, "dtype": "bfloat16", "architectures": [name]}
    return found


def main():
    os.environ.update(SETTINGS)
    import torch
    import transformers
    from transformers.models.llama import modeling_llama  # noqa: F401

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16)
    if "--defaults" in sys.argv:
        print(json.dumps({"version": transformers.__version__, "defaults": defaults()}))
        return
    for line in sys.stdin:
        request, path = json.loads(line), pathlib.Path(tempfile.mkdtemp(), "answer")
        if not hasattr(transformers, (request["config"].get("architectures") or ("",))[0]):
            continue
        if not os.fork():
            answer(request, path)
        os.wait()
        none = json.dumps({"key": request["key"], "error": f"it ended, or took more than {LIMIT_S} s"})
        print(path.read_text() if path.exists() else none, flush=True)


if __name__ == "__main__":
    main()
