"""The first page of the gallery: all models, kinds and engines, what is not confirmed and what is left out."""

from __future__ import annotations

from collections.abc import Mapping

from tests.golden.gallery.engines import NONE, use
from tests.golden.gallery.left_out import ALL
from tests.golden.gallery.models import families
from tests.golden.gallery.numbers import Numbers, numbers, totals, unconfirmed
from tests.golden.gallery.sides import tps
from tests.golden.gallery.text import NOBODY, code, default_first, page, said, size, table

from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import notes
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.model import Model

INTRO = """\
What the shipped layout files describe, one page for every cache kind and every model file. All of it is generated
from the files (`make goldens`): the numbers are those that plans are compiled from."""
MODELS = """\
What a request needs for its first 1,024 tokens, and of states, draft layers aside, with the options of `{engine}` as
they are by default; and on how many workers (tp), up to 16, that engine can run the model. A star: some numbers are
not confirmed, and the model's page says which."""


def index_page(library: Library, left_out: Mapping[str, list[str]]) -> str:
    found, engines = families(library), default_first(library)
    intro = MODELS.format(engine=library.default_engine)
    rows = [row for stem, names in found.items() for row in _family(library, stem, names)]
    return page(
        ["# Gallery"], [INTRO],
        ["## Models"], [intro],
        table(("file", "model", "layers", "caches", "1,024 tokens", "states", "tp"), rows),
        ["## Kinds"], table(("kind", "title", "stores", "models"), [_kind(library, name) for name in library.kinds]),
        ["## Engines"], *[section for engine in engines for section in _engine(library, engine)],
        ["## Left out, and why"], *_left_out(library, left_out),
    )  # fmt: skip


def _family(library: Library, stem: str, names: list[str]) -> list[tuple[object, ...]]:
    rows = [_model(library, library.model(name)) for name in names]
    return [(f"[{stem}](models/{stem}.md)" if not number else "″", *row) for number, row in enumerate(rows)]


def _model(library: Library, model: Model) -> tuple[object, ...]:
    found = numbers(library, model)
    caches = ", ".join(_cache(each) for each in found if each.stored)
    tokens, states = (size(total) if total else NOBODY for total in totals(found))
    star = " \\*" if unconfirmed(model) else ""
    link = f"[{model.title}]({model.doc_ref})" if model.doc_ref else model.title
    return f"{code(model.name)} {link}{star}", model.layers, caches, tokens, states, tps(library, model)


def _cache(found: Numbers) -> str:
    """`52 gqa (window 1,024)`."""
    limits = ", ".join(f"{name} {value:,}" for name, value in found.needs.items())
    return f"{len(found.cache.layers)} {found.kind.name}{f' ({limits})' if limits else ''}"


def _kind(library: Library, name: str) -> tuple[object, ...]:
    kind = library.kind(name)
    every = (library.model(model) for model in library.models)
    used = sum(any(cache.kind == name for cache in model.caches.values()) for model in every)
    return f"[{name}](kinds/{name}.md)", kind.title, kind.store, used or NOBODY


def _engine(library: Library, engine: Engine) -> list[list[str]]:
    path = library.paths["engine"][engine.name]
    root = open_document(path).root
    first = " · the default" if engine.name == library.default_engine else ""
    link = f" · <{engine.doc_ref}>" if engine.doc_ref else ""
    uses = {kind: use(engine, library.kind(kind)) for kind in library.kinds}
    refused = [(kind, found.refused or ("" if found.choices else NONE)) for kind, found in uses.items()]
    noted = [f"- {code(about)}: {note}" for about, note in notes(root)]
    noted += [f"- [{kind}](kinds/{kind}.md): {why}" for kind, why in refused if why]
    return [
        [f"### {engine.title}"],
        [f"{code(engine.name)} {engine.versions}".strip()
         + f"{first} · [layouts/engines/{path.name}](../../layouts/engines/{path.name}){link}"],
        [said(root, "doc")] if said(root, "doc") else [],
        noted,
    ]  # fmt: skip


def _left_out(library: Library, found: Mapping[str, list[str]]) -> list[list[str]]:
    """What is left out of everything, then by page."""
    sections = [found.get(ALL, [])]
    for heading, lines in found.items():
        sort, _, name = heading.partition(" ")
        if sort in ("kind", "model"):
            sections += [[f"### [{name}]({sort}s/{name}.md)"], lines]
        elif heading != ALL:
            sections += [[f"### {name}"], lines]
    return sections
