"""Find keys of a configuration that change its layout, although its architecture is not known to read them.

A configuration may have any key. An engine's model class may ignore some, and these must not change the layout; rules
for caches cannot know which. A key is not in doubt if the class of the configuration has it, or if it changed the
layout of another configuration of the same architecture, and that layout agreed with an engine's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvplan.dsl.configs.class_defaults import TYPE
from kvplan.dsl.configs.families import nested

# The suffix of keys for element types. Connectors add some, and the config file says which ones engines obey.
ELEMENTS = "dtype"
# The prefix of the names of keys outside the model that writes text.
OUTSIDE = "outside."
Config = Mapping[str, object]
# Names of keys, a set for each mapping of a configuration, the outermost first.
Names = tuple[frozenset[str], ...]


def names_of(chain: Sequence[Config], asked: frozenset[str], own: Sequence[frozenset[str]]) -> Names:
    """The keys of each mapping of a configuration that rules ask for (`asked`), and that its class does not have.

    `own` are the keys of classes, also of classes whose mapping is not given: the last is the model that writes text.
    Element types are left out. Without a class (`model_type`) the answer is empty, because nothing says which keys are
    read.
    """
    if not any(TYPE in mapping for mapping in chain):
        return ()
    last = len(own) - 1
    return tuple(
        frozenset(key if number == last else OUTSIDE + key for key in (_given(mapping) & asked) - own[number])
        for number, mapping in enumerate(chain)
    )


def _given(mapping: Config) -> frozenset[str]:
    return frozenset(key for key, value in mapping.items() if value is not None and not key.endswith(ELEMENTS))


def foreign(
    config: Config, inside: Sequence[str], names: Names, known: frozenset[str], stored: Callable[[Config], object]
) -> Iterator[str]:
    """The names, sorted, that are not `known`, and whose removal changes what is `stored`."""
    strange = tuple(own - known for own in names)
    every = sorted(frozenset().union(*strange))
    if not every or stored(without(config, inside, strange)) == (whole := stored(config)):
        return
    only = {name: tuple(own & {name} for own in strange) for name in every}
    alone = [name for name in every if stored(without(config, inside, only[name])) != whole]
    yield from alone or every


def contradicted(config: Config, inside: tuple[str, ...], stored: Callable[[Config], object]) -> Iterator[str]:
    """The keys, sorted, that differ between two mappings, and that change the layout if the outer value counts."""
    chain = nested(config, inside)
    every = sorted({key for n, inner in enumerate(chain) for key in inner if _differs(key, inner, chain[:n])})

    def outer(keys: Sequence[str]) -> object:
        return stored(without(config, inside, (frozenset(), *(frozenset(keys) for _ in chain[1:]))))

    if every and outer(every) != (whole := stored(config)):
        yield from [key for key in every if outer([key]) != whole] or every


def _differs(key: str, inner: Config, outside: Sequence[Config]) -> bool:
    """Whether a mapping has another value of a key than a mapping around it. Each mapping names its own class."""
    value, others = inner[key], [mapping[key] for mapping in outside if mapping.get(key) is not None]
    return key != TYPE and value is not None and any(other != value for other in others)


def without(config: Config, inside: Sequence[str], names: Names) -> Config:
    """The configuration without these keys."""
    dropped = {name.removeprefix(OUTSIDE) for name in names[0]}
    kept = {key: value for key, value in config.items() if key not in dropped}
    key = next((key for key in inside if isinstance(config.get(key), Mapping)), "")
    inner = config.get(key)
    return {**kept, key: without(inner, inside, names[1:])} if isinstance(inner, Mapping) and names[1:] else kept
