"""The storage expressions of a kind, each with its page and the engines that choose it, then its other records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.golden.gallery.engines import Use, storages
from tests.golden.gallery.formula import bytes_of, choices, recorded, settled
from tests.golden.gallery.numbers import Numbers
from tests.golden.gallery.storage import Drawn, drawn, example, staged
from tests.golden.gallery.text import block, code, codes

from kvplan.compiler.bound import BoundSide
from kvplan.dsl.lang.nodes import Storage
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Cache


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind with all that its page says: engines, and the caches of models that are of it, (model, numbers).

    `sides` keeps what was staged: pages and what is compared with them ask for the same.
    """

    library: Library
    kind: Kind
    engines: list[Engine]
    uses: list[Use]
    caches: list[tuple[str, Numbers]]
    sides: dict[object, BoundSide | None] = field(default_factory=dict)

    @property
    def storages(self) -> dict[str, Storage]:
        """The kind's storage expressions and those of engines of their own."""
        kind = recorded(self.kind, self.record)
        return {name: found for engine in self.engines for name, found in storages(engine, kind).items()}

    @property
    def record(self) -> dict[str, str]:
        """The words of the model that is the example, or the first that there are."""
        first = next(choices(self.kind))
        return {name: str(self.caches[0][1].env[name]) for name in first} if self.caches else first

    def stem(self, model: str) -> str:
        return self.library.paths["model"][model].stem

    def cache(self, chosen: Mapping[str, str]) -> Cache:
        """The cache that is drawn."""
        return example(self.kind, self.caches[0][1].cache if self.caches else None, chosen)

    def staged(self, storage: Storage, chosen: Mapping[str, str]) -> BoundSide | None:
        key = storage, *chosen.items()
        if key not in self.sides:
            kind = recorded(self.kind, chosen)
            self.sides[key] = staged(self.library, kind, storage, self.engines, self.cache(chosen))
        return self.sides[key]

    def drawn(self, storage: Storage, chosen: Mapping[str, str]) -> Drawn | None:
        return drawn(self.staged(storage, chosen))


def storage_sections(of: Subject) -> list[list[str]]:
    """Every storage expression with its page; those that come to the same page are one."""
    alike: dict[Drawn, list[str]] = {}
    homeless: list[str] = []
    for name, storage in of.storages.items():
        made = of.drawn(storage, of.record)
        alike.setdefault(made, []).append(name) if made else homeless.append(name)
    sections = [["## Storage expressions"], [_intro(of, next(iter(alike), None))]]
    for made, names in alike.items():
        sections += [[f"### {', '.join(names)}"], _users(of, names), block(made.nest), block(made.pages)]
    none = f"No place for the tensors of {codes(of.record.values())} in {codes(homeless)}."
    return [*sections, [none] if homeless else [], *_records(of)]


def _intro(of: Subject, made: Drawn | None) -> str:
    tokens = ", the smallest block that it takes" if made and made.tokens else ""
    tensors = f" with the tensors of {codes(of.record.values())}" if of.record else ""
    return f"Outermost first{tensors}. Drawn to scale: two layers, two items on every axis that is shared out{tokens}."


def _users(of: Subject, names: list[str]) -> list[str]:
    lines = [f"- {f'{code(name)}: ' if len(names) > 1 else ''}{who}" for name in names if (who := _who(of, name))]
    free = [f"{code(each.engine.name)} with {code(f'{each.free}={names[0]}')}" for each in of.uses if each.free]
    return lines or ([f"- only {', '.join(free)}"] if free else [])


def _who(of: Subject, name: str) -> str:
    """The engines that choose a storage expression, those that take any name left out."""
    chosen = [(each.engine.name, each.choices[name]) for each in of.uses if name in each.choices and not each.free]
    return ", ".join(f"{code(who)} {f'with {code(options)}' if options else 'by default'}" for who, options in chosen)


def _records(of: Subject) -> list[list[str]]:
    """One page of every record that has other tensors, in the storage expression that comes first."""
    seen, sections = [_existing(of.kind, of.record)], list[list[str]]()
    name = next((name for each in of.uses for name, options in each.choices.items() if not options), "")
    storage = of.storages.get(name, next(iter(of.storages.values())))
    for chosen in choices(of.kind):
        own = recorded(of.kind, chosen).storage
        made = of.drawn(own.get(name, storage), chosen) if _existing(of.kind, chosen) not in seen else None
        seen.append(_existing(of.kind, chosen))
        lacking = [known for known in of.kind.storage if known not in own]
        homeless = [f"No place in {codes(lacking)}."] if lacking else []
        head = f"### {', '.join(chosen.values())}"
        sections += [[head], block(made.nest), block(made.pages), homeless] if made else []
    return [[f"## Other records, as {code(storage.name)}"], *sections] if sections else []


def _existing(kind: Kind, chosen: Mapping[str, str]) -> list[str]:
    env = settled(kind, chosen)
    return [spec.name for spec in recorded(kind, chosen).tensors.values() if bytes_of(spec, env)]
