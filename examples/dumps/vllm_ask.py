"""Ask vLLM's own code where it puts a model's caches. `vllm_dump.py` prints what it answers; see README.md.

`ready` once in a process, then `configured`, `staged` and `planned` for a model: its class is built on the meta device,
each of its layers is asked for its spec, and vLLM's own planning and allocation turn these into groups, blocks and
views, on the CPU, with a few blocks. `args` are the options of `vllm_dump.py`.
"""

import collections
import contextlib
import copy
import dataclasses
import enum
import importlib.metadata
import json
import os
import pathlib
import re
import tempfile
import types

import vllm_configs
import vllm_stand_ins
import vllm_towers

# Where a platform would choose by what the kernels can do: the path of a backend, by what a layer asks for.
BACKENDS = {
    "dense": "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend",
    "triton": "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend",
    "diffkv": "vllm.v1.attention.backends.flash_attn_diffkv.FlashAttentionDiffKVBackend",
    "mla": "vllm.v1.attention.backends.mla.triton_mla.TritonMLABackend",
    "flashmla": "vllm.v1.attention.backends.mla.flashmla.FlashMLABackend",
    "sparse": "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseBackend",
}


def choice(args):
    """What a platform's get_attn_backend_cls does: a layer's wishes -> the path of a class."""

    def path(wishes):
        usual = "sparse" if wishes.use_sparse else "mla" if wishes.use_mla else "dense"
        per_head = str(wishes.kv_cache_dtype).endswith("per_token_head") and not wishes.use_mla
        found = args.backend or ("triton" if per_head else usual)
        return BACKENDS.get(found, found)

    return path


def ready(args):
    """Stand-ins for what this machine lacks. Call it once, before anything of vLLM is imported."""
    vllm_stand_ins.install(args.conv)
    vllm_stand_ins.platform(choice(args))
    vllm_stand_ins.words()
    vllm_towers.optional()


def configured(args, entry):
    """vLLM's own configuration of a model that has no weights, as `vllm serve` makes it from its options."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
    vllm_configs.register(entry["config"])
    os.environ["VLLM_KV_CACHE_LAYOUT"] = args.order
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    os.environ.update({"VLLM_USE_V2_MODEL_RUNNER": "1"} if args.v2 else {})
    folder = tempfile.mkdtemp()
    drafts = {"num_nextn_predict_layers": args.drafts, "mtp_num_hidden_layers": args.drafts} if args.drafts else {}
    pathlib.Path(folder, "config.json").write_text(json.dumps({**entry["config"], **drafts}))
    ngrams = {"method": "ngram", "num_speculative_tokens": args.draft_tokens, "prompt_lookup_max": 4}
    return EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype=entry["config"].get("dtype") or entry["config"].get("torch_dtype") or "auto",
        max_model_len=entry.get("context"),
        block_size=args.block or None,
        kv_cache_dtype=args.kv_dtype,
        enable_prefix_caching=args.prefix_caching,
        tensor_parallel_size=args.tp,
        pipeline_parallel_size=args.pp,
        decode_context_parallel_size=args.dcp,
        language_model_only=args.language_model_only,
        speculative_config=ngrams if args.draft_tokens else None,
    ).create_engine_config()


def built(config, device, model=None):
    """The model's own class, or that of its draft, its weights on a device: meta, where there are none, or cpu."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.workspace import init_workspace_manager

    init_workspace_manager(torch.device(device))
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype), torch.device(device):
        return initialize_model(vllm_config=config, model_config=model)


def drafted(config, device):
    """The numbers of the draft's layers, which follow the model's own, by the names of their caches."""
    from vllm.config import ModelConfig
    from vllm.config.speculative import SpeculativeConfig

    target, before = config.model_config, set(config.compilation_config.static_forward_context)
    own = ModelConfig(
        model=target.model,
        skip_tokenizer_init=True,
        dtype=target.dtype,
        max_model_len=target.max_model_len,
        enforce_eager=True,
        hf_overrides=SpeculativeConfig.hf_config_override,
    )
    object.__setattr__(config.speculative_config, "draft_model_config", own)
    other = copy.copy(config)
    object.__setattr__(other, "model_config", own)
    first = target.hf_text_config.num_hidden_layers
    found = numbered(config, built(other, device, own))
    return {name: n if n >= first else n + first for name, n in found.items() if name not in before}


def staged(config, args):
    """The model's stages, built one after the other: the number of each layer, and the names of those in this stage."""
    known, numbers, here = config.compilation_config.static_forward_context, {}, set()
    for stage in range(args.pp):
        before = set(known)
        sizes = {"tp": args.tp, "dcp": args.dcp, "pp": args.pp}
        vllm_stand_ins.groups(sizes, {"tp": args.rank, "dcp": args.rank % args.dcp, "pp": stage})
        numbers |= numbered(config, built(config, args.device))
        numbers |= drafted(config, args.device) if args.drafts and stage == args.pp - 1 else {}
        here |= set(known) - before if stage == args.stage else set()
    return numbers, here


