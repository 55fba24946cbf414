"""Complete a configuration by its class in transformers, which adds and computes keys (`new --transformers`)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.text.diagnostics import fault
from kvplan.dsl.text.source import SourceSpan

MODEL_TYPE = "model_type"


def completed(config: Mapping[str, object], place: SourceSpan) -> tuple[dict[str, object], str]:
    """The configuration with all keys that its class adds, and a sentence for the written file that says so.

    Raises DslError (F009) if transformers is not installed, does not know the class, or cannot read the configuration.
    """
    try:
        import transformers
    except ImportError as error:
        help = "pip install transformers, or leave --transformers out"
        raise fault("F009", f"transformers cannot be imported: {error}", place, help=help) from None
    release = f"transformers {transformers.__version__}"
    name = config.get(MODEL_TYPE)
    if name not in transformers.CONFIG_MAPPING:
        said = f"{release} has no class of configurations for model_type '{name}'"
        raise fault("F009", said, place, help="install a release that has one, or leave --transformers out")
    given = {key: value for key, value in config.items() if key != MODEL_TYPE}
    try:
        whole = transformers.AutoConfig.for_model(name, **given).to_dict()
    except Exception as error:  # a class may raise anything for keys that it does not take
        said = f"{release} cannot read the configuration: {type(error).__name__}: {error}"
        raise fault("F009", said, place, help="correct the configuration, or leave --transformers out") from error
    found = parse_foreign(json.dumps(whole, default=str).encode(), place.path)
    # A class may not change the names that the checkpoint gives itself.
    names = {key: config[key] for key in ("architectures", MODEL_TYPE) if key in config}
    return {**found, **names}, f"read by {release}, whose class says what the configuration leaves out"
