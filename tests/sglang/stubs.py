"""Empty modules for what SGLang imports but an engine on a CPU never calls: kernels of GPUs, transforms of images.

Any name of such a module is a class that can be called, subclassed, subscripted and used as a decorator.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

PACKAGES = ("sgl_kernel", "torchvision", "flashinfer", "triton", "triton_kernels", "tvm_ffi")
# Operators that modules of SGLang look up when they are imported.
OPERATORS = ("fused_sigmoid_gating_delta_rule_update_cpu", "fused_gdn_gating_cpu", "fused_sigmoid_mul_cpu")
# Functions that take arguments before what they decorate.
WITH_ARGUMENTS = ("jit", "autotune", "heuristics", "register_func", "register_global_func", "register_object")


class Nothing(type):
    """A class of which every attribute is another one."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return named(f"{cls.__qualname__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        if cls.__qualname__.endswith("get_current_target"):
            raise RuntimeError("0 active drivers")
        if cls.__qualname__.rpartition(".")[2] in WITH_ARGUMENTS:
            return lambda decorated: decorated
        return cls

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __or__(cls, _: object) -> Any:
        return cls

    __ror__ = __or__


def named(name: str) -> Any:
    return Nothing(name, (), {"__init__": lambda self, *_, **__: None})


class StubModule(types.ModuleType):
    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or named(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name.split(".")[0] in PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        made = StubModule(spec.name)
        made.__file__, made.__path__ = __file__, []
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Put the finder behind all others: packages that are installed stay as they are."""
    sys.meta_path.append(Finder())
    import torch

    kind: Any = type(torch.ops.sgl_kernel)
    found = kind.__getattr__

    def look_up(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if self.name != "sgl_kernel" or name not in OPERATORS:
                raise
            return named(name)

    kind.__getattr__ = look_up
