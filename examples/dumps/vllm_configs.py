"""Configurations that need help: of classes that only a checkpoint's own code has, and of classes that lack keys."""

import re

# What a key may not be guessed for: it says what caches are.
OF_CACHES = re.compile(
    r"head|window|layer_types|kv|state|conv|chunk|sliding|pattern|lora|num_hidden|hidden_size|period|group_size"
    r"|interval|cycle|loop|compress|index|sink|share"
)
OF_TOWERS = re.compile(r"^(mm|vision|visual|image|audio|video)_")
# Other keys by what is in their names: a usual value.
USUAL = (
    ("eps", 1e-5),
    ("func|activation|_act$", "sigmoid"),
    ("dim|size|width", 64),
    ("num_|_num|topk|top_k|count|factor|rank", 1),
    ("layer", -1),
    ("template|path|name|type", "default"),
    ("", False),
)
# Widths that no cache depends on, small enough for weights in memory.
NARROW = {
    "vocab_size": 512, "intermediate_size": 128, "moe_intermediate_size": 64, "ffn_dim": 128, "n_inner": 128,
    "shared_expert_intermediate_size": 64, "decoder_ffn_dim": 128, "encoder_ffn_dim": 128, "encoder_layers": 1,
}  # fmt: skip
LACKS = re.compile(r"object has no attribute '(\w+)'")


def usual(error):
    """The key that a configuration lacks, by vLLM's error, with a usual value; none if the key says what caches are."""
    found = LACKS.search(str(error)) if isinstance(error, AttributeError) and "Config" in str(error) else None
    if not found or (OF_CACHES.search(found[1]) and not OF_TOWERS.search(found[1])):
        return {}
    return {found[1]: next(value for words, value in USUAL if re.search(words, found[1]))}


def filled(config, more):
    """A configuration with keys that it and those inside it lack."""
    inside = {k: filled(v, more) if isinstance(v, dict) and k.endswith("_config") else v for k, v in config.items()}
    return {**more, **inside}


def narrowed(config):
    """A configuration of a model that is as small as its caches allow."""
    inside = {key: narrowed(value) for key, value in config.items() if isinstance(value, dict)}
    own = {key: value for key, value in NARROW.items() if isinstance(config.get(key), int)}
    return {**config, **inside, **own}


def register(config):
    """A class for a kind of configuration that neither transformers nor vLLM knows: it keeps what is written."""
    from transformers import AutoConfig, PretrainedConfig

    kind = config.get("model_type")
    if not kind or class_of(kind):
        return

    class WrittenConfig(PretrainedConfig):
        model_type = kind

        def __init__(self, **values):
            # As the classes have it that such ones are made from: a window that is switched off is none.
            off = {"sliding_window": None} if values.get("use_sliding_window") is False else {}
            # Rotary embeddings that are scaled ask for this before it is set.
            self.max_position_embeddings = values.get("max_position_embeddings")
            super().__init__(**{**{key: inner(value) for key, value in values.items()}, **off})

        def get_text_config(self, *args, **more):
            """The one inside that has words; itself where none has."""
            inside = (value for value in vars(self).values() if isinstance(value, PretrainedConfig))
            return next((c for c in inside if hasattr(c, "vocab_size") and hasattr(c, "num_hidden_layers")), self)

    AutoConfig.register(kind, WrittenConfig, exist_ok=True)


def inner(value):
    """A value as classes have it: the configuration of a model, or of each layer, has attributes."""
    if isinstance(value, list):
        return [Attributes(item) if isinstance(item, dict) else item for item in value]
    return nested(value) if of_model(value) else value


class Attributes(dict):
    """What a checkpoint says of one layer: as JSON a mapping, to vLLM's code attributes."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        value = self[name]
        return Attributes(value) if isinstance(value, dict) else value


def of_model(value):
    """Whether a value is the configuration of a model inside another."""
    return isinstance(value, dict) and any(key in value for key in ("model_type", "hidden_size", "num_hidden_layers"))


def nested(values):
    """A configuration inside another."""
    from transformers import PretrainedConfig

    kind = values.get("model_type")
    own = {key: nested(value) if isinstance(value, dict) and not kind else value for key, value in values.items()}
    own.pop("model_type", None)
    return (class_of(kind) or PretrainedConfig)(**own)


def class_of(kind):
    """The class of a kind of configuration, None if neither transformers nor vLLM knows the kind."""
    from transformers import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    if kind in CONFIG_MAPPING:
        return CONFIG_MAPPING[kind]
    return _CONFIG_REGISTRY[kind] if kind in dict.keys(_CONFIG_REGISTRY) else None
