"""Parse JSON to foreign values: lists are tuples, and values that no expression can use are UnusableValues."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvplan.dsl.lang.evaluate import LIMIT
from kvplan.dsl.lang.foreign import UnusableValue
from kvplan.dsl.text.diagnostics import DslError, fault
from kvplan.dsl.text.source import SourceSpan

TOO_LARGE = UnusableValue("B002", "the number is too large: it does not fit 63 bits")


def parse_foreign(data: bytes, name: str) -> Mapping[str, object]:
    """The mapping in a JSON text. Raises DslError (F001) if it is none, at the place in the text."""
    try:
        config = value(json.loads(data.decode("utf-8-sig"), parse_int=_number))
    except UnicodeDecodeError as error:
        raise _fault(name, f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _fault(name, f"not JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise _fault(name, "it is nested too deeply") from None
    if not isinstance(config, Mapping):
        raise _fault(name, "a configuration is a mapping, {…}")
    return config


def value(json_value: object) -> object:
    """A JSON value as a foreign value."""
    if isinstance(json_value, Mapping):
        return {str(key): value(inner) for key, inner in json_value.items()}
    if isinstance(json_value, list | tuple):
        return tuple(value(inner) for inner in json_value)
    if isinstance(json_value, int) and not isinstance(json_value, bool) and abs(json_value) >= LIMIT:
        return TOO_LARGE
    return json_value


def _number(digits: str) -> object:
    return int(digits) if len(digits) < 20 else TOO_LARGE


def _fault(name: str, message: str, line: int = 1, column: int = 1) -> DslError:
    help = "give the config.json of a checkpoint"
    return fault("F001", message, SourceSpan(name, line, column, 1), help=help)
