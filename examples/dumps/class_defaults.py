"""Write layouts/configs/classes.json: what classes of configurations have where a config.json leaves a key out.

    PYTHONPATH=src:VLLM:TRANSFORMERS python examples/dumps/class_defaults.py layouts/configs/classes.json

The classes are transformers' own and those that vLLM brings along. Kept are the keys that rules for caches ask for;
one that a class has without a value is null.
"""

import inspect
import json
import os
import pathlib
import sys
from functools import partial

import vllm_stand_ins

from kvplan.dsl.configs.families import reading_of
from kvplan.dsl.configs.unread_keys import keys_read, suspect
from kvplan.dsl.library import load

TYPE, LAYERS, CYCLE = "model_type", "layer_types", "layer_types_cycle"
# What a configuration always says, or what no cache depends on, and patterns of which the cycle of layers is made.
LEFT_OUT = {
    "architectures",
    "_name_or_path",
    "model_type",
    "is_encoder_decoder",
    "dtype",
    "torch_dtype",
    "_sliding_window_pattern",
}
MAPPINGS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")


def plain(value):
    """Whether JSON and rules can have a value: fractions say nothing of caches."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return all(plain(entry) for entry in value)
    return value is None or isinstance(value, (bool, int, str))


def defaults_of(cls):
    """The fields of a class with their defaults, those of its constructor, too."""
    found = {}
    for base in reversed(cls.__mro__):
        own = dict(vars(base))
        found |= {name: own[name] for name in own.get("__annotations__", {}) if name in own}
    parameters = inspect.signature(cls.__init__).parameters.items()
    return {**{n: p.default for n, p in parameters if p.default is not inspect.Parameter.empty}, **found}


def made(cls, **keys):
    """What an instance says of itself, None where it cannot be made."""
    try:
        return json.loads(json.dumps(cls(**keys).to_dict(), default=str))
    except Exception:
        return None


def whole(value):
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def described(cls, asked, inside, looks):
    """The entry of one class. `looks` says whether a key looks as if it were about caches."""
    found = made(cls)
    if found is None:
        return None
    same = dict(getattr(cls, "attribute_map", None) or {})
    named = {name: same.get(name, name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")}
    layers, hidden, heads = (whole(found.get(name)) for name in named.values())
    given = {name: value for name, value in defaults_of(cls).items() if name in asked and value is not None}
    keys = {name: value for name, value in given.items() if plain(value)}
    derived = {
        "num_key_value_heads": (heads,),
        "head_dim": (hidden // heads if heads else 0, found.get("qk_rope_head_dim")),
    }
    other, doubled = [], made(cls, **{named["num_hidden_layers"]: 2 * layers}) if layers else None
    for name in sorted(asked & found.keys() - set(inside)):
        value = found[name]
        if value is None or not plain(value) or keys.get(name) == value or value in derived.get(name, ()):
            continue
        if name == LAYERS and (cycle := cycle_of(cls, named["num_hidden_layers"])):
            keys[CYCLE] = cycle
        elif name not in keys and doubled is not None and doubled.get(name) == value:
            keys[name] = value
        else:
            keys.pop(name, None)
            other.append(name)
    # A class has these, too, and nothing is known of their values: null.
    has = asked & (found.keys() | defaults_of(cls).keys()) - {*inside, *keys, *other}
    keys |= dict.fromkeys(sorted(has))
    types = {name: found[name].get("model_type") for name in inside if isinstance(found.get(name), dict)}
    own = {name: {TYPE: t, **inner(cls, name, t, asked)} for name, t in types.items() if t}
    told = {name: key for name, key in same.items() if name in asked or key in asked}
    # What a class has beside the model that writes text is about something else.
    apart = sorted(name for name in found.keys() - asked - {*inside} if own and looks(name))
    entry = {"keys": keys, "other": other, "same": told, "inside": own, "apart": apart}
    return {word: value for word, value in entry.items() if value}


def inner(cls, name, model_type, asked):
    """What an inner configuration has by default in this outer one that it has otherwise by itself."""
    from transformers import CONFIG_MAPPING

    given = {TYPE: model_type}
    outer = (made(cls, **{name: given}) or {}).get(name) or {}
    alone = (made(CONFIG_MAPPING[model_type]) if model_type in CONFIG_MAPPING else None) or outer
    hidden, heads, dim = (whole(outer.get(key)) for key in ("hidden_size", "num_attention_heads", "head_dim"))
    derived = (hidden // heads if heads else 0, outer.get("qk_rope_head_dim"))
    sized = {"head_dim"} if dim and dim not in derived else set()
    other = {key for key in asked & outer.keys() if key in sized or outer[key] != alone.get(key)}
    return {key: outer[key] for key in sorted(other) if plain(outer[key])}


def cycle_of(cls, count):
    """The layer types that a class gives in turn however many layers there are; None where it does otherwise."""
    found = None
    for layers in (48, 50):
        types = (made(cls, **{count: layers}) or {}).get(LAYERS)
        if not isinstance(types, list) or len(types) != layers:
            return None
        found = next((n for n in range(1, 17) if all(types[i] == types[i % n] for i in range(layers))), None)
        if found is None:
            return None
    return types[:found]


def written():
    """The types of models that write text."""
    from transformers.models.auto import modeling_auto

    tables = [getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES", {}) for name in MAPPINGS]
    return {model_type for table in tables for model_type in table}


def main():
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    vllm_stand_ins.install("DS")
    import transformers
    from transformers import CONFIG_MAPPING
    from vllm import __version__ as vllm_version
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    reading, _ = reading_of(load(), {})
    asked = set(keys_read(load())) - LEFT_OUT
    looks = partial(suspect, reading=reading)
    own = {name: _CONFIG_REGISTRY[name] for name in dict.keys(_CONFIG_REGISTRY)}
    entries = {name: described(cls, asked, reading.inside, looks) for name, cls in {**CONFIG_MAPPING, **own}.items()}
    wanted = {*written(), *own}
    while (
        more := {one[TYPE] for name in wanted for one in (entries.get(name) or {}).get("inside", {}).values()} - wanted
    ):
        wanted |= more
    kept = {name: entries[name] for name in sorted(wanted) if entries.get(name)}
    release = f"transformers {transformers.__version__} and vLLM {vllm_version}"
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in kept.items()]
    text = ",\n".join(lines)
    pathlib.Path(sys.argv[1]).write_text(f'{{"release": {json.dumps(release)}, "classes": {{\n{text}\n}}}}\n')
    print(f"{len(kept)} classes of {release}")


main()
