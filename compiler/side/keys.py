"""The keys of a side under kvplan's or the engine's names, and the error for an unknown word."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import close, pairs, parse_side
from kvplan.dsl.files.engines import spelled
from kvplan.dsl.schema.engine import Engine

# Keys of every engine. The pool's size is not part of a plan: only commands that follow blocks ask for it.
POOL = "blocks"
OTHER_KEYS = ("engine", "groups", POOL, "layers", "without")
SHARE, MEMORY = "share.", "memory."


def side_keys(engine: Engine, text: str) -> dict[str, str]:
    """Return one side as key -> value, an engine's flags as the keys that they set. Raises BadInput (S001..S003)."""
    keys: dict[str, str] = {}
    for word, value in parse_side(text).items():
        key = word if word in _keys(engine) else engine.flags.get(spelled(word), word)
        if key in keys:
            said = f"{key!r} is given twice in side {text!r}" + (f", as {word}, too" if word != key else "")
            raise BadInput("S002", said, "give it once")
        keys[key] = value
    return keys


def side_words(engine: Engine, text: str) -> str:
    """Return a side's text with kvplan's name for every key. Raises BadInput (S001..S003)."""
    return ",".join(f"{key}={value}" for key, value in side_keys(engine, text).items())


def check_keys(engine: Engine, given: Iterable[str], overrides: Iterable[str]) -> None:
    """Refuse a key that neither the engine nor every side has (S005); `overrides` are keys of derived values."""
    known = {*_keys(engine), *overrides}
    for key in given:
        if key not in known and not key.startswith((SHARE, MEMORY)):
            raise _unknown(engine, key, known)


def check_pool(text: str) -> None:
    """Refuse a side with a pool's size for a command that does not use it. Raises BadInput (S001, S026)."""
    if POOL in dict(pairs(text)):
        message = f"{POOL}= is the size of a pool, which plans do not depend on"
        raise BadInput("S026", message, "leave it out here: simulate, trace and audit ask for it")


def _keys(engine: Engine) -> tuple[str, ...]:
    return (*engine.mesh.workers, *engine.mesh.derived, *engine.options, *OTHER_KEYS, *engine.derive)


def _unknown(engine: Engine, key: str, known: set[str]) -> BadInput:
    if why := engine.aside.get(spelled(key)):
        return BadInput("S005", f"{key!r} is no key of a side: {why}", "leave it out")
    message = f"unknown side key {key!r}"
    name, colon, rest = key.partition(":")
    if colon:
        return BadInput("S005", message, f"another engine is a key: engine={name},{rest}=…")
    meant = {name for flag, name in engine.flags.items() if spelled(key) in flag.split("_")}
    if len(meant) == 1 and len(key) > 2:
        return BadInput("S005", message, f"did you mean {next(iter(meant))!r}?")
    if near := close(key, sorted(name for name in known if "." not in name or "." in key)):
        return BadInput("S005", message, f"did you mean {near!r}?")
    first = (*engine.mesh.workers, *engine.mesh.derived, *engine.options, *OTHER_KEYS)
    more = f"`kvplan explain {engine.name}` has them all"
    return BadInput("S005", message, f"allowed: {', '.join(dict.fromkeys(first))}, and what is derived: {more}")
