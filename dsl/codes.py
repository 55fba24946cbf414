"""The codes of errors in layout files: permanent, never reused. Y yaml, K keys, E expressions, T types, B values,
F configurations.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.code import ErrorCode as ErrorCode
from kvplan.dsl.codes_configs import CONFIGS
from kvplan.dsl.codes_files import KEYS, YAML
from kvplan.dsl.codes_values import EXPRESSIONS, VALUES

CODES: Mapping[str, ErrorCode] = {**YAML, **KEYS, **EXPRESSIONS, **VALUES, **CONFIGS}


def page() -> str:
    """All codes as Markdown, for docs/errors.md."""
    return "\n".join(f"### {code}: {title}\n\n{text}\n" for code, (title, text) in CODES.items())
