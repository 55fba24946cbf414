"""Every dump from an engine's own code: the shipped layout says the same, and so does one written from the dump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.paths import FIXTURES
from tests.shares import later

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.dumps.compare import compare, side_text
from kvplan.compiler.dumps.dump import Dump, read_dump
from kvplan.compiler.dumps.to_model import recognised
from kvplan.compiler.errors import BadInput
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.configs.write_model import ModelHead, model_text
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.source import SourceSpan

DUMPS = sorted((FIXTURES / "dumps").glob("*.json"))
HERE = SourceSpan("dump", 1, 1, 1)
STAGES = [path for path in DUMPS if json.loads(path.read_text())["mesh"]["pp"] > 1]
over_all = pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
WHOLE = [path for path in DUMPS if path not in STAGES]
over_whole = pytest.mark.parametrize("path", [*WHOLE[::2], *later(WHOLE[1::2])], ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def library() -> Library:
    return load((), ())


def written(library: Library, dump: Dump) -> Model:
    found = recognised(dump, library.engine(dump.engine), library.kinds)
    return parsed(library, model_text(ModelHead("written", "written", {}), found, library.kinds), "written", HERE)


def test_there_are_dumps_of_every_sort() -> None:
    assert len(DUMPS) >= 40
    read = [json.loads(path.read_text()) for path in DUMPS]
    assert len({one["model"]["layout"] for one in read}) >= 14
    assert {one["side"]["order"] for one in read} >= {"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"}
    assert {one["mesh"]["tp"] for one in read} >= {1, 2, 4, 8, 16}
    assert {one["mesh"]["pp"] for one in read} >= {1, 2, 3, 4}
    assert {one["rank"]["pp"] for one in read} >= {0, 1, 2, 3}
    assert {one["side"].get("draft_tokens") for one in read} >= {None, "1", "2"}
    assert {one["side"].get("state_step") for one in read} == {None, "64"}
    assert {one["side"].get("kv_dtype") for one in read} >= {None, "fp8", "fp8_ds_mla", "int8_per_token_head"}
    assert max(path.stat().st_size for path in DUMPS) < 60_000


@over_all
def test_the_layout_says_what_the_engine_allocates(library: Library, path: Path) -> None:
    dump = read_dump(path.read_text())
    side = bind(library, library.model(dump.layout), side_text(dump, library.engine(dump.engine), ""))
    assert compare(dump, side) == ()


@over_whole
def test_a_layout_written_from_a_dump_says_the_same(library: Library, path: Path) -> None:
    dump = read_dump(path.read_text())
    side = bind(library, written(library, dump), side_text(dump, library.engine(dump.engine), ""))
    assert compare(dump, side) == ()


@pytest.mark.parametrize("path", STAGES, ids=lambda path: path.stem)
def test_no_model_is_written_from_one_stage(library: Library, path: Path) -> None:
    with pytest.raises(BadInput, match="one stage of") as caught:
        written(library, read_dump(path.read_text()))
    assert caught.value.code == "D014"


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("deepseek-v3__pp2_stage1_draft1_built", 61),
        ("deepseek-v3.2__tp1_draft1_built_fp8_ds_mla", 61),
        ("qwen3-next-80b__tp2_draft2_built", 48),
        ("mimo-v2-flash__tp2_draft1_built", 48),
    ],
)
def test_drafts_are_in_the_dumps(library: Library, name: str, layer: int) -> None:
    dump = read_dump(next(path for path in DUMPS if path.stem == name).read_text())
    assert [one for one in dump.layers if one.layer == layer]
    side = bind(library, library.model(dump.layout), side_text(dump, library.engine(dump.engine), "draft_tokens=0"))
    assert compare(dump, side)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("qwen3-next-80b__tp1", (544, 544)),
        ("qwen3-next-80b__tp1_prefix_caching", (576, 576)),
        ("qwen3.5-35b__tp1_prefix_caching", (1088, 1088)),
        ("qwen3.5-27b__tp1", (784, 784)),
        ("qwen3.5-35b__tp1", (1056, 1056)),
        ("nemotron-3-nano-30b__tp1_fp8_sizes", (261 * 16, 16)),
        ("nemotron-3-nano-30b__tp4_fp8_sizes", (131 * 16, 16)),
    ],
)
def test_published_blocks_are_in_the_dumps(name: str, blocks: tuple[int, int]) -> None:
    path = next(path for path in DUMPS if path.stem == name)
    found = {(group.tokens, group.kernel) for group in read_dump(path.read_text()).groups if group.store == "tokens"}
    assert found == {blocks}
