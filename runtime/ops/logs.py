"""Structured logs on the logger `kvplan.runtime`: one line per event, whatever a peer puts into its facts.

Nothing here, or anywhere in the runtime, writes to stdout.
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
# Characters of one fact; the rest of what a peer sends is counted.
LONGEST = 512
# Printable ASCII without the blank, both quotes, the equals sign and the backslash.
_PLAIN = re.compile(r"[!#-&(-<>-\[\]-~]+")


def event(level: int, name: str, /, **facts: object) -> None:
    """Log `name key=value …`. The record has `event` and `facts`, too, for handlers that want them apart."""
    if LOG.isEnabledFor(level):
        _say(level, name, facts)


def failure(name: str, /, **facts: object) -> None:
    """`event` for an exception that is being handled and goes no further: its traceback comes along."""
    if LOG.isEnabledFor(logging.ERROR):
        _say(logging.ERROR, name, facts, sys.exc_info())


def _say(level: int, name: str, facts: dict[str, object], failed: Failed = None) -> None:
    """A record of who called `event` or `failure`."""
    path, number, function, _ = LOG.findCaller(stacklevel=3)
    extra = {"event": name, "facts": facts}
    record = LOG.makeRecord(LOG.name, level, path, number, "%s", (line(name, facts),), failed, function, extra)
    try:
        LOG.handle(record)
    except EXITS:
        raise
    except BaseException:
        # As logging itself reports what a handler raises.
        logging.Handler().handleError(record)


def line(name: str, facts: Mapping[str, object]) -> str:
    """`name key=value …` in printable ASCII: other values are quoted, and escaped as JSON is."""
    return " ".join([name, *(f"{key}={_value(value)}" for key, value in facts.items())])


def json_lines(stream: TextIO | None = None) -> logging.Handler:
    """A handler that writes an object per line to `stream`, stderr with None; add it to the logger of your choice.

    Keys: time (seconds since 1970), level, logger, message, and where they are known event, facts and traceback.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Json())
    return handler


def off_stdout(name: str) -> None:
    """Let the handlers of another library's logger that write to stdout write to stderr."""
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
    # DEL is the one control character that JSON leaves as it is.
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")


def _plain(value: object) -> object:
    """`value` where JSON has it, its text otherwise."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _short(value)


def _short(value: object) -> str:
    """A text of bounded length; of an error its code, too, for `kvplan explain`."""
    text = f"{value.code}: {value}" if isinstance(value, KvplanError) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text) - LONGEST} more)"
