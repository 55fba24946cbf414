"""Print which architectures an installed vLLM generates text with, and the defaults of their classes. See README.md.

{"version", "architectures": {name: table}, "defaults": {name: config}}: a default is what the class of transformers, or
of vLLM itself, has for an architecture.
"""

import json
import sys

import vllm_stand_ins

TABLES = {
    "text": "_TEXT_GENERATION_MODELS",
    "multimodal": "_MULTIMODAL_MODELS",
    "backend": "_TRANSFORMERS_SUPPORTED_MODELS",
}
UNSAID = ("transformers_version", "_name_or_path", "_commit_hash")


def architectures():
    from vllm.model_executor.models import registry

    return {name: table for table, names in TABLES.items() for name in getattr(registry, names)}


def classes():
    """The configuration class of each architecture that transformers or vLLM has one for."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    found = {}
    for table, names in vars(modeling_auto).items():
        for kind, of_kind in dict(names).items() if table.endswith("MAPPING_NAMES") else ():
            for name in [of_kind] if isinstance(of_kind, str) else of_kind:
                found.setdefault(name, (kind, lambda kind=kind: CONFIG_MAPPING[kind]()))
    for kind in dict.keys(_CONFIG_REGISTRY):
        made = attempted(_CONFIG_REGISTRY[kind])
        for name in getattr(made, "architectures", None) or ():
            found.setdefault(name, (kind, _CONFIG_REGISTRY[kind]))
    return found


def attempted(make):
    """What a class makes without arguments; nothing if it wants some."""
    try:
        return make()
    except Exception:
        return None


def written(name, kind, config):
    """A configuration as a checkpoint would have it."""
    plain = json.loads(json.dumps(config.to_dict(), default=str))
    kept = {key: value for key, value in plain.items() if key not in UNSAID and not (key == "dtype" and value is None)}
    kept.setdefault("model_type", kind)
    return {"dtype": "bfloat16", **kept, "architectures": [name]}


def main():
    stdout, sys.stdout = sys.stdout, sys.stderr
    vllm_stand_ins.install("DS")
    import vllm

    known = classes()
    every = architectures()
    made = {name: (known[name][0], attempted(known[name][1])) for name in every if name in known}
    defaults = {name: written(name, kind, config) for name, (kind, config) in made.items() if config is not None}
    print(json.dumps({"version": vllm.__version__, "architectures": every, "defaults": defaults}), file=stdout)


if __name__ == "__main__":
    main()
