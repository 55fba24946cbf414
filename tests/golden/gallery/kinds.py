"""The page of a kind: parameters, tensors, formulas, engines, storage expressions with their pages, models."""

from __future__ import annotations

from collections.abc import Mapping

from tests.golden.gallery.bytes import example_sections, formula_section
from tests.golden.gallery.engines import NONE, Use, use
from tests.golden.gallery.numbers import Numbers, numbers, unconfirmed
from tests.golden.gallery.pages import Subject, storage_sections
from tests.golden.gallery.text import ROOT, code, codes, count, default_first, exact, page, said, table

from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import notes
from kvplan.dsl.lang.nodes import Expr, Text
from kvplan.dsl.library import Library
from kvplan.dsl.schema.kind import Kind, KindVariant, TensorSpec
from kvplan.plan.types import CONTEXT

TENSORS = ("tensor", "axes", "element", "if", "shared out")
# By library, which they keep, and name.
SUBJECTS: dict[tuple[int, str], Subject] = {}
PER = {"state": "state", "tokens": "token", "ring": "token"}
STORES = {
    "tokens": "Grows with the context: rows per token, in blocks.",
    "ring": "A ring: the last tokens of a request, in blocks that are filled again and again.",
    "state": "A state: one slot per request, which is read whole.",
}


def kind_page(library: Library, name: str, left_out: list[str]) -> str:
    of, kind = subject(library, name), library.kind(name)
    root = open_document(library.paths["kind"][name]).root
    head = [f"# {kind.title}", "", f"{code(name)} · [layouts/kinds/{name}.yaml]({ROOT}/layouts/kinds/{name}.yaml)"]
    noted = [f"- {f'{code(about)}: ' if about else ''}{note}" for about, note in notes(root)]
    return page(
        head, [kind.doc] if kind.doc else [], [f"{STORES[kind.store]} {_needs(kind)}".strip()],
        *([[f"<{said(root, 'doc-ref')}>"]] if said(root, "doc-ref") else []),
        ["## Parameters"], _params(kind),
        ["## Tensors"], _tensors(kind.tensors), *[section for each in kind.variants for section in _variant(each)],
        [f"## Bytes of a {PER[kind.store]} and layer, without padding"], formula_section(of), *example_sections(of),
        ["## Engines"], table(("engine", "stores it as", "or, with options"), [_engine(each) for each in of.uses]),
        *storage_sections(of),
        *([["## Notes"], noted] if noted else []),
        *([["## Left out"], left_out] if left_out else []),
        ["## Models"], _models(of) or ["No shipped model has such a cache."],
    )  # fmt: skip


def subject(library: Library, name: str) -> Subject:
    """What a kind's page is made of, gathered once."""
    key = id(library), name
    if key not in SUBJECTS:
        SUBJECTS[key] = _subject(library, name)
    return SUBJECTS[key]


def _subject(library: Library, name: str) -> Subject:
    kind, engines = library.kind(name), default_first(library)
    return Subject(library, kind, engines, [use(engine, kind) for engine in engines], _caches(library, name))


def _caches(library: Library, kind: str) -> list[tuple[str, Numbers]]:
    """The caches of this kind, those of confirmed models with fewest caches first."""
    models = [library.model(name) for name in library.models]
    of = [model for model in models if any(cache.kind == kind for cache in model.caches.values())]
    ordered = sorted(of, key=lambda model: (unconfirmed(model), len(model.caches), model.name))
    return [(model.name, each) for model in ordered for each in numbers(library, model) if each.cache.kind == kind]


def _needs(kind: Kind) -> str:
    """What a reader must have, as far as it is not everything; and whose tokens they are."""
    limits = ", ".join(f"{name}: {expr.text}" for name, expr in kind.needs.limits) if kind.needs else ""
    said = [f"A reader needs the tokens within {code(limits)}; 0 is no limit."] if limits else []
    said += [f"It keeps {code(kind.ring.text)} tokens."] if kind.ring else []
    own = f"The tokens are those of length {code(kind.length)}, which a request gives by itself."
    return " ".join(said + ([own] if kind.length != CONTEXT else []))


def _params(kind: Kind) -> list[str]:
    rows = [
        (code(p.name), p.type, _written(p.default) if p.default else "required", codes(p.values), p.doc)
        for p in kind.params.values()
    ]
    return table(("parameter", "type", "default", "values", "meaning"), rows)


def _tensors(tensors: Mapping[str, TensorSpec]) -> list[str]:
    return table(TENSORS, [_tensor(spec) for spec in tensors.values()])


def _variant(each: KindVariant) -> list[list[str]]:
    """A record that is stored otherwise: where, and its tensors."""
    where = f"Where {code(' '.join(each.when.text.split()))}{f': {each.doc}' if each.doc else ''}."
    return [[f"### {each.name}"], [where], _tensors(each.tensors)]


def _tensor(spec: TensorSpec) -> tuple[object, ...]:
    token = f"token (a row per {code(spec.tokens_per_row.text)})" if spec.tokens_per_row else "token"
    axes = ", ".join(f"{name} {code(expr.text)}" if expr else token for name, expr in spec.axes)
    split = ", ".join(f"{axis} over {mesh}" for axis, mesh in spec.split.items()) or "every worker has all"
    return code(spec.name), axes, _written(spec.dtype), code(spec.when.text) if spec.when else "", split


def _written(expr: Expr) -> str:
    """An expression as it is written; a word without its quotes."""
    return code(expr.tree.value if isinstance(expr.tree, Text) else expr.text)


def _engine(found: Use) -> tuple[object, ...]:
    if found.refused or not found.choices:
        return code(found.engine.name), f"not at all: {found.refused or NONE}", ""
    default = [name for name, options in found.choices.items() if not options]
    others = [f"{code(name)} ({code(options)})" for name, options in found.choices.items() if options]
    free = [f"any by its name ({code(f'{found.free}=NAME')})"] if found.free else []
    return code(found.engine.name), codes(default) or "nothing by default", ", ".join(others + free)


def _models(of: Subject) -> list[str]:
    rows = [
        (f"[{model}](../models/{of.stem(model)}.md)", found.cache.name, count(len(found.cache.layers), "layer"),
         ", ".join(f"{name} {expr.text.strip(chr(39))}" for name, expr in found.cache.params.items()), exact(found.row))
        for model, found in sorted(of.caches, key=lambda item: item[0])
    ]  # fmt: skip
    return table(("model", "cache", "layers", "parameters", f"bytes of a {PER[of.kind.store]} and layer"), rows)
