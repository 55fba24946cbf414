"""Functions on foreign values: those in a checkpoint's configuration or an engine's dump, which may be anything.

A list is a tuple, a mapping a Mapping, null None; a value that cannot be used at all is an UnusableValue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Call, Name, Node
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, fault
from kvplan.dsl.text.source import SourceSpan

Worth = Callable[[Node, Mapping[str, object]], object]
ASSUMES = "assumed"
# Says in every env of foreign values whether assumed(x) has a value. No name of an expression has brackets.
ASSUMING = "assumed()"
ABSENT = ("E005", "E026")


@dataclass(frozen=True, slots=True)
class UnusableValue:
    """A value that no expression can use, and the error for one that does. `named`: `reason` has the name already."""

    code: str
    reason: str
    named: bool = False


class WrongTypeError(DslError):
    """The value of `node` has another type than expected (T001)."""

    def __init__(self, node: Node, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.node = node

    def replaced(self, *diagnostics: Diagnostic) -> WrongTypeError:
        return WrongTypeError(self.node, *diagnostics)


def mistyped(node: Node, expected: str, value: object, help: str = "") -> WrongTypeError:
    """The error for a node whose value is not what is `expected`, such as 'a number'."""
    return WrongTypeError(node, Diagnostic("T001", f"expected {expected}, not {described(value)}", node.span, (), help))


def absent(error: DslError) -> bool:
    """Whether an expression has no value because something that it asks for is missing or null."""
    return all(d.code in ABSENT for d in error.diagnostics)


def usable(value: object, name: str, span: SourceSpan) -> object:
    """The value itself. Raises DslError if it is null (E026), or unusable (with the code that the value has)."""
    if value is None:
        raise fault("E026", f"{name} is null", span)
    if isinstance(value, UnusableValue):
        raise fault(value.code, value.reason if value.named else f"{name}: {value.reason}", span)
    return value


def call(node: Call, env: Mapping[str, object], worth: Worth) -> object:
    """The result of a foreign function. Raises DslError: E026 missing, T001 wrong type, B007 no such entry."""
    match node.function:
        case "has":
            return all(_try(arg, env, worth) is not None for arg in node.args)
        case "first" | "agreed":
            return _first(node, env, worth)
        case "at":
            return _at(node, env, worth)
        case "number":
            return _whole(node, env, worth)
        case "list":
            return _list(node, env, worth)
        case "letters":
            value = worth(node.args[0], env)
            return tuple(value) if isinstance(value, str) else value
        case "len":
            return len(_several(node.args[0], env, worth))
        case "count":
            return sum(_matches(node, env, worth))
        case "place":
            return _place(node, env, worth)
        case _:
            return _assumed(node, env, worth)


def among(node: Call, env: Mapping[str, object], worth: Worth) -> bool:
    """Whether the first value is one of the others. Raises the DslErrors of its arguments."""
    item = worth(node.args[0], env)
    return any(same(item, worth(other, env)) for other in node.args[1:])


def same(value: object, other: object) -> bool:
    """Whether two values are equal and of one type: 1 differs from true and from '1'."""
    return alike(value, other) and value == other


def alike(value: object, other: object) -> bool:
    """Whether two values are of one type. A YamlScalar counts as a str."""
    return isinstance(other, str) if isinstance(value, str) else type(value) is type(other)


def described(value: object) -> str:
    """A foreign value as words for a sentence."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text '{value}'"
    if isinstance(value, float):
        return f"the fraction {value}" + (f" (write {value:.0f})" if value.is_integer() else "")
    if isinstance(value, tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else "a set of sizes"


def _first(node: Call, env: Mapping[str, object], worth: Worth) -> object:
    for arg in node.args[:-1]:
        if (value := _try(arg, env, worth)) is not None:
            return value
    return worth(node.args[-1], env)


def _try(node: Node, env: Mapping[str, object], worth: Worth) -> object:
    """The value of a node, None if it is absent. Raises DslError if it is present but cannot be used."""
    if isinstance(node, Name) and node.id not in env:
        return None  # the most frequent case, without a search for the nearest name
    try:
        return worth(node, env)
    except DslError as error:
        if absent(error):
            return None
        raise


def _assumed(node: Call, env: Mapping[str, object], worth: Worth) -> object:
    if not env.get(ASSUMING):
        raise fault("E026", "nothing says it", node.span)
    return worth(node.args[0], env)


def _place(node: Call, env: Mapping[str, object], worth: Worth) -> int:
    matches = _matches(node, env, worth)
    if True not in matches:
        raise fault("E026", "no entry is that", node.span)
    return matches.index(True)


def _matches(node: Call, env: Mapping[str, object], worth: Worth) -> list[bool]:
    """Whether each entry of a list equals the item. Raises T001 for a number among words, or a word among numbers."""
    entries, item = _several(node.args[0], env, worth), worth(node.args[1], env)
    if (other := next((e for e in entries if e is not None and not alike(e, item)), None)) is not None:
        raise mistyped(node.args[0], f"entries such as {described(item)}", other)
    return [same(item, entry) for entry in entries]


def _whole(node: Call, env: Mapping[str, object], worth: Worth) -> int:
    value = worth(node.args[0], env)
    if isinstance(value, bool) or not isinstance(value, int):
        raise fault("E026", "it is no whole number", node.span)
    return value


def _list(node: Call, env: Mapping[str, object], worth: Worth) -> tuple[object, ...]:
    value = worth(node.args[0], env)
    if not isinstance(value, tuple):
        raise fault("E026", "it is no list", node.span)
    return value


def _several(node: Node, env: Mapping[str, object], worth: Worth) -> tuple[object, ...] | Mapping[str, object]:
    value = worth(node, env)
    if isinstance(value, tuple | Mapping):
        return value
    raise mistyped(node, "a list or a mapping", value)


def _at(node: Call, env: Mapping[str, object], worth: Worth) -> object:
    entries, index = _several(node.args[0], env, worth), worth(node.args[1], env)
    if isinstance(entries, Mapping):
        return usable(_entry(entries, index, node), f"'{index}'", node.span)
    if isinstance(index, bool) or not isinstance(index, int):
        raise fault("T001", "an entry of a list is named by its number", node.args[1].span)
    if not 0 <= index < len(entries):
        few = f"{_called(node.args[0])} has only {len(entries)} entries"
        raise fault("B007", f"there is no entry {index}" if index < 0 else few, node.span)
    return usable(entries[index], f"entry {index}", node.span)


def _called(node: Node) -> str:
    while isinstance(node, Call) and node.function in ("letters", "list"):
        node = node.args[0]
    return node.id if isinstance(node, Name) else "the list"


def _entry(entries: Mapping[str, object], index: object, node: Call) -> object:
    """An entry of a mapping, None if it is missing. A number finds a decimal key, even one with leading zeros."""
    if isinstance(index, str):
        return entries.get(index)
    if isinstance(index, bool) or not isinstance(index, int):
        raise fault("T001", "an entry of a mapping is named by a word or a number", node.args[1].span)
    return next((value for key, value in entries.items() if _number(key) == index), None)


def _number(key: str) -> int | None:
    return int(key) if key.isdecimal() and len(key) < 20 else None
