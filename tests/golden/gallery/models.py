"""The page of a model file: its models, their caches with numbers, blocks, pages, notes and what to try."""

from __future__ import annotations

from tests.golden.gallery.numbers import Numbers, numbers, totals
from tests.golden.gallery.sides import Run, blocks, legal, pages, runs
from tests.golden.gallery.text import ROOT, block, code, count, exact, page, said, size, spans, table

from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import variant
from kvplan.dsl.library import Library
from kvplan.dsl.schema.model import Model
from kvplan.plan.types import CONTEXT

PER = {"state": "a state", "tokens": "a token", "ring": "a token"}
CACHES = ("cache", "kind", "layers", "parameters", "needs", "stored if", "bytes of a layer", "of all layers")


def families(library: Library) -> dict[str, list[str]]:
    """The stem of every model file -> its models, in the file's order."""
    found: dict[str, list[str]] = {}
    for name in library.models:
        found.setdefault(library.paths["model"][name].stem, []).append(name)
    return {stem: [*library.family(stem)] or names for stem, names in sorted(found.items())}


def model_page(library: Library, stem: str, names: list[str], left_out: list[str]) -> str:
    """One page for one file."""
    root = open_document(library.paths["model"][names[0]]).root
    models = [library.model(name) for name in names]
    kinds = dict.fromkeys(cache.kind for model in models for cache in model.caches.values())
    links = ", ".join(f"[{library.kind(kind).title}](../kinds/{kind}.md)" for kind in kinds)
    file = f"[layouts/models/{stem}.yaml]({ROOT}/layouts/models/{stem}.yaml)"
    head = [f"# {said(root, 'title')}", "", f"{file} · {links}"]
    drawn: dict[str, str] = {}
    sections = [section for model in models for section in _model(library, model, len(models) > 1, drawn)]
    missing = ["## Left out", "", *left_out] if left_out else []
    return page(head, [said(root, "doc")] if said(root, "doc") else [], *sections, missing)


def _model(library: Library, model: Model, several: bool, drawn: dict[str, str]) -> list[list[str]]:
    """The sections of one model; pages that were drawn before on this page are not drawn again."""
    level, found, sides = "###" if several else "##", numbers(library, model), runs(library, model)
    root = open_document(library.paths["model"][model.name]).root
    own = said(variant(root, model.name), "doc")
    return [
        [f"## {model.title}"] if several else [],
        [_facts(model, said(variant(root, model.name), "match"))],
        [own] if own and own != said(root, "doc") else [],
        [f"{level} Caches"], table(CACHES, [_cache(each) for each in found]), [_totals(model, found)],
        [f"{level} Blocks"], blocks(sides),
        *_pages(level, model, sides, drawn),
        *_notes(level, model),
        [f"{level} Try"], _try(model, legal(sides)),
    ]  # fmt: skip


def _facts(model: Model, match: str) -> str:
    words = [count(model.layers, "layer"), *([count(model.drafts, "draft layer")] if model.drafts else [])]
    words += [f"{value:,} {name.replace('_', ' ')}" for name, value in model.values.items() if isinstance(value, int)]
    words += [str(value) for value in model.values.values() if isinstance(value, str)]
    known = [f"known by {match}"] if match else []
    link = [f"<{model.doc_ref}>"] if model.doc_ref else []
    return " · ".join([code(model.name), ", ".join(words), *known, *link])


def _cache(found: Numbers) -> tuple[object, ...]:
    cache, limits = found.cache, [f"{name} {value:,}" for name, value in found.needs.items()]
    when = [code(cache.when.text)] if cache.when else []
    optional = ["may be missing on one side"] if cache.optional else []
    needs = "all of it" if found.kind.store == "state" else ", ".join(limits) or "all tokens"
    length = f", of the {found.kind.length}" if found.kind.length != CONTEXT else ""
    params = ", ".join(f"{name} {expr.text.strip(chr(39))}" for name, expr in cache.params.items())
    whole = f"{size(found.moved)} a request" if found.kind.store == "state" else f"{size(found.moved)} per 1,024 tokens"
    return (
        cache.name, f"[{cache.kind}](../kinds/{cache.kind}.md)", f"{len(cache.layers)}: {spans(cache.layers)}", params,
        needs + length, "; ".join(when + optional), f"{exact(found.row)} {PER[found.kind.store]}", whole,
    )  # fmt: skip


def _totals(model: Model, found: list[Numbers]) -> str:
    tokens, states = totals(found)
    lengths = {each.kind.length for each in found if each.kind.length != CONTEXT}
    own = f" and 1,024 of its {' and '.join(sorted(lengths))}" if lengths else ""
    per = [f"**{size(tokens)}** ({tokens:,} bytes) for its first 1,024 tokens{own}"] if tokens else []
    per += [f"**{size(states)}** ({states:,} bytes) of states"] if states else []
    drafts = ", draft layers aside" if model.drafts else ""
    return f"A request needs {' and '.join(per)}{drafts}."


def _pages(level: str, model: Model, sides: list[Run], drawn: dict[str, str]) -> list[list[str]]:
    """The pages of the first side that is legal, each drawn where it comes first; `drawn` is drawing -> model."""
    found = next((run for run in sides if run.side), None)
    if found is None or found.side is None:
        return []
    sections, before = list[list[str]](), list[str]()
    for title, drawing in pages(found.side):
        first = drawn.setdefault("\n".join([title, *drawing]), model.name)
        if first == model.name:
            sections.append(block([title, *(f"  {line}" for line in drawing)]))
        else:
            before.append(f"- {title}: as of {code(first)}")
    return [[f"{level} Pages of a worker, {code(found.text)}"], before, *sections]


def _notes(level: str, model: Model) -> list[list[str]]:
    lines = [f"- {f'{code(about)}: ' if about else ''}{note}" for about, note in model.notes]
    return [[f"{level} Sources, and what is not confirmed"], lines] if lines else []


def _try(model: Model, sides: list[str]) -> list[str]:
    """Commands with the smallest and the largest side that are legal."""
    first, last = (sides[0], sides[-1]) if sides else ("engine=custom", "engine=custom,tp=2")
    pair = f"--prefill {last} --decode {first}"
    return block([f"kvplan explain {model.name} {pair}", f"kvplan compile {model.name} {pair}"], "sh")
