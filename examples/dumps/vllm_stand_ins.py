"""Stand-ins for what a machine without a GPU lacks: compiled modules, optional packages, a platform, process groups."""

import collections
import importlib.abc
import importlib.machinery
import os
import sys
import types
from unittest import mock

# Packages that vLLM imports whether it needs them here or not. What is installed is used as it is.
STAND_IN = {
    "PIL", "aiohttp", "av", "blake3", "cachetools", "cbor2", "compressed_tensors", "cpuinfo", "cv2", "depyf",
    "diskcache", "einops", "fastapi", "gguf", "ijson", "lark", "llguidance", "lmformatenforcer", "loguru",
    "mistral_common", "numba", "openai", "openai_harmony", "outlines_core", "partial_json_parser",
    "prometheus_client", "psutil", "pybase64", "requests", "scipy", "sentencepiece", "setproctitle", "six",
    "soundfile", "soxr", "tiktoken", "torchaudio", "torchvision", "urllib3", "uvloop", "watchfiles", "xgrammar",
    "xxhash", "timm", "librosa", "decord",
}  # fmt: skip

COMPILED = ("vllm.vllm_flash_attn",)


class _Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)

    def __iter__(cls):
        return iter(())

    def __or__(cls, other):
        return cls

    def __ror__(cls, other):
        return cls

    def __lt__(cls, other):
        return False

    def __ge__(cls, other):
        return True


def _schema(cls, source, handler):
    from pydantic_core import core_schema

    return core_schema.any_schema()


def anything(name):
    body = {
        "__init__": lambda self, *args, **more: None,
        "__call__": lambda self, *args, **more: args[0] if args and callable(args[0]) else self,
        "__class_getitem__": classmethod(lambda cls, key: cls),
        "__get_pydantic_core_schema__": classmethod(_schema),
    }
    return _Anything(name, (), body)


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, anything(name))
        return self.__dict__[name]


class _Kernel:
    """A compiled kernel that is not there. Asked whether it supports something, it says no."""

    def __call__(self, *args):
        return False

    def __getattr__(self, name):
        return self


class _NoKernels:
    """Where compiled kernels would be. Models may name any, once everything else of vLLM is imported."""

    complete = False

    def __getattr__(self, name):
        if "support" not in name and not self.complete:
            raise AttributeError(name)
        return _Kernel()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last on the path: hands out a stand-in for a module that vLLM asks for and that is not there."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith(COMPILED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        top = name.partition(".")[0]
        if top in STAND_IN or name.startswith("vllm._"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install(conv):
    """Before anything of vLLM is imported."""
    given = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_SSM_CONV_STATE_LAYOUT": conv, "HF_HUB_OFFLINE": "1"}
    os.environ.update({**given, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "VLLM_KIMI_K3_GEMM_AR": "0"})
    import torch
    import transformers.image_utils

    transformers.image_utils.PILImageResampling = anything("PILImageResampling")
    torch.cuda.Stream = torch.cuda.Event = anything("Stream")
    torch.accelerator.empty_cache = lambda: None
    torch.ops._C = _NoKernels()
    torch.ops._flashkda_C = types.SimpleNamespace(get_workspace_size=lambda *sizes: 0)
    sys.modules.update({name: _Module(name) for name in COMPILED})
    sys.meta_path.append(_Finder())


def platform(backends):
    """A platform like CUDA's whose memory is the CPU's. `backends` gives the path of a layer's backend."""
    from vllm import platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum
    from vllm.utils import import_utils

    class Rehearsed(Platform):
        _enum = PlatformEnum.CUDA
        device_name, device_type, dispatch_key = "none", "cpu", "CPU"
        dist_backend = "gloo"

        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id=0):
            return "none"

        @classmethod
        def device_count(cls):
            return 1 << 10

        @classmethod
        def get_device_total_memory(cls, device_id=0):
            return 80 << 30

        @classmethod
        def support_hybrid_kv_cache(cls):
            return True

        @classmethod
        def num_compute_units(cls, device_id=0):
            return 132

        @classmethod
        def get_attn_backend_cls(cls, selected, attn_selector_config, num_heads=None):
            return backends(attn_selector_config)

    import_utils.has_deep_gemm = lambda: True
    platforms._current_platform = Rehearsed()
    import vllm._custom_ops
    from vllm.triton_utils import tl, triton
    from vllm.v1.attention.ops import flashmla

    flashmla._is_flashmla_available = lambda: (True, None)
    triton.set_allocator = lambda allocate: None
    tl.extra = anything("extra")
    triton.Config = lambda kwargs=None, **more: types.SimpleNamespace(kwargs=kwargs, num_stages=1, num_warps=1)
    _NoKernels.complete = vllm._custom_ops is not None


def words():
    """Tokenizers and processors, which no cache depends on, for checkpoints that have none."""
    from vllm import tokenizers
    from vllm.transformers_utils import processor

    number = 5
    known = {"encode": lambda *text, **more: [number], "convert_tokens_to_ids": lambda *text, **more: number}
    known |= {"get_vocab": lambda: collections.defaultdict(lambda: number), "vocab": collections.defaultdict(int)}
    tokenizers.cached_tokenizer_from_config = lambda *args, **more: mock.MagicMock(**known)
    for name in (name for name in vars(processor) if name.startswith("cached_")):
        setattr(processor, name, lambda *args, **more: mock.MagicMock())


def groups(sizes, ranks):
    """Process groups that nobody else is in, of the sizes and with the rank of each that are given: tp, dcp, pp."""
    from vllm.distributed import parallel_state

    parallel_state.in_the_same_node_as = lambda group, source_rank=0: [False] * group.size()
    for name in ("pp", "tp", "dcp", "pcp", "dp", "ep"):
        setattr(parallel_state, f"_{name.upper()}", _Group(sizes.get(name, 1), ranks.get(name, 0)))
    parallel_state._WORLD = _Group(sizes["pp"] * sizes["tp"], ranks["pp"] * sizes["tp"] + ranks["tp"])


class _Group:
    def __init__(self, size, rank):
        self.world_size, self.rank_in_group, self.rank, self.local_rank = size, rank, rank, rank
        self.device_group = self.cpu_group = types.SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.ranks, self.device_communicator = list(range(size)), None
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.first_rank, self.last_rank, self.mq_broadcaster, self.unique_name = 0, size - 1, None, "rehearsed"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda tensor=None, *args, **more: tensor
