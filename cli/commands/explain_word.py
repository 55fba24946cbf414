"""`explain` of a word: the glossary's line, and each parameter, axis, option, value and key of that name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvplan.cli import on_call
from kvplan.cli.codes import families, words
from kvplan.cli.commands.explain_layouts import flat, param_lines, plain_param, wrapped
from kvplan.dsl.json_schema import FILES
from kvplan.dsl.schema.forms import FormKey, forms_in
from kvplan.dsl.text.diagnostics import listed
from kvplan.dsl.text.grouped import grouped

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.engine import Engine
    from kvplan.dsl.schema.kind import Kind, KindVariant, Param

# A meaning in a few words, and the lines that explain it.
_Meaning = tuple[str, list[str]]


def explain_word(found: Library, word: str) -> dict[str, Any]:
    """All meanings of a word, the glossary's first. Empty if it has none."""
    in_glossary = next((known for known in words() if known.casefold() == word.casefold()), "")
    if in_glossary:
        more = also(found, word)
        return {"code": in_glossary, "title": words()[in_glossary], **({"text": more} if more else {})}
    title, text = _in_files(found, word)
    return {"code": word, "title": title, "text": text} if title else {}


def also(found: Library, word: str) -> str:
    """The meanings of a word in layout files, to add to another meaning; empty if it has none."""
    title, text = _in_files(found, word)
    return f"Also {title}.\n{text}" if title else ""


def _in_files(found: Library, word: str) -> tuple[str, str]:
    """The meanings of a name in layout files: in a few words, and in lines."""
    meanings = list(_meanings(found, word))
    lines = [line for _, of in meanings for line in ("", *of)]
    return "; ".join(title for title, _ in meanings), "\n".join(lines)


def names_in_files(found: Library) -> set[str]:
    """The names of all parameters and axes of kinds and options of engines, all keys of layout files and connectors."""
    params = {name for kind in found.kinds.values() for name in (*kind.params, *_axes_of(kind))}
    options = {name for engine in found.engines.values() for name in engine.options}
    return {
        *params,
        *options,
        *on_call.connector_keys(),
        *(key.name for form in forms_in(*FILES.values()) for key in form.keys),
    }


def _meanings(found: Library, word: str) -> Iterator[_Meaning]:
    kinds = [kind for kind in found.kinds.values() if word in kind.params]
    if kinds:
        params = [(f"{word} of {kind.name}", plain_param(kind.params[word], kind.doc_ref), kind) for kind in kinds]
        lines = [line for name, param, kind in params for line in ("", *param_lines(name, param, kind.doc_ref))]
        yield f"a parameter of {listed([kind.name for kind in kinds], 'and')}", lines[1:]
    axes = [(kind, _axes_of(kind)[word]) for kind in found.kinds.values() if word in _axes_of(kind)]
    if axes:
        yield f"an axis of {listed([kind.name for kind, _ in axes], 'and')}", [_axis_line(*axis) for axis in axes]
    yield from _options(found, word)
    if (told := on_call.connector_keys().get(word)) is not None:
        default, meaning = told
        where = families()["I"].text.splitlines()[0]
        yield (
            "a key of a connector",
            [*wrapped(f"{word}, by default {default}", 2, 6), *wrapped(meaning, 6), f"      {where}"],
        )
    yield from _keys(word)


def _axes_of(kind: Kind) -> dict[str, str]:
    """The number of items on each axis of a kind's tensors, as its file has it; without the axis of tokens."""
    records: list[Kind | KindVariant] = [*kind.variants, kind]
    tensors = (tensor for record in records for tensor in record.tensors.values())
    return {axis: flat(items) for tensor in tensors for axis, items in tensor.axes if items}


def _axis_line(kind: Kind, items: str) -> str:
    """`  KIND: head_dim (channels of a head)`"""
    docs = [kind.params[name].doc for name in re.findall(r"\w+", items) if name in kind.params]
    return f"  {kind.name}: {items}" + (f" ({'; '.join(docs)})" if docs else "")


def _options(found: Library, word: str) -> Iterator[_Meaning]:
    """Options with that name or value, as the default engine has them, or else the first engine that does."""
    named: dict[str, list[Engine]] = {}
    for engine in sorted(found.engines.values(), key=lambda engine: engine.name != found.default_engine):
        for option in _options_named(engine, word):
            named.setdefault(option.name, []).append(engine)
    for name, engines in named.items():
        option, ref = engines[0].options[name], engines[0].doc_ref
        what = "an" if name == word else f"a value of {name}, an"
        title = f"{what} option of {listed([engine.name for engine in engines], 'and')}"
        yield title, [*param_lines(name, plain_param(option, ref), ref), *_letters(engines[0], option, word)]


def _letters(engine: Engine, option: Param, word: str) -> list[str]:
    """The lines of an engine's legend about a value of an option: the word itself, and each letter if all are there."""
    value = option.aliases.get(word, word)
    known = [letter for letter in value if letter in engine.legend]
    asked = [*({value} & {*engine.legend}), *(known if len(known) == len(value) else [])]
    return [line for one in asked for line in wrapped(f"{one}: {engine.legend[one]}", 6, 8)]


def _options_named(engine: Engine, word: str) -> list[Param]:
    """The options of an engine that have this name, or a value or alias of this name."""
    return [option for option in engine.options.values() if word in (option.name, *option.values, *option.aliases)]


def _keys(word: str) -> Iterator[_Meaning]:
    """Keys of layout files with that name; equal keys of several forms are one."""
    owned = ((key, form.what) for form in forms_in(*FILES.values()) for key in form.keys if key.name == word)
    for same in grouped(((key.doc, key.required), (key, owner)) for key, owner in owned).values():
        owner = listed([owner for _, owner in same], "and")
        yield f"a key of {owner}", _key_lines(same[0][0], f"{word} of {owner}")


def _key_lines(key: FormKey, name: str) -> list[str]:
    """The lines that explain a key, and the keys of the mapping in it."""
    inner = next((form for form in forms_in(key.shape) if form.what not in _FILE_NAMES), None)
    more = [line for each in (inner.keys if inner else ()) for line in wrapped(f"{each.name}: {each.doc}", 6, 8)]
    head = f"{name}, {'required' if key.required else 'optional'}"
    return [*wrapped(head, 2, 6), *wrapped(key.doc, 6), *(["      its keys:", *more] if more else [])]


_FILE_NAMES = {form.what for form in FILES.values()}
