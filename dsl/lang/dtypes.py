"""Element types: their sizes and their other names."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.dsl.text.diagnostics import fault, nearest
from kvplan.dsl.text.source import inline

SIZES = {
    "f64": 8, "f32": 4, "bf16": 2, "f16": 2, "fp8": 1, "fp8_e5m2": 1, "u8": 1, "i8": 1, "i32": 4, "u32": 4, "i64": 8,
}  # fmt: skip
ALIASES = {
    "float64": "f64", "float32": "f32", "fp32": "f32", "bfloat16": "bf16", "float16": "f16", "fp16": "f16",
    "fp8_e4m3": "fp8", "uint8": "u8", "int8": "i8", "int32": "i32", "uint32": "u32", "int64": "i64",
}  # fmt: skip
NAMES = (*SIZES, *ALIASES)
# Types in which an engine computes a model, or keeps its keys and values.
OF_MODELS = ("bf16", "f16", "f32", "fp8", "fp8_e5m2")
OF_MODELS_NAMED = tuple(name for name in NAMES if ALIASES.get(name, name) in OF_MODELS)


def canonical(dtype: str) -> str:
    """The canonical name of an element type; any other word unchanged."""
    return ALIASES.get(dtype, dtype)


def advice(word: str, known: Iterable[str] = ()) -> str:
    """Advice for an unknown element type, or a name that is none of `known`. No engine keeps f64, so none is meant."""
    return nearest(word, {*known, *NAMES} - {"f64", "float64"})


def size(dtype: str) -> int:
    """The bytes of one element. Raises DslError (T002) for an unknown type."""
    if canonical(dtype) not in SIZES:
        help = advice(dtype) or f"known: {', '.join(SIZES)}"
        raise fault("T002", f"'{dtype}' is not an element type", inline(dtype, "<element type>"), help=help)
    return SIZES[canonical(dtype)]
