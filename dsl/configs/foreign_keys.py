"""Keys of a configuration that change its layout, and that its architecture is not known to read.

A configuration may have any key. One that an engine's class of the model ignores must not make another layout, and no
rule for caches can say which class ignores what. A key counts without a doubt if the class of the configuration has it,
or if it changed the layout of a configuration of the same architecture, which an engine's caches were like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvplan.dsl.configs.class_defaults import TYPE
from kvplan.dsl.configs.families import nested

# What keys of element types end with. A connector adds some, and the config file says which ones engines heed.
ELEMENTS = "dtype"
# Before the names of keys that stand outside the model that writes text.
OUTSIDE = "outside."
Config = Mapping[str, object]
# Names of keys, a set for each mapping of a configuration, the outermost first.
Names = tuple[frozenset[str], ...]


def names_of(chain: Sequence[Config], asked: frozenset[str], own: Sequence[frozenset[str]]) -> Names:
    """The keys of each mapping of a configuration that are `asked` for and that its class does not have.

    `own` are the keys of classes, also of those whose mapping is not given: the last one is of the model that writes
    text. Element types are left out. A configuration that names no class (`model_type`) has none: nothing says what is
    read of it.
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
    """The names that are not `known` and without which another layout would be `stored`, ascending."""
    strange = tuple(own - known for own in names)
    every = sorted(frozenset().union(*strange))
    if not every or stored(without(config, inside, strange)) == (whole := stored(config)):
        return
    only = {name: tuple(own & {name} for own in strange) for name in every}
    alone = [name for name in every if stored(without(config, inside, only[name])) != whole]
    yield from alone or every


def contradicted(config: Config, inside: tuple[str, ...], stored: Callable[[Config], object]) -> Iterator[str]:
    """The keys that two mappings say differently, and that make another layout if the outer one counts; ascending."""
    chain = nested(config, inside)
    every = sorted({key for n, inner in enumerate(chain) for key in inner if _differs(key, inner, chain[:n])})

    def outer(keys: Sequence[str]) -> object:
        return stored(without(config, inside, (frozenset(), *(frozenset(keys) for _ in chain[1:]))))

    if every and outer(every) != (whole := stored(config)):
        yield from [key for key in every if outer([key]) != whole] or every


def _differs(key: str, inner: Config, outside: Sequence[Config]) -> bool:
    """Whether a mapping says something else of a key than those around it; which class it has is for each to say."""
    value, others = inner[key], [mapping[key] for mapping in outside if mapping.get(key) is not None]
    return key != TYPE and value is not None and any(other != value for other in others)


def without(config: Config, inside: Sequence[str], names: Names) -> Config:
    """A configuration without these keys."""
    dropped = {name.removeprefix(OUTSIDE) for name in names[0]}
    kept = {key: value for key, value in config.items() if key not in dropped}
    key = next((key for key in inside if isinstance(config.get(key), Mapping)), "")
    inner = config.get(key)
    return {**kept, key: without(inner, inside, names[1:])} if isinstance(inner, Mapping) and names[1:] else kept
