"""Triton's interpreter in the place of a GPU, for recurrent layers: repairs of what it lacks on a CPU.

Its own masks are whole numbers where numpy wants truths, its autotuner asks a driver, and causal convolutions, which it
cannot run, are computed by torch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from typing import Any


def wanted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def install() -> None:
    """Repair Triton and SGLang's Mamba layers. Import SGLang's modules of layers first."""
    import torch
    from sglang.srt.layers.attention.mamba import mamba
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpreterBuilder

    torch.cpu.device = lambda *_: contextlib.nullcontext()  # type: ignore[attr-defined]
    Autotuner.run = _untuned(Autotuner.run)
    for name, place in (("create_masked_load", 1), ("create_masked_store", 2)):
        setattr(InterpreterBuilder, name, _with_truths(getattr(InterpreterBuilder, name), place))
    for name, made in (("causal_conv1d_fn", convolved), ("causal_conv1d_update", convolved_once)):
        setattr(mamba, name, made)
        setattr(mamba, f"{name}_triton", made)


def _untuned(run: Callable[..., Any]) -> Callable[..., Any]:
    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    return first


def _with_truths(method: Callable[..., Any], place: int) -> Callable[..., Any]:
    def call(self: Any, *args: Any) -> Any:
        args[place].data = args[place].data.astype(bool)
        return method(self, *args)

    return call


def convolved(
    x: Any, weight: Any, bias: Any = None, query_start_loc: Any = None, cache_indices: Any = None,
    has_initial_state: Any = None, conv_states: Any = None, activation: object = "silu", **_: object,
) -> Any:  # fmt: skip
    """Causal convolutions of sequences, (channels, tokens), each behind its state, (slots, channels, taps - 1)."""
    import torch

    out, taps = torch.empty_like(x), weight.shape[1]
    bounds = query_start_loc.tolist()
    for number, (first, end) in enumerate(itertools.pairwise(bounds)):
        slot = number if cache_indices is None else int(cache_indices[number])
        goes_on = has_initial_state is not None and bool(has_initial_state[number])
        before = conv_states[slot].to(x.dtype) if goes_on else x.new_zeros(x.shape[0], taps - 1)
        row = torch.cat([before, x[:, first:end]], dim=1)
        made = torch.nn.functional.conv1d(row.unsqueeze(0), weight.to(x.dtype).unsqueeze(1), bias, groups=x.shape[0])
        out[:, first:end] = _activated(made[0], activation)
        conv_states[slot] = row[:, row.shape[1] - taps + 1 :].to(conv_states.dtype)
    return out


def convolved_once(
    x: Any, conv_state: Any, weight: Any, bias: Any = None, activation: object = None,
    conv_state_indices: Any = None, **_: object,
) -> Any:  # fmt: skip
    """One token more of several sequences, (sequences, channels)."""
    import torch

    slots = list(range(x.shape[0])) if conv_state_indices is None else conv_state_indices.tolist()
    rows = torch.cat([conv_state[slots].to(x.dtype), x.unsqueeze(2)], dim=2)
    conv_state[slots] = rows[:, :, 1:].to(conv_state.dtype)
    made = (rows * weight.to(x.dtype)).sum(2)
    return _activated(made if bias is None else made + bias, activation)


def _activated(made: Any, activation: object) -> Any:
    import torch

    return torch.nn.functional.silu(made) if activation in ("silu", "swish", True) else made
