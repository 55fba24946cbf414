"""An engine that cannot store a cache: the pair is refused, the other pairs of a run are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import BadInput, Refused
from kvplan.dsl.library import load

TWO = "kvplan: 1\nkind: two\ntitle: A kind with one storage\nstore: tokens\ntensors:\n"
TWO += "  k: {axes: {token: ~, dim: 64}, dtype: dtype}\n  s: {axes: {token: ~}, dtype: f32, when: kv_dtype == 'fp8'}\n"
TWO += "storage:\n  mine: layer { block { token { k[dim] } } }\n  all: layer { block { token { k[dim] s } } }\n"
MODEL = "kvplan: 1\nmodel: ours\ntitle: Ours\ndtype: bf16\nquery_heads: 8\nlayers: 2\n"
MODEL += "caches:\n  some: {kind: two, layers: all}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(TWO)
    (tmp_path / "ours.yaml").write_text(MODEL)
    own = "own: {two: {LBHNC: 'layer { block { token { k[dim] } } }'}}"
    (tmp_path / "able.yaml").write_text(f"kvplan: 1\nengine: able\nextends: custom\ntitle: Able\n{own}\n")
    return tmp_path


def refused(folder: Path, side: str) -> Refused:
    library = load((), (folder,))
    with pytest.raises(Refused) as caught:
        bind(library, library.model("ours"), side)
    return caught.value


@pytest.mark.parametrize(
    ("engine", "option"), [("sglang", "place"), ("gaudi", ""), ("vllm", "order"), ("custom", "order")]
)
def test_cache_kind_engine_and_storages_are_named(folder: Path, engine: str, option: str) -> None:
    error = refused(folder, f"engine={engine}")
    assert error.code == "C121"
    assert error.message.startswith(f"engine '{engine}' cannot store cache 'some': kind 'two' has no storage '")
    other = f"give another {option}, or " if option else ""
    own = "in an engine's file name one for 'two' under `storage`, or add one under `own`"
    assert error.help == f"it has all and mine: {other}{own}"


def test_an_engine_with_one_of_its_own_can(folder: Path) -> None:
    library = load((), (folder,))
    (cache,) = bind(library, library.model("ours"), "engine=able").caches
    assert cache.storage.name == "LBHNC"
    (cache,) = bind(library, library.model("ours"), "engine=custom,order=mine").caches
    assert cache.storage.name == "mine"


def test_a_storage_without_a_place_is_refused(folder: Path) -> None:
    error = refused(folder, "engine=custom,order=mine,kv_dtype=fp8")
    assert (error.code, error.message) == ("C121", "storage 'mine' has no place for s of cache 'some'")


def test_a_storage_that_no_kind_has_is_a_mistake(folder: Path) -> None:
    library = load((), (folder,))
    with pytest.raises(BadInput, match="'custom' is asked for a storage 'mien', which no kind has") as caught:
        bind(library, library.model("ours"), "engine=custom,order=mien")
    assert (caught.value.code, caught.value.help) == ("S014", "did you mean 'mine'?")


def test_the_other_pairs_go_on(folder: Path) -> None:
    side = ["--prefill", "engine=sglang", "--decode", "tp=1", "--layouts", str(folder), "-o", str(folder / "plans")]
    result = CliRunner().invoke(main, ["compile", "ours", "qwen3-0.6b", *side])
    assert result.exit_code == 3
    assert "refused ours: engine=sglang -> tp=1" in result.output
    assert [path.parent.name for path in (folder / "plans").glob("*/*.py")] == ["qwen3_0_6b"]
