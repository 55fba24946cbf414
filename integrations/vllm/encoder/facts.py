"""vLLM's description of an engine's encoder and of items: the only place here that reads its configuration."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformers.utils import cached_file
from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver, collect_ec_item_metadata
from vllm.platforms import current_platform

from kvplan.integrations.shared.facts import plain_word
from kvplan.integrations.vllm.encoder.layout import EncoderFacts
from kvplan.integrations.vllm.setup import checkpoint_revision

# The files of a checkpoint that determine how an image, a video or a clip becomes the encoder's input.
PROCESSORS = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
# The engine's own settings that also determine it, by vLLM's names.
SETTINGS = ("mm_processor_kwargs", "video_pruning_rate", "video_pruning_method", "media_io_kwargs")


def encoder_facts(config: Any) -> EncoderFacts:
    """Return the facts of an engine. `config` is its VllmConfig. Raises OSError."""
    model = config.model_config
    file = str(cached_file(model.model, "config.json", revision=model.revision))
    return EncoderFacts(
        dim=model.get_inputs_embeds_size(),
        levels=1 + deep_layers(model.hf_config),
        dtype=plain_word(model.dtype),
        processor=processor(model, Path(file).parent),
        revision=checkpoint_revision(model, file),
    )


def deep_layers(config: Any) -> int:
    """Count the encoder's layers that give features of their own, as configurations with DeepStack list them."""
    return len(getattr(getattr(config, "vision_config", None), "deepstack_visual_indexes", None) or ())


def processor(model: Any, folder: Path) -> str:
    """Return a digest of all that determines the encoder's input for an item. Hashes of items depend on less."""
    own = model.multimodal_config
    said = {name: repr(getattr(own, name, None)) for name in SETTINGS}
    files = {name: (folder / name).read_text(encoding="utf-8") for name in PROCESSORS if (folder / name).is_file()}
    return sha256(json.dumps([said, files], sort_keys=True).encode()).hexdigest()[:32]


def load_device() -> str:
    """Return the device of this worker, as torch names it."""
    kind = str(current_platform.device_type)
    return f"{kind}:{current_platform.current_device()}" if current_platform.is_cuda_alike() else kind


class EngineItems:
    """vLLM's facts about items, from the model's own processor."""

    def __init__(self, model: Any) -> None:
        self._resolver = PlaceholderMetadataResolver(model)

    def encodable(self, feature: Any) -> bool:
        """Whether a request has the encoder's input for an item, or only the sizes for placeholders."""
        placeholders = self._resolver.fields_for(feature.modality) if feature.data else set()
        return any(value.data is not None for name, value in (feature.data or {}).items() if name not in placeholders)

    def metadata(self, features: list[Any]) -> dict[str, dict[str, Any]]:
        """Return by hash what the next engine can have without the media: the sizes for placeholders."""
        found: dict[str, dict[str, Any]] = collect_ec_item_metadata(features, self._resolver)
        return found
