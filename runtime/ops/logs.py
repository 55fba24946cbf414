"""Structured logs on the logger `kvplan.runtime`: one line per event, even if a peer's facts have line breaks.

The runtime never writes to stdout.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

from kvplan.runtime.errors import EXITS, KvplanError

Failed = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None
LOG = logging.getLogger("kvplan.runtime")
DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING
# The most characters of one fact. The rest is only counted.
LONGEST = 512
# Printable ASCII without the blank, both quotes, the equals sign and the backslash.
_PLAIN = re.compile(r"[!#-&(-<>-\[\]-~]+")


def event(level: int, name: str, /, **facts: object) -> None:
    """Log `name key=value …`. The record also has `event` and `facts`, for handlers that want them separately."""
    if LOG.isEnabledFor(level):
        _say(level, name, facts)


def failure(name: str, /, **facts: object) -> None:
    """Log an event with the traceback of the exception that is being handled, which the caller does not raise again."""
    if LOG.isEnabledFor(logging.ERROR):
        _say(logging.ERROR, name, facts, sys.exc_info())


def _say(level: int, name: str, facts: dict[str, object], failed: Failed = None) -> None:
    """Log a record in the name of the function that called `event` or `failure`."""
    path, number, function, _ = LOG.findCaller(stacklevel=3)
    extra = {"event": name, "facts": facts}
    record = LOG.makeRecord(LOG.name, level, path, number, "%s", (line(name, facts),), failed, function, extra)
    try:
        LOG.handle(record)
    except EXITS:
        raise
    except BaseException:
        # Report the handler's exception as `logging` itself would.
        logging.Handler().handleError(record)


def line(name: str, facts: Mapping[str, object]) -> str:
    """Return `name key=value …` in printable ASCII. Other values are quoted and escaped as in JSON."""
    return " ".join([name, *(f"{key}={_value(value)}" for key, value in facts.items())])


def json_lines(stream: TextIO | None = None) -> logging.Handler:
    """Return a handler that writes one JSON object per line to `stream`, to stderr with None. Add it to any logger.

    Keys: time (seconds since 1970), level, logger, message, and, if known, event, facts and traceback.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Json())
    return handler


def off_stdout(name: str) -> None:
    """Redirect handlers of another library's logger from stdout to stderr."""
    for handler in logging.getLogger(name).handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.__stdout__):
            handler.setStream(sys.stderr)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = getattr(record, "facts", None)
        if isinstance(facts, dict):
            found["event"] = _plain(getattr(record, "event", ""))
            found["facts"] = {str(key): _plain(value) for key, value in facts.items()}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


def _value(value: object) -> str:
    text = _short(value)
    # DEL is the only control character that JSON does not escape.
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")


def _plain(value: object) -> object:
    """Return `value` if JSON can hold it, and its text otherwise."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _short(value)


def _short(value: object) -> str:
    """Return a value's text, cut to LONGEST. An error's text begins with its code, for `kvplan explain`."""
    text = f"{value.code}: {value}" if isinstance(value, KvplanError) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text) - LONGEST} more)"
