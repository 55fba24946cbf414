"""One fact, several spellings: each gives the same layout, two that contradict each other are named, none is hidden."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.shares import later

from kvplan.cli.main import main
from kvplan.dsl.configs.new_model import NewModel, made
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY = load()
Config = Mapping[str, object]
LATENT: Config = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16",
    "num_hidden_layers": 78, "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 64,
    "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
}  # fmt: skip
OWN = (0, 1, 2, *range(6, 78, 4))
TYPES = ["full" if layer in OWN else "shared" for layer in range(78)]
PATTERN = "".join("F" if layer in OWN else "S" for layer in range(78))
INDEXERS: Mapping[str, Config] = {
    "types": {"indexer_types": TYPES},
    "period": {"index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": None},
    "pattern": {"index_topk_pattern": PATTERN},
    "list": {"index_topk_pattern": TYPES},
    "published": {
        "indexer_types": TYPES, "index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": None,
        "index_share_for_mtp_iteration": True, "indexer_rope_interleave": True,
    },
}  # fmt: skip
TOGETHER = list(itertools.combinations(INDEXERS, 2))


def new(tmp_path: Path, config: Config) -> NewModel:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return made(LIBRARY, tmp_path / "config.json", None)


def layers(answer: NewModel, cache: str) -> tuple[int, ...]:
    found = parsed(LIBRARY, answer.text, answer.name, SourceSpan("x", 1, 1, 1)).caches
    return found[cache].layers if cache in found else ()


@pytest.mark.parametrize("spelling", INDEXERS)
def test_each_spelling_of_indexers_gives_the_same_layers(tmp_path: Path, spelling: str) -> None:
    answer = new(tmp_path, {**LATENT, **INDEXERS[spelling]})
    latents = layers(answer, "attention"), layers(answer, "attention-2")
    assert (len(OWN), layers(answer, "indexer"), latents) == (21, OWN, (OWN, tuple(set(range(78)) - set(OWN))))
    assert (unlike_pattern(answer.doubts), answer.same) == ([], ())


def unlike_pattern(doubts: Iterable[str]) -> list[str]:
    """The doubts but one: no engine was asked for a configuration with a pattern."""
    return [doubt for doubt in doubts if not doubt.startswith("`index_topk_pattern` changes the layout")]


@pytest.mark.parametrize(("one", "other"), [*TOGETHER[::2], *later(TOGETHER[1::2])])
def test_spellings_that_agree_may_stand_together(tmp_path: Path, one: str, other: str) -> None:
    answer = new(tmp_path, {**LATENT, **{k: v for k, v in (*INDEXERS[one].items(), *INDEXERS[other].items()) if v}})
    assert (layers(answer, "indexer"), unlike_pattern(answer.doubts)) == (OWN, [])


@pytest.mark.parametrize(
    "config", [{}, {"index_topk_freq": 1}, {"index_skip_topk_offset": 3}, {"indexer_types": ["full"] * 78}]
)
def test_every_layer_has_an_indexer_where_none_shares(tmp_path: Path, config: Config) -> None:
    answer = new(tmp_path, {**LATENT, **config})
    assert (layers(answer, "indexer"), answer.same, answer.doubts) == (tuple(range(78)), ("glm-5",), ())


def test_an_offset_that_is_left_out_is_two(tmp_path: Path) -> None:
    assert layers(new(tmp_path, {**LATENT, "index_topk_freq": 4}), "indexer") == (0, *range(1, 78, 4))


@pytest.mark.parametrize(
    ("config", "doubt"),
    [
        (
            {**INDEXERS["pattern"], "indexer_types": [*TYPES[:5], "full", *TYPES[6:]]},
            "layer 5: indexer_types says full, index_topk_pattern says shared: the first is used",
        ),
        (
            {**INDEXERS["types"], "index_topk_freq": 4, "index_topk_pattern": PATTERN[:77] + "F"},
            "layer 77: indexer_types says shared, index_topk_pattern and index_topk_freq say full: the first is used",
        ),
        ({"index_topk_cadence": 4}, "`index_topk_cadence` was not read: see in the model's code what it does"),
        ({"indexer_every": 4}, "`indexer_every` was not read: see in the model's code what it does"),
        (
            {"index_topk_pattern": PATTERN[:77] + "X"},
            "layer 77: 'X' is not known of an indexer, which is 'full' or 'shared': it is read as shared",
        ),
    ],
)
def test_what_is_not_sure_of_indexers_is_named_and_matches_no_model(tmp_path: Path, config: Config, doubt: str) -> None:
    answer = new(tmp_path, {**LATENT, **config})
    assert (doubt in answer.doubts, answer.same) == (True, ())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"index_topk_freq": 0}, "indexer_is: division by zero"),
        ({"index_topk_pattern": PATTERN[:70]}, "indexer_is: index_topk_pattern has only 70 entries"),
    ],
)
def test_a_default_does_not_replace_what_cannot_be_worked_out(tmp_path: Path, config: Config, reason: str) -> None:
    with pytest.raises(DslError, match=f"F007(.|\n)*{reason}"):
        new(tmp_path, {**LATENT, **config})


def test_doctor_takes_no_shipped_layout_for_what_it_did_not_read(tmp_path: Path) -> None:
    for config in ({"index_topk_freq": 4}, {"index_topk_cadence": 4}):
        (tmp_path / "config.json").write_text(json.dumps({**LATENT, **config}))
        words = ["doctor", str(tmp_path / "config.json"), "--engine", "vllm", "--tp", "8", "--format", "json"]
        told = json.loads(CliRunner().invoke(main, words).stdout)["model"]
        assert (told["file"], told["same_as"]) == (None, [])


ATTENTION: Config = {
    "architectures": ["LlamaForCausalLM"], "dtype": "float16", "num_hidden_layers": 8, "hidden_size": 1024,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
SLIDING: Mapping[str, Config] = {
    "types": {"layer_types": [*["sliding_attention"] * 3, "full_attention"] * 2},
    "pattern": {"sliding_window_pattern": 4},
    "private": {"_sliding_window_pattern": 4},
    "letters": {"sliding_window_pattern": "LLLG"},
    "every": {"global_attn_every_n_layers": 4},
    "ones": {"hybrid_layer_pattern": [1, 1, 1, 0] * 2},
}


@pytest.mark.parametrize("spelling", SLIDING)
@pytest.mark.parametrize("window", ["sliding_window", "sliding_window_size"])
def test_each_spelling_of_windows_gives_the_same_layers(tmp_path: Path, spelling: str, window: str) -> None:
    answer = new(tmp_path, {**ATTENTION, **SLIDING[spelling], window: 128})
    assert (layers(answer, "attention"), layers(answer, "sliding")) == ((3, 7), (0, 1, 2, 4, 5, 6))
    assert ("window: 128" in answer.text, answer.doubts) == (True, ())


def test_letters_that_nobody_knows_are_named(tmp_path: Path) -> None:
    answer = new(tmp_path, {**ATTENTION, "sliding_window_pattern": "LLLX", "sliding_window": 128})
    assert answer.doubts == ("layers 3, 7: nothing is known to be stored by 'X' of sliding_window_pattern",)


def less(config: Config, *keys: str, **more: object) -> Config:
    return {key: value for key, value in config.items() if key not in keys} | more


@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        (less(ATTENTION, "num_key_value_heads", num_query_groups=4), (4, 64)),
        (less(ATTENTION, "head_dim", attention_hidden_size=2048), (4, 128)),
        (less(ATTENTION, "head_dim", attention_head_dim=32), (4, 32)),
    ],
)
def test_numbers_in_other_words(tmp_path: Path, config: Config, numbers: tuple[int, int]) -> None:
    answer = new(tmp_path, config)
    assert (f"heads: {numbers[0]}  #" in answer.text, f"dim: {numbers[1]}  #" in answer.text) == (True, True)
    assert answer.doubts == ()


def test_chunks_by_an_interval(tmp_path: Path) -> None:
    answer = new(tmp_path, {**ATTENTION, "attention_chunk_size": 64, "no_rope_layer_interval": 4})
    assert (layers(answer, "attention"), layers(answer, "local"), answer.doubts) == ((3, 7), (0, 1, 2, 4, 5, 6), ())
