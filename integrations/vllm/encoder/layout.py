"""The layout of an engine's pool: made from the engine's facts of its encoder's rows, or the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache
from kvplan.dsl.configs.same_model import parsed, twins
from kvplan.dsl.lang.dtypes import canonical
from kvplan.dsl.library import Library, load
from kvplan.dsl.named import is_path, library
from kvplan.dsl.text.source import SourceSpan
from kvplan.integrations.shared.cache import LAYOUTS, cache_folder
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.vllm.encoder.transfers import PoolLayout
from kvplan.plan.planes import planes
from kvplan.plan.types import Side

ENGINE, KIND = "encoder-pool", "encoder-cache"
# The place of the connector's configuration in vLLM's.
PLACE = "ec_connector_extra_config"
# The setting that must be equal on both engines of a pair.
PROCESSOR = "processor of items"


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """An engine's encoder: a row is `levels` vectors of `dim` elements of type `dtype`, in torch's words.

    They come from its configuration; a user's layout may be more exact. `processor` is a digest of all that determines
    the encoder's input for an item, `revision` identifies the weights.
    """

    dim: int
    levels: int
    dtype: str
    processor: str
    revision: str


@dataclass(frozen=True, slots=True)
class EncoderLayout:
    """A pool as in plans: that of one worker, because all workers of an engine share it.

    A row has `width` elements. Without a plans directory, plans are compiled into the folder `cache`.
    """

    side: Side
    model: str
    model_digest: str
    width: int
    settings: Mapping[str, str]
    cache: Path | None
    worker: int = 0

    @property
    def pool(self) -> PoolLayout:
        return PoolLayout(self.side.groups[0].name, self.side.groups[0].tokens)

    @property
    def plane(self) -> str:
        return planes(self.side.workers[0])[0].name

    @property
    def block_bytes(self) -> int:
        return planes(self.side.workers[0])[0].stride


def encoder_layout(config: ConnectorConfig, facts: EncoderFacts) -> EncoderLayout:
    """Return the layout of an engine's pool. Raises ConnectorError (I002, I004, I009), DslError, BadInput, Refused."""
    dtype = canonical(facts.dtype)
    layouts, name, cache = _model(config, facts, dtype)
    options = {"engine": config.engine or ENGINE, "kv_dtype": dtype, **config.options}
    bound = bind(layouts, layouts.model(name), ",".join(f"{key}={value}" for key, value in options.items()))
    if len(bound.workers) > 1:
        help = "leave the mesh out of them: all workers of an engine share one pool"
        raise ConnectorError("I002", f"{PLACE}: options make {len(bound.workers)} workers", help)
    side, digest = side_of(bound)
    return EncoderLayout(side, bound.model, digest, _width(bound.caches), {PROCESSOR: facts.processor}, cache)


def _width(caches: Sequence[BoundCache]) -> int:
    """Return the elements of a row of all caches: there is one cache, of items."""
    tensors = [tensor for cache in caches for tensor in cache.tensors]
    return sum(prod(size for axis, size in tensor.axes if axis != "token") for tensor in tensors)


def _model(config: ConnectorConfig, facts: EncoderFacts, dtype: str) -> tuple[Library, str, Path | None]:
    """Return the layout files, the model's name, and the cache folder for plans if there is no plans directory."""
    own = (config.layouts,) if config.layouts else ()
    if config.layout:
        path = Path(config.layout)
        texts = {path.name: path.read_text(encoding="utf-8")} if is_path(config.layout) and path.is_file() else {}
        return *library(config.layout, own), _cache(config, texts)
    name, layouts = f"encoder-{facts.levels}x{facts.dim}-{dtype}", load((), own)
    text = _text(name, facts, dtype)
    if same := twins(layouts, parsed(layouts, text, name, SourceSpan(f"{name}.yaml", 1, 1, 1))):
        return layouts, same[0], _cache(config, {})
    if config.plans is not None:
        help = f"write {name}.yaml as docs/vllm.md shows, dim: {facts.dim}, levels: {facts.levels}, dtype: {dtype}; "
        help += f'compile its plan, and give "layout": "{name}.yaml"; or leave "plans" out'
        raise ConnectorError("I004", f"no layout file has rows of {facts.levels} x {facts.dim} {dtype}", help)
    cache = cache_folder(config.layouts, {f"{name}.yaml": text})
    return load((), (*own, cache / LAYOUTS)), name, cache


def _cache(config: ConnectorConfig, texts: Mapping[str, str]) -> Path | None:
    return cache_folder(config.layouts, texts) if config.plans is None else None


def _text(name: str, facts: EncoderFacts, dtype: str) -> str:
    cache = f"{{kind: {KIND}, layers: all, dim: {facts.dim}, levels: {facts.levels}}}"
    lines = ["kvplan: 1", f"model: {name}", "title: Items as an engine describes them", f"dtype: {dtype}", "layers: 1"]
    return "\n".join([*lines, "caches:", f"  items: {cache}", ""])
