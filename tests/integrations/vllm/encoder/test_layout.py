"""The layout of a pool: found among those that are shipped, made of what the engine says, or the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.compiler.errors import CompileError
from kvplan.integrations.shared.config import read_config
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.vllm.encoder.layout import PLACE, EncoderFacts, EncoderLayout, encoder_layout

SHIPPED = EncoderFacts(2048, 4, "bfloat16", "processor", "weights")
OTHER = EncoderFacts(24, 1, "float16", "processor", "weights")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def found(facts: EncoderFacts, **given: Any) -> EncoderLayout:
    return encoder_layout(read_config(given, {}, place=PLACE), facts)


def test_a_shipped_layout_is_found() -> None:
    layout = found(SHIPPED)
    assert (layout.model, layout.side.key) == ("qwen3-vl-2b-encoder", "engine=encoder-pool,tp=1")
    assert (layout.block_bytes, layout.pool.block_rows) == (64 * 4 * 2048 * 2, 64)


def test_a_layout_is_made_of_what_the_engine_says() -> None:
    layout = found(OTHER)
    assert layout.model == "encoder-1x24-f16"
    assert layout.block_bytes == 64 * 24 * 2
    assert layout.model_digest == found(replace(OTHER, processor="another")).model_digest
    assert layout.model_digest != found(replace(OTHER, dtype="float32")).model_digest


def test_with_a_plans_directory_a_layout_has_to_be_there(tmp_path: Path) -> None:
    assert found(SHIPPED, plans=str(tmp_path)).cache is None
    with pytest.raises(ConnectorError, match="1 x 24 f16") as error:
        found(OTHER, plans=str(tmp_path))
    assert error.value.code == "I004"


def test_options_say_how_the_pool_is_cut() -> None:
    assert found(OTHER, options={"block": 16}).pool.block_rows == 16


def test_the_users_layout_may_know_better_than_a_configuration() -> None:
    assert found(SHIPPED).width == 4 * 2048
    assert found(SHIPPED, layout="qwen3-vl-32b-encoder").width == 4 * 5120


def test_other_elements_than_the_files_are_another_side() -> None:
    layout = found(replace(SHIPPED, dtype="float16"), layout="qwen3-vl-2b-encoder")
    assert layout.side.key == "engine=encoder-pool,tp=1,kv_dtype=f16"
    assert layout.side.digest != found(SHIPPED).side.digest


@pytest.mark.parametrize(
    ("given", "code"),
    [({"options": {"tp": 2}}, "I002"), ({"options": {"rows": 2}}, "S005"), ({"layout": "llama-3.1-8b"}, "C121")],
)
def test_what_makes_no_pool_is_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(CompileError) as error:
        found(SHIPPED, **given)
    assert error.value.code == code
