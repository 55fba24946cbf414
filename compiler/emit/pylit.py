"""Python values as text: on one line if they fit, else filled lines, one constructor call a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from textwrap import wrap

# Columns of a plan's text.
WIDTH = 120
STEP = 4
# The longest argument that shares a line with others if a call takes several lines.
SHORT = 104
# The longest calls that stand below each other after a name.
NARROW = 68
# The number of quoted texts to cache: names of axes, tensors and groups occur again and again.
QUOTED = 1 << 12

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


@dataclass(frozen=True, slots=True)
class ForEach:
    """`call` for each item of `values`, which it has as the variables `words`: several items of a tuple."""

    call: ConstructorCall
    words: str
    values: Value


def lit(value: Value, indent: int = 0, lead: int = 0, trail: int = 0) -> str:
    """Return the text of `value` on a line indented by `indent`, after `lead` characters and before `trail` more.

    Raises TypeError for anything but None, int, str, tuple, and the classes of this module.
    """
    text = flat(value)
    if indent + lead + len(text) + trail <= WIDTH:
        return text
    if isinstance(value, tuple) and value:
        return _tuple(value, indent, lead)
    if isinstance(value, ConstructorCall) and (value.args or value.kwargs):
        return _call(value, indent, lead)
    if isinstance(value, ForEach):
        return _for_each(value, indent)
    return text


def assign(name: str, value: Value) -> str:
    """Return `name = value`, at the left margin."""
    target = f"{name} = "
    return target + lit(value, lead=len(target))


def flat(value: Value) -> str:
    """Return the text of `value` on one line, however long."""
    if value is None:
        return "None"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, NameRef):
        return value.name
    if isinstance(value, ConstructorCall):
        return f"{value.name}({', '.join(key + flat(item) for key, item in _arguments(value))})"
    if isinstance(value, ForEach):
        return f"*({flat(value.call)} for {value.words} in {flat(value.values)})"
    if isinstance(value, tuple):
        return f"({flat(value[0])},)" if len(value) == 1 else f"({', '.join(map(flat, value))})"
    raise TypeError(f"a plan cannot hold a {type(value).__name__}: {value!r}")


def comment(text: str, rest: str = "# ") -> str:
    """Return `text` as lines of a comment, all but the first beginning with `rest`."""
    lines = wrap(
        text, WIDTH, initial_indent="# ", subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines)


@lru_cache(QUOTED)
def _quoted(text: str) -> str:
    """Quote a text with double quotes, unless these need more escapes than single ones."""
    single, double = text.count("'"), text.count('"')
    if double > single:
        return "'" + _escaped(text).replace("'", "\\'") + "'"
    return '"' + _escaped(text).replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    # repr of a text with both quotes is single-quoted, with the single quotes escaped
    return repr(text + "'\"")[1:-4].replace("\\'", "'")


def _tuple(value: tuple[Value, ...], indent: int, lead: int) -> str:
    """Write a tuple over several lines: calls one a line, everything else in filled lines."""
    if len(value) == 1 and not isinstance(value[0], ForEach):
        return f"({lit(value[0], indent, lead + 1, 3)},)"
    at = indent + lead + 1
    if all(isinstance(item, ConstructorCall) and len(flat(item)) <= NARROW for item in value) and at + NARROW < WIDTH:
        return f"({(',' + chr(10) + ' ' * at).join(map(flat, value))})"
    if not any(map(_has_calls, value)) and not any(isinstance(item, tuple) for item in value):
        return f"({(',' + chr(10) + ' ' * at).join(_filled(map(flat, value), at, 2))})"
    return "\n".join(["(", *_items(value, indent + STEP), " " * indent + ")"])


def _items(value: tuple[Value, ...], indent: int) -> list[str]:
    return [f"{' ' * indent}{lit(item, indent, 0, 1)}," for item in value]


def _for_each(value: ForEach, indent: int) -> str:
    words = f"for {value.words} in "
    each, values = lit(value.call, indent, 2), lit(value.values, indent + 2, len(words), 2)
    used = len(each.rpartition("\n")[2]) + (0 if "\n" in each else indent + 2)
    between = " " if used + len(f" {words}{values}),") <= WIDTH else f"\n{' ' * (indent + 2)}"
    return f"*({each}{between}{words}{values})"


def _call(call: ConstructorCall, indent: int, lead: int) -> str:
    """Write a call over several lines: arguments fill lines, each item of a long tuple of calls has its own."""
    arguments, at = _arguments(call), indent + lead + len(call.name) + 1
    if all(map(_is_short, arguments)):
        lines = _filled((key + flat(item) for key, item in arguments), at, 4)
        return f"{call.name}({(',' + chr(10) + ' ' * at).join(lines)})"
    if all(indent + STEP + len(key + flat(item)) + 1 <= WIDTH for key, item in arguments):
        return _below(call.name, arguments, indent)
    text = f"{call.name}("
    for key, item in arguments:
        used = len(text.rpartition("\n")[2]) + (0 if "\n" in text else indent + lead)
        fits = used + len(", ") + len(key + flat(item)) + len(", views=(") <= WIDTH
        comma = "" if text.endswith(f"{call.name}(") else ", " if fits or _has_calls(item) else f",\n{' ' * at}"
        text += comma + key + (flat(item) if fits else _nested(item, indent))
    return f"{text})"


def _below(name: str, arguments: list[tuple[str, Value]], indent: int) -> str:
    """Write a call's arguments below its name: those without calls fill lines, each of the others has its own."""
    inner, lines = " " * (indent + STEP), list[str]()
    for short, several in groupby(arguments, key=_is_short):
        texts = [key + flat(item) for key, item in several]
        lines += _filled(texts, indent + STEP, 1) if short else texts
    return "\n".join([f"{name}(", *(f"{inner}{line}," for line in lines), " " * indent + ")"])


def _nested(item: Value, indent: int) -> str:
    """Write an argument that does not fit its line: each item of a tuple of calls has its own line."""
    if isinstance(item, tuple) and _has_calls(item):
        return "\n".join(["(", *_items(item, indent + STEP), " " * indent + ")"])
    return flat(item)


def _filled(texts: Iterable[str], indent: int, trail: int) -> Iterator[str]:
    """Yield filled lines of texts with commas between them, after `indent` and before `trail` characters."""
    line = ""
    for text in texts:
        if line and indent + len(line) + 2 + len(text) + trail > WIDTH:
            yield line
            line = text
        else:
            line = f"{line}, {text}" if line else text
    if line:
        yield line


def _arguments(call: ConstructorCall) -> list[tuple[str, Value]]:
    return [("", item) for item in call.args] + [(f"{key}=", item) for key, item in call.kwargs]


def _is_short(argument: tuple[str, Value]) -> bool:
    key, value = argument
    return not _has_calls(value) and len(key + flat(value)) <= SHORT


def _has_calls(value: Value) -> bool:
    """Whether a value contains a call other than `tuple(range(…))`."""
    if isinstance(value, tuple):
        return any(map(_has_calls, value))
    return isinstance(value, ForEach) or (isinstance(value, ConstructorCall) and value.name[0].isupper())