def planned(config, args, here):
    """(KVCacheConfig, kernel block sizes, views) as vLLM's worker would have them. `here` are its layers."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    from vllm.v1.core.kv_cache_planning import (
        _project_kv_cache_groups_to_worker,
        get_kv_cache_config_from_groups,
        get_kv_cache_groups,
    )
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
    from vllm.v1.worker.utils import allocate_kv_cache, prepare_kernel_block_sizes

    with set_current_vllm_config(config):
        current_platform.update_block_size_for_backend(config)
        cache = config.cache_config
        cache.mamba_block_size = cache.mamba_block_size or config.model_config.max_model_len
        cache.num_gpu_blocks_override = args.blocks
        specs = get_kv_cache_spec(config)
        supported = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(config))]
        layout = resolve_kv_cache_layout(config, [supported], specs.values())
        own = {name: spec for name, spec in specs.items() if name in here}
        groups = _project_kv_cache_groups_to_worker(get_kv_cache_groups(config, specs), own)
        plan = get_kv_cache_config_from_groups(config, groups, 1 << 40)
        kernels = prepare_kernel_block_sizes(plan, backends(config, plan))
        return plan, kernels, allocate_kv_cache(plan, torch.device("cpu"), layout, kernels)


def backends(config, plan):
    """Per group, what vLLM's worker keeps: the backends of its layers with their specs."""
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    layers = config.compilation_config.static_forward_context
    found = []
    for group in plan.kv_cache_groups:
        spec = group.kv_cache_spec
        own = (
            spec.kv_cache_specs if isinstance(spec, UniformTypeKVCacheSpecs) else dict.fromkeys(group.layer_names, spec)
        )
        pairs = {(layers[name].get_attn_backend(), own[name]) for name in group.layer_names}
        found.append([types.SimpleNamespace(backend=backend, kv_cache_spec=one) for backend, one in pairs])
    return found


def step_of_states(config):
    """Tokens that blocks beside states are a multiple of, where kernels export states in the middle of a prefill."""
    from vllm.model_executor.layers.mamba.abstract import get_mamba_prefill_checkpoint_alignment

    step = get_mamba_prefill_checkpoint_alignment(config) if config.cache_config.mamba_cache_mode == "align" else None
    return step if step and step > 1 else None


def plain(value):
    """Anything of a spec as plain JSON."""
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value).removeprefix("torch.").replace("float8_e4m3fn", "fp8")


def described(spec):
    """The class of a spec and its fields; those that are unset are left out."""
    fields = {field.name: plain(getattr(spec, field.name)) for field in dataclasses.fields(spec)}
    kept = {name: value for name, value in fields.items() if value not in (None, False, "none")}
    return {"class": type(spec).__name__, **kept, "page_size_bytes": spec.page_size_bytes}


def numbered(config, model):
    """The number of each layer by the name of its cache. Names have other numbers here and there, paths not.

    A module that several layers share has a cache of a class for each of them, in their order.
    """
    places = collections.defaultdict(list)
    for path, module in model.named_modules(remove_duplicate=False):
        places[id(module)] += numbers_in(path)[:1]
    given, found = collections.Counter(), {}
    for name, layer in config.compilation_config.static_forward_context.items():
        numbers = places[id(layer)] or numbers_in(name)[:1]
        own = type(layer), tuple(numbers)
        found |= {name: numbers[given[own] % len(numbers)]} if numbers else {}
        given[own] += 1
    return found


def numbers_in(path):
    return [int(number) for number in re.findall(r"\.(\d+)(?=\.|$)", path)]


