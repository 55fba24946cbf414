"""Find keys of a configuration that may be about caches, but that no rule asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kvplan.dsl.files.rule_check import LAYER, RUN
from kvplan.dsl.lang.nodes import Expr, Node, Text, every
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.schema.kind import Rule

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

# Ratios (difflib) from which a key counts as a misspelling of another one, or may be meant by it.
NEARLY, MEANT = 0.92, 0.9
Words = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class KeysAsked:
    """The keys that were asked for, and the quoted words, which name entries of mappings.

    `missing` are asked keys of several words that the configuration lacks: it may spell them a little differently.
    """

    keys: frozenset[str]
    entries: frozenset[str]
    missing: frozenset[str]


def asked_keys(reading: ConfigRules, rules: Iterable[Rule]) -> frozenset[str]:
    """The keys that these rules ask for, and the keys that are always asked for."""
    return _asked(reading, tuple(rules), frozenset()).keys


def unread(
    chain: tuple[Mapping[str, object], ...],
    reading: ConfigRules,
    rules: Iterable[Rule],
    apart: Iterable[frozenset[str]],
) -> dict[str, str]:
    """The unread keys that may be about caches (entries as `key.entry`), each with a missing key of similar spelling.

    `rules` are the rules that were applied. `apart` are, for each mapping of the chain, keys that its class has for
    something else.
    """
    asked = _asked(reading, tuple(rules), frozenset(key for mapping in chain for key in mapping))
    own = ({key: value for key, value in m.items() if key not in keys} for m, keys in zip(chain, apart, strict=True))
    paths = (path for mapping in own for path in _unread(mapping, reading, asked, True, ""))
    return {path: "".join(get_close_matches(path.lower(), asked.missing, 1, MEANT)) for path in paths}


def unheard(chain: tuple[Mapping[str, object], ...], reading: ConfigRules, read: frozenset[str]) -> tuple[str, ...]:
    """The keys that no rule reads for any model, and that no list names: only the model's code says what they mean."""
    known = (*reading.no_effect, *reading.common)
    given = dict.fromkeys(key for mapping in chain for key, value in mapping.items() if says(value))
    return tuple(
        key
        for key in given
        if key not in read and key not in reading.inside and not suspect(key, reading) and not like(key.lower(), known)
    )


def keys_read(library: Library, own: ConfigRules | None = None) -> frozenset[str]:
    """The keys that rules for caches read, by the general rules, or by a model's `own` if they are given."""
    reading = own or library.general
    table, _ = _resolved(reading.words)
    rules = [*reading.caches, *(rule for kind in library.kinds.values() for rule in kind.match)]
    names = {*reading.always, *table, *(name for rule in rules for name in (*rule.names, *rule.covers))}
    return frozenset(key for name in names for key in table.get(name, {name})) - {LAYER, RUN}


def names_in(own: ConfigRules) -> frozenset[str]:
    """The names that rules for words and caches ask for."""
    return frozenset().union(*(rule.names for rule in own.caches), *(expr.names for _, expr in own.words))


def families(reading: ConfigRules, rules: Iterable[Rule]) -> frozenset[str]:
    """The families of all keys that rules for caches read: other keys of such a family may count, too."""
    table, _ = _resolved(reading.words)
    names = {name for rule in rules for name in (*rule.names, *rule.covers)}
    return frozenset(family(key, reading) for name in names for key in table.get(name, {name})) - {""}


def family(key: str, reading: ConfigRules) -> str:
    """The first word of a key; empty if it is a plain one."""
    word = key.lower().strip("_").partition("_")[0]
    return "" if word in reading.plain else word


def suspect(key: str, reading: ConfigRules) -> bool:
    """Whether a key may be about caches, by its family or its looks. A `*` in `no_effect` hides no key of a family."""
    word = key.lower()
    if family(key, reading) in reading.families:
        return word not in reading.no_effect
    return like(word, reading.about) and not like(word, reading.no_effect)


def _unread(
    mapping: Mapping[str, object], reading: ConfigRules, asked: KeysAsked, outer: bool, path: str
) -> Iterator[str]:
    for key, value in mapping.items():
        read, here = key in (asked.keys if outer else asked.entries), f"{path}{key}"
        if key.isdecimal() and isinstance(value, Mapping):
            yield from _unread(value, reading, asked, False, path)
        elif read and isinstance(value, Mapping):
            yield from _unread(value, reading, asked, False, f"{here}.")
        elif not read and (not outer or key not in reading.inside) and says(value):
            yield from (here,) if suspect(key, reading) or (outer and _resembles(key, asked.missing, reading)) else ()


def _resembles(key: str, missing: frozenset[str], reading: ConfigRules) -> bool:
    """Whether a key contains all words of a missing one, or is spelled almost like one."""
    word = key.lower()
    if like(word, reading.no_effect):
        return False
    return any(f"_{name}_" in f"_{word}_" for name in missing) or bool(get_close_matches(word, missing, 1, NEARLY))


def says(value: object) -> bool:
    """Whether a value may say something about caches: it is not off, null or empty, and no fraction."""
    if isinstance(value, float) or value is None or value is False:
        return False
    if isinstance(value, tuple):
        return any(says(entry) for entry in value)
    return not isinstance(value, str | Mapping) or len(value) > 0


def like(word: str, patterns: tuple[str, ...]) -> bool:
    """Whether a key in lower case matches one of the patterns."""
    return any(fnmatchcase(word, pattern) for pattern in patterns)


def _asked(reading: ConfigRules, rules: tuple[Rule, ...], given: frozenset[str]) -> KeysAsked:
    """The keys that the rules ask for, and the words that are always asked for."""
    table, texts = _resolved(reading.words)
    named = {*reading.match, *reading.always}.union(*(rule.names for rule in rules))
    keys = frozenset(key for name in named for key in table.get(name, {name}))
    covered = frozenset(key for rule in rules for key in rule.covers)
    quoted = {text for rule in rules for expr in rule.exprs for text in _quoted(expr.tree)}
    missing = frozenset(key for key in keys - given if "_" in key.strip("_"))
    return KeysAsked(
        keys | covered, frozenset(quoted | covered | {t for name in named for t in texts.get(name, ())}), missing
    )


def _resolved(words: Words) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """For each word the keys that it depends on, through other words too, and the quoted words in it."""
    table: dict[str, frozenset[str]] = {}
    texts: dict[str, frozenset[str]] = {}
    for word, expr in words:
        used = expr.names
        keys = frozenset(key for name in used for key in table.get(name, {name}))
        inner = frozenset(text for name in used for text in texts.get(name, ()))
        table[word], texts[word] = keys, inner | frozenset(_quoted(expr.tree))
    return table, texts


def _quoted(tree: Node) -> list[str]:
    return [node.value for node in every(tree) if isinstance(node, Text) and isinstance(node.value, str)]
