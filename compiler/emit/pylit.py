"""Python values as the text that `ruff format` leaves alone: flat where it fits, else one element per line."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan.match_functions import WIDTH

STEP = 4

Value = object


@dataclass(frozen=True, slots=True)
class NameRef:
    """A name, written as it is."""

    name: str


@dataclass(frozen=True, slots=True)
class ConstructorCall:
    """A call of `name`, positional arguments first."""

    name: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()


def lit(value: Value, indent: int = 0, lead: int = 0, trail: int = 0) -> str:
    """The text of `value` on a line indented by `indent`, after `lead` characters and before `trail` more.

    Raises TypeError for anything but None, bool, int, str, tuple, Ref and Call.
    """
    text = flat(value)
    if indent + lead + len(text) + trail <= WIDTH:
        return text
    if isinstance(value, tuple) and value:
        return _lines("(", [("", item) for item in value], indent)
    if isinstance(value, ConstructorCall) and (value.args or value.kwargs):
        arguments = _arguments(value)
        if indent + STEP + len(arguments) <= WIDTH:
            return f"{value.name}(\n{' ' * (indent + STEP)}{arguments}\n{' ' * indent})"
        return _lines(f"{value.name}(", _items(value), indent)
    return text


def assign(name: str, value: Value, annotation: str = "") -> str:
    """`name = value`, or `name: annotation = value`, at the left margin."""
    target = f"{name}: {annotation} = " if annotation else f"{name} = "
    return target + lit(value, lead=len(target))


def flat(value: Value) -> str:
    """The text of `value` on one line, however long."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, NameRef):
        return value.name
    if isinstance(value, ConstructorCall):
        return f"{value.name}({_arguments(value)})"
    if isinstance(value, tuple):
        return f"({flat(value[0])},)" if len(value) == 1 else f"({', '.join(map(flat, value))})"
    raise TypeError(f"a plan cannot hold a {type(value).__name__}: {value!r}")


def _quoted(text: str) -> str:
    """Double quotes, unless they need more escapes than single ones."""
    single, double = text.count("'"), text.count('"')
    if double > single:
        return "'" + _escaped(text).replace("'", "\\'") + "'"
    return '"' + _escaped(text).replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    # repr of a text that has a double and a single quote is single-quoted, with the single quotes escaped
    return repr(text + "'\"")[1:-4].replace("\\'", "'")


def _items(call: ConstructorCall) -> list[tuple[str, Value]]:
    return [("", item) for item in call.args] + [(f"{key}=", item) for key, item in call.kwargs]


def _arguments(call: ConstructorCall) -> str:
    return ", ".join(key + flat(item) for key, item in _items(call))


def _lines(opening: str, items: list[tuple[str, Value]], indent: int) -> str:
    inner = indent + STEP
    lines = [f"{' ' * inner}{key}{lit(item, inner, len(key), 1)}," for key, item in items]
    return "\n".join([opening, *lines, " " * indent + ")"])
