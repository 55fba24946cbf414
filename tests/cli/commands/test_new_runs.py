"""kvplan new: layers that a model runs several times, windows that are counted otherwise, heads under other keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.dsl.configs.new_model import made
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.library import load
from kvplan.dsl.schema.model import Cache
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY = load()
PLAIN = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "dtype": "bfloat16",
    "head_dim": 64,
}
SLIDING = {**PLAIN, "num_key_value_heads": 2, "sliding_window": 64}


def caches(tmp_path: Path, config: dict[str, object]) -> dict[str, Cache]:
    (tmp_path / "config.json").write_text(json.dumps(config))
    new = made(LIBRARY, tmp_path / "config.json")
    assert [doubt for doubt in new.doubts if "`architectures` is missing" not in doubt] == []
    return dict(parsed(LIBRARY, new.text, new.name, SourceSpan("x", 1, 1, 1)).caches)


def numbers(cache: Cache) -> dict[str, str]:
    return {name: expr.text for name, expr in cache.params.items()}


def test_every_run_of_a_stack_has_its_cache(tmp_path: Path) -> None:
    looped = {
        "model_type": "hrm_text",
        "num_layers_per_stack": 16,
        "H_cycles": 2,
        "L_cycles": 3,
        "num_hidden_layers": 128,
    }
    found = caches(tmp_path, {**PLAIN, **looped})
    assert list(found) == ["attention", *(f"attention-{n}" for n in range(2, 9))]
    assert all(cache.layers == tuple(range(16)) for cache in found.values())


def test_later_runs_may_have_a_window(tmp_path: Path) -> None:
    found = caches(tmp_path, {**PLAIN, "model_type": "iquestloopcoder", "loop_num": 3, "loop_window_size": 32})
    assert {name: numbers(cache).get("window") for name, cache in found.items()} == {
        "attention": None, "sliding": "32", "sliding-2": "32"
    }  # fmt: skip


def test_runs_of_some_layers(tmp_path: Path) -> None:
    middle = {
        "n_input_layers": 1,
        "n_recurrent_layers": 2,
        "n_recurrent_loops": 2,
        "recurrent_kv_cache_mode": "per_loop",
    }
    found = caches(tmp_path, {**PLAIN, **middle})
    assert {name: cache.layers for name, cache in found.items()} == {
        "attention": (0, 3), "attention-2": (1, 2), "attention-3": (1, 2)
    }  # fmt: skip


@pytest.mark.parametrize("runs", [0, 101, True])
def test_no_layer_runs_so_often(tmp_path: Path, runs: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**PLAIN, "loop_num": runs, "loop_window_size": 8}))
    with pytest.raises(DslError, match=r"runs of a layer, not 1 to 100"):
        made(LIBRARY, tmp_path / "config.json")


@pytest.mark.parametrize(
    ("more", "window"),
    [
        ({"model_type": "cohere2", "sliding_window_pattern": 4}, "65"),
        ({"model_type": "cohere2_moe", "sliding_window_pattern": 4}, "65"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 4}, "64"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 4, "use_bidirectional_attention": True}, "33"),
    ],
)
def test_windows_are_counted_as_the_model_counts_them(tmp_path: Path, more: dict[str, object], window: str) -> None:
    found = caches(tmp_path, {**SLIDING, **more})
    assert (numbers(found["sliding"])["window"], found["sliding"].layers) == (window, (0, 1, 2))


@pytest.mark.parametrize("key", ["sliding_window", "interleaved_sliding_window"])
def test_a_window_for_each_layer(tmp_path: Path, key: str) -> None:
    given = {**PLAIN, "model_type": "plamo3", "sliding_window_pattern": 2, key: [32, None, 48, None]}
    found = caches(tmp_path, given)
    assert {name: (cache.layers, numbers(cache).get("window")) for name, cache in found.items()} == {
        "sliding": ((0,), "32"), "attention": ((1, 3), None), "sliding-2": ((2,), "48")
    }  # fmt: skip


def test_keys_and_values_of_different_sizes_and_sinks_that_belong_to_no_request(tmp_path: Path) -> None:
    pangu = {"qk_nope_dim": 128, "qk_rope_dim": 64, "v_channels": 128, "param_sink_number": 128}
    found = caches(tmp_path, {**PLAIN, **pangu, "head_dim": None, "num_key_value_heads": 2})
    assert numbers(found["attention"]) == {"heads": "2", "dim": "192", "dim_v": "128"}
