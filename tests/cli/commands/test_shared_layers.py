"""Layers that read another layer's cache: said once, by `new` and by hand, and asked for by engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main

CONFIG = {
    "architectures": ["NimbusForCausalLM"], "model_type": "nimbus", "hidden_size": 4096, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 2048,
    "sliding_window_pattern": 5, "num_kv_shared_layers": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
BY_HAND = """kvplan: 1
model: by-hand
title: By hand
dtype: bf16
query_heads: 32
layers: 40
no_cache: {{{why}: layer >= 36}}
caches:
  full:    {{kind: gqa, layers: layer % 5 == 4 and layer < 36, heads: 8, dim: 128}}
  sliding: {{kind: gqa, layers: layer % 5 != 4 and layer < 36, heads: 8, dim: 128, window: 2048}}
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "by-hand.yaml").write_text(BY_HAND.format(why="shared"))
    return tmp_path / "config.json"


@pytest.mark.parametrize("share", [{"num_kv_shared_layers": 4}, {"use_cla": True, "cla_share_factor": 2}])
def test_an_engine_that_allocates_for_shared_layers_refuses_them_whoever_wrote_the_file(
    config: Path, share: dict[str, object]
) -> None:
    """A hand file without a number of its kind compiled, and the one of `new` was refused."""
    own = {key: value for key, value in CONFIG.items() if key != "num_kv_shared_layers"}
    config.write_text(json.dumps({**own, **share}))
    assert run("new", config, "-o", config.parent / "mine.yaml", "--accept-doubts").exit_code == 0
    for name in ("mine", "by-hand"):
        done = run("explain", config.parent / f"{name}.yaml", "--decode", "engine=sglang,tp=4")
        assert (done.exit_code, "layers that read another layer's cache" in done.output) == (3, True)
        assert run("explain", config.parent / f"{name}.yaml", "--decode", "tp=4").exit_code == 0


def test_the_file_says_which_layers_share_and_by_which_key(config: Path) -> None:
    text = run("new", config, "--accept-doubts").stdout
    assert "no_cache:\n  shared: layer >= 36  # num_kv_shared_layers\n" in text
    assert "    layers: layer % 5 != 4 and layer < 36  # num_kv_shared_layers, sliding_window_pattern\n" in text


def test_doctor_names_shared_layers_that_a_file_calls_something_else(config: Path) -> None:
    path = config.parent / "by-hand.yaml"
    assert "no_cache.shared" not in run("doctor", config, "--layout", path, "--no-machine").output
    path.write_text(BY_HAND.replace("no_cache: {{{why}: layer >= 36}}\n", "").format())
    assert (
        "4 of 40 layers store nothing, and no_cache does not list them: 36-39"
        in (run("doctor", config, "--layout", path, "--no-machine").output.partition("THE LAYOUT IS IN DOUBT")[2])
    )
    path.write_text(BY_HAND.format(why="mlp"))
    said = run("doctor", config, "--layout", path, "--no-machine")
    assert said.exit_code == 4
    assert "no_cache.shared: 36-39 in " in said.output
    assert "(num_hidden_layers and num_kv_shared_layers), no layers in by-hand" in said.output
