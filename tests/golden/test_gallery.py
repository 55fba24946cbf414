"""docs/gallery is what the layout files make of it, and what it says is what the compiler does."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path

import pytest
from tests.golden.gallery.engines import default_env, rule_of, storages, use
from tests.golden.gallery.formula import choices, formula, recorded
from tests.golden.gallery.kinds import subject
from tests.golden.gallery.left_out import ALL, SOURCE, left_out
from tests.golden.gallery.models import families
from tests.golden.gallery.numbers import numbers, totals
from tests.golden.gallery.search import runnable, settings
from tests.golden.gallery.storage import BLOCKS, LAYERS, WORDS
from tests.golden.gallery.text import size as size_of
from tests.golden.gallery.text import spans, table
from tests.golden.gallery.write import GALLERY, gallery, write
from tests.paths import FIXTURES

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import CompileError, Refused
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Storage
from kvplan.dsl.lang.storage import parse_items
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.model import Model
from kvplan.plan.types import Planes, View

KINDS = sorted(load().kinds)
LINK = re.compile(r"\]\(([^)#]+)\)")
BAR = re.compile(r"(?<!\\)\|")


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


@pytest.fixture(scope="module")
def pages(library: Library) -> dict[str, str]:
    return gallery(library)


def test_pages_are_fresh(pages: dict[str, str]) -> None:
    found = {path.relative_to(GALLERY).as_posix(): path.read_text() for path in GALLERY.rglob("*.md")}
    assert sorted(found) == sorted(pages), "make goldens"
    assert [name for name in pages if found[name] != pages[name]] == [], "make goldens, and read the diff"


def test_every_model_and_kind_has_its_place(library: Library, pages: dict[str, str]) -> None:
    for name in library.models:
        assert f"`{name}`" in pages["README.md"]
        assert f"kvplan compile {name} " in pages[f"models/{library.paths['model'][name].stem}.md"]
    assert {f"kinds/{name}.md" for name in library.kinds} == {name for name in pages if name.startswith("kinds/")}


def test_every_model_that_people_run_is_named(pages: dict[str, str]) -> None:
    """Linked, or told among what is left out."""
    known = json.loads((FIXTURES / "models.json").read_text())
    assert len(known) >= 45
    assert [model["hf_id"] for model in known if model["hf_id"] not in pages["README.md"]] == []


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    links = [(name, link) for name, text in pages.items() for link in LINK.findall(text) if "://" not in link]
    missing = [(n, link) for n, link in links if not (GALLERY / n).parent.joinpath(link).resolve().exists()]
    assert len(links) > len(pages)
    assert missing == []


def test_rows_have_the_cells_of_their_heads(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for rows in re.findall(r"(?:^\| .*\|$\n)+", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
            assert len({len(BAR.findall(row)) for row in rows.splitlines()}) == 1, (name, rows)


def test_what_is_left_out_is_of_something(library: Library) -> None:
    known = {ALL, *(f"kind {name}" for name in library.kinds), *(f"model {stem}" for stem in families(library))}
    known |= {f"engine {name}" for name in library.engines}
    assert set(left_out(SOURCE.read_text())) <= known


@pytest.mark.parametrize("name", KINDS)
def test_formulas_are_the_bytes_of_pages(library: Library, name: str) -> None:
    """The bytes of all views of all planes, in every record and storage expression."""
    of, kind = subject(library, name), library.kind(name)
    for chosen, storage in product(choices(kind), of.storages):
        record = recorded(kind, chosen)
        form = record.storage.get(storage, of.storages[storage])
        side = of.staged(form, chosen)
        if side is None:
            continue
        cache, planes = side.caches[0], plan_side(placed(side)).workers[0].planes
        held = sum(volume(view) * copies(plane) for plane in planes for view in plane.views)
        per = worth(formula(kind, cache.env))
        assert held == per * LAYERS * max(cache.tokens, 1), (chosen, storage)


def worth(formula: str) -> Fraction:
    """The exact value of a formula in which every name has its number."""
    assert not set(formula) - set("0123456789+-*/() ")
    return Fraction(eval(re.sub(r"\d+", r"Fraction(\g<0>)", formula), {"Fraction": Fraction}))


def volume(view: View) -> int:
    return size(view.dtype) * prod(count for _, count, _ in view.axes)


def copies(plane: Planes) -> int:
    return prod(len(indices) for _, indices, _ in plane.loops)


@pytest.mark.parametrize("name", KINDS)
def test_nests_that_are_shown_make_the_pages_that_are_shown(library: Library, name: str) -> None:
    of = subject(library, name)
    for made in filter(None, (of.drawn(storage, of.record) for storage in of.storages.values())):
        again = of.drawn(reparsed(made.nest), of.record)
        assert again is not None
        assert (again.pages, again.nest) == (made.pages, made.nest)


def reparsed(nest: tuple[str, ...]) -> Storage:
    span = parse_expr("0").span
    named = [text.partition(": ") for text in nest]
    parts = tuple((name if text else None, parse_items(text or name, span, False)) for name, _, text in named)
    return Storage("shown", parts, span)


@pytest.mark.parametrize("name", KINDS)
def test_options_choose_the_storage_that_the_page_says(library: Library, name: str) -> None:
    """Unless the engine refuses the side for another reason."""
    of = subject(library, name)
    model = Model(name=name, title=name, layers=LAYERS, values=WORDS, caches={name: of.cache(of.record)})
    said = [(each.engine.name, options, chosen) for each in of.uses for chosen, options in each.choices.items()]
    tried = [(chosen, stored_as(library, model, f"engine={engine},{options}")) for engine, options, chosen in said]
    known = [(chosen, storage) for chosen, storage in tried if storage]
    assert known
    assert [chosen for chosen, _ in known] == [storage for _, storage in known]


def stored_as(library: Library, model: Model, side: str) -> str:
    for tokens in BLOCKS:
        try:
            return bind(library, model, f"{side.rstrip(',')},tokens={tokens}").caches[0].storage.name
        except Refused:
            continue
    return ""


def test_what_is_by_default_needs_no_options(library: Library) -> None:
    for kind, engine in product(library.kinds.values(), library.engines.values()):
        found, name = use(engine, kind), filled(rule_of(engine, kind), default_env(engine))
        expected = [name] if name in storages(engine, kind) and not found.refused else []
        assert [chosen for chosen, options in found.choices.items() if not options] == expected


def test_fewest_options_are_enough_and_fewer_are_not(library: Library) -> None:
    engine = library.engine(library.default_engine)
    found = {name: settings(library, library.model(name), engine) for name in library.models}
    needing = {name: options.split(",") for name, options in found.items() if options}
    assert needing
    for name, options in needing.items():
        assert runnable(library, library.model(name), ",".join(options))
        fewer = [[one for one in options if one != left_out] for left_out in options]
        assert not any(runnable(library, library.model(name), ",".join(some) or "tp=1") for some in fewer)


def test_commands_to_try_work(library: Library, pages: dict[str, str]) -> None:
    """Both sides of all of them; every sixth is compiled."""
    command = re.compile(r"^kvplan compile (\S+) --prefill (\S+) --decode (\S+)$", re.M)
    found = [told for _, text in sorted(pages.items()) for told in command.findall(text)]
    assert {name for name, _, _ in found} == set(library.models)
    assert all(runnable(library, library.model(name), side) for name, *sides in found for side in sides)
    for told in found[::6]:
        assert compile_pair(library, *told).proof.sentence


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([0, 1, 2, 5], "0–2, 5"), ([3, 7, 11, 15], "3, 7, … 15"), ([1, 3, 5], "1, 3, 5")],
)
def test_layers_are_told_shortly(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 27, "128 MiB"), (3 << 40, "3072 GiB")]
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert size_of(count) == text


def test_empty_columns_and_empty_tables_are_left_out() -> None:
    assert table(("a", "b"), []) == []
    assert table(("a", "b", "c"), [(1, "", "x|y"), (2, "", "")]) == [
        "| a | c |",
        "| --- | --- |",
        "| 1 | x\\|y |",
        "| 2 | – |",
    ]


def test_kinds_that_an_engine_refuses_are_refused(library: Library) -> None:
    refused = [(e, k) for e in library.engines for k in KINDS if use(library.engines[e], library.kind(k)).refused]
    of_kind = {c.kind: model for model in map(library.model, library.models) for c in model.caches.values()}
    for engine, model in [(engine, of_kind[kind]) for engine, kind in refused if kind in of_kind]:
        with pytest.raises(CompileError):
            bind(library, model, f"engine={engine}")
    assert refused


@pytest.mark.parametrize("stem", sorted(families(load())))
def test_requests_need_what_plans_move(library: Library, stem: str) -> None:
    """The first model of every file, in blocks that rows divide. A plan may bridge padding, and moves that, too."""
    model = library.model(families(library)[stem][0])
    sides = (f"engine={engine},block=256" for engine in ("custom", "encoder-pool"))
    side = next(side for side in sides if runnable(library, model, side))
    compiled = compile_pair(library, model.name, side, side)
    moved = {store: sum(m.bytes for m in compiled.facts.moves if m.store == store) for store in ("tokens", "state")}
    tokens, states = totals(numbers(library, model))
    planes = compiled.plan.decode.workers[0].planes
    padded = any(plane.page_bytes > sum(volume(view) for view in plane.views) for plane in planes)
    assert moved["state"] == states
    assert tokens < moved["tokens"] < tokens * 1.01 if padded else tokens == moved["tokens"]


def test_old_pages_go(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gone.md").write_text("x")
    write(tmp_path, {"README.md": "a\n", "models/here.md": "b\n"})
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.md")) == ["README.md", "models/here.md"]