def dump(args, entry, more, numbers, plan, kernels, views):
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    specs, layers, groups = [], [], []
    kept = [pair for pair in zip(plan.kv_cache_groups, kernels, strict=True) if pair[0].layer_names]
    for number, (group, kernel) in enumerate(kept):
        spec, names = group.kv_cache_spec, group.layer_names
        own = spec.kv_cache_specs if isinstance(spec, UniformTypeKVCacheSpecs) else dict.fromkeys(names, spec)
        state = not hasattr(own[names[0]], "num_kv_heads")
        paged = {} if state else {"tokens": spec.block_size, "kernel_tokens": kernel}
        limits = {"window": "sliding_window", "chunk": "attention_chunk_size"}
        found = {word: value for word, name in limits.items() if (value := getattr(own[names[0]], name, None))}
        groups.append({"store": "state" if state else "tokens", **paged, **found, "layers": names})
        for name in names:
            told = described(own[name])
            specs += [] if told in specs else [told]
            layers.append(placed(name, numbers, number, views[name], specs.index(told)))
    size = plan.kv_cache_tensors[0].size
    side = {"order": args.order, "block": args.block or None, "conv": args.conv, "kernel_sizes": args.kernel_sizes}
    side |= {"kv_dtype": served_dtype(args, specs), "draft_tokens": args.draft_tokens or None}
    names = {"id": args.id or entry.get("id"), "layout": args.layout or entry.get("layout")}
    return {
        "kvplan-dump": 1,
        "engine": {"name": "vllm", "version": importlib.metadata.version("vllm")},
        "model": {key: value for key, value in names.items() if value},
        "side": {key: str(value) for key, value in {**side, **more}.items() if value is not None},
        "mesh": {"tp": args.tp, "pp": args.pp, "dcp": args.dcp, "pcp": 1},
        "rank": {"tp": args.rank, "pp": args.stage, "dcp": args.rank % args.dcp, "pcp": 0},
        "blocks": plan.num_blocks,
        "allocations": [size],
        "axes": ["block", "head", "token", "content"],
        "specs": specs,
        "groups": groups,
        "layers": layers,
    }


def served_dtype(args, specs):
    """The element type that was asked for, or the format of records that vLLM serves in its place; none if it chose."""
    records = [s["cache_dtype_str"] for s in specs if str(s.get("cache_dtype_str")).endswith("ds_mla")]
    return None if args.kv_dtype == "auto" else records[0] if records else args.kv_dtype


def placed(name, numbers, group, view, spec):
    return {
        "name": name,
        "layer": numbers[name],
        "group": group,
        "allocation": 0,
        "offset": view.storage_offset() * view.element_size(),
        "shape": list(view.shape),
        "strides": [stride * view.element_size() for stride in view.stride()],
        "dtype": plain(view.dtype),
        "spec": spec,
    }


def compact(found):
    """JSON with a line per layer, group and spec."""
    lists = {key: value for key, value in found.items() if key in ("specs", "groups", "layers")}
    head = json.dumps({key: value for key, value in found.items() if key not in lists}, separators=(",", ":"))[:-1]
    rows = (
        f'"{key}":[\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in value) + "]"
        for key, value in lists.items()
    )
    return head + ",\n" + ",\n".join(rows) + "}"


def chosen_sizes(text):
    """Every backend takes blocks of these sizes only."""
    from vllm.v1.attention.backend import AttentionBackend

    sizes = [int(word) for word in text.split("+")]
    found = [AttentionBackend]
    for kind in found:
        found += kind.__subclasses__()
        if "get_supported_kernel_block_sizes" in vars(kind):
            kind.get_supported_kernel_block_sizes = staticmethod(lambda spec=None: list(sizes))


def loaded():
    """Load every model's code, for processes that are forked from this one: to load it is most of what a dump takes."""
    import vllm.engine.arg_utils
    import vllm.model_executor.model_loader.utils
    import vllm.v1.core.kv_cache_planning
    import vllm.v1.worker.gpu.attn_utils
    import vllm.v1.worker.utils

    for entry in vllm.model_executor.models.registry.ModelRegistry.models.values():
        # What cannot be loaded says so when it is asked for.
        with contextlib.suppress(Exception):
            entry.load_model_cls()


class Asked:
    """A model that is built. Raises whatever vLLM raises for one that it does not serve.

    `left_out` says which towers could not be built, `filled` which keys of no cache its configuration lacked.
    """

    def __init__(self, args, entry):
        self.args, self.filled = args, {}
        vllm_towers.LEFT_OUT.clear()
        while True:
            whole = vllm_configs.filled(entry["config"], self.filled)
            self.entry = {**entry, "config": whole if args.device == "meta" else vllm_configs.narrowed(whole)}
            try:
                self.config = configured(args, self.entry)
                self.numbers, self.here = staged(self.config, args)
                break
            except AttributeError as error:
                more = vllm_configs.usual(error)
                if not more or more.keys() <= self.filled.keys():
                    raise
                self.filled |= more
        self.left_out = list(vllm_towers.LEFT_OUT)
        if args.kernel_sizes:
            chosen_sizes(args.kernel_sizes)

    def dump(self, order):
        """The dump of one worker, for one order."""
        os.environ["VLLM_KV_CACHE_LAYOUT"] = self.args.order = order
        more = {"state_step": step_of_states(self.config)}
        # Planning settles blocks in here, for one order; layers have it, too.
        settled = vars(self.config.cache_config)
        before = copy.deepcopy(settled)
        try:
            plan = planned(self.config, self.args, self.here)
        finally:
            settled.clear()
            settled.update(before)
        return dump(self.args, self.entry, more, self.numbers, *plan)
