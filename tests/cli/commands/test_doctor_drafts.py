"""`kvplan doctor --layout` and draft layers: each wrong number, kind or condition of a draft is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.paths import FIXTURES, ROOT

from kvplan.cli.main import main
from kvplan.doctor.layout import CORRECT_DRAFT, NOT_ITS_DRAFT, OWN_DRAFT, UNCOMPARED

CONFIGS, MODELS = FIXTURES / "configs", ROOT / "layouts" / "models"
NUMBER, MISSING = "num_nextn_predict_layers", "missing"
COUNT = f"drafts: {{}} in config.json ({NUMBER}), {{}} in mine"
UNREAD = f"drafts: left out: {NUMBER}"


def doctor(config: str, layout: str, folder: Path, **changes: object) -> dict[str, Any]:
    """The answer of doctor about a layout, or keys after `extends:`, and a configuration with some keys changed."""
    keys = {**json.loads((CONFIGS / f"{config}.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({key: keys[key] for key in keys if keys[key] is not MISSING}))
    (folder / "mine.yaml").write_text(layout if "model:" in layout else f"kvplan: 1\nmodel: mine\nextends: {layout}\n")
    words = [str(folder / "config.json"), "--no-machine", "--layout", str(folder / "mine.yaml"), "--format", "json"]
    told: dict[str, Any] = json.loads(CliRunner().invoke(main, ["doctor", *words]).stdout)["model"]
    return {name: _short(told[name], folder) for name in ("doubts", "notes", "help")}


def answer(config: str, layout: str, *words: str) -> dict[str, Any]:
    """The answer of doctor about a layout and a configuration of the fixtures."""
    given = [str(CONFIGS / config), "--no-machine", "--layout", layout, *words, "--format", "json"]
    told: dict[str, Any] = json.loads(CliRunner().invoke(main, ["doctor", *given]).stdout)["model"]
    return told


def _short(value: Any, folder: Path) -> Any:
    """The answer without the path of its folder."""
    return json.loads(json.dumps(value).replace(f"{folder}/", ""))


@pytest.mark.parametrize(
    ("config", "more", "said", "doubts", "note"),
    [
        ("glm-4.5", "", 1, [], ""),
        ("glm-4.5", "", 0, [COUNT.format(0, 1)], ""),
        ("glm-4.5", "", 2, [COUNT.format(2, 1)], ""),
        ("glm-4.5", "drafts: 2", 1, [COUNT.format(1, 2)], ""),
        ("glm-4.5", "", None, [], UNCOMPARED),
        ("glm-4.5", "", MISSING, [], UNCOMPARED),
        ("glm-4.5", "", -1, [UNREAD], ""),
        ("glm-4.5", "", True, [UNREAD], ""),
        ("glm-4.5", "", "1", [UNREAD], ""),
        ("glm-4.5", "", 1.0, [UNREAD], ""),
        ("glm-4.5", "", [1], [UNREAD], ""),
        ("glm-4.5", "config: {words: {drafts: 0}}", 1, [], OWN_DRAFT),
        ("glm-4.5", "config: {words: {drafts: 0}}", 0, [], OWN_DRAFT),
        ("glm-4.5", "config: {words: {drafts: 0}}", MISSING, [], OWN_DRAFT),
        ("glm-4.5", "config: {words: {drafts: 2}}", MISSING, ["drafts: 2 as config.json is read, 1 in mine"], ""),
        ("qwen3-next-80b", "", MISSING, [], ""),
        ("qwen3-next-80b", "", 0, [COUNT.format(0, 1)], ""),
        ("kimi-k2", "drafts: 1", 0, [COUNT.format(0, 1), "1 of 1 draft layers stores nothing: 61 (W004)"], ""),
    ],
)
def test_a_number_of_draft_layers_is_compared_or_told(
    config: str, more: str, said: object, doubts: list[str], note: str, tmp_path: Path
) -> None:
    told = doctor(config, f"{config}\n{more}", tmp_path, **{NUMBER: said})
    assert [given[: len(doubt)] for given, doubt in zip(told["doubts"], doubts, strict=True)] == doubts
    assert [each for each in told["notes"] if each in (UNCOMPARED, OWN_DRAFT)] == ([note] if note else [])


def test_a_draft_that_another_config_has_contradicts_the_layout_without_rules(tmp_path: Path) -> None:
    """A shipped model with `drafts: 0` fits the configuration, too; its rule is not for other layouts."""
    told = doctor("kimi-k2", "deepseek-v3\nlayers: 61\nquery_heads: 64", tmp_path)
    assert COUNT.format(0, 1) in told["doubts"]


ATTENTION = "{kind: gqa, layers: drafts, heads: 2, dim: 256, when: draft_tokens > 0, optional: true}"
STATES = "{kind: gdn, layers: drafts, key_heads: 16, value_heads: 32, key_dim: 128, conv: 4, when: draft_tokens > 0}"
LATENT = "{kind: mla, layers: drafts, latent: 512, rope: 64, when: draft_tokens > 0}"


@pytest.mark.parametrize(
    ("draft", "doubts"),
    [
        (ATTENTION, []),
        (ATTENTION.replace("drafts", "[48]"), []),
        (ATTENTION.replace(", optional: true", ""), []),
        (ATTENTION.replace("heads: 2", "heads: 4"), ["heads of draft: 2 in "]),
        (ATTENTION.replace("dim: 256", "dim: 128"), ["dim of draft: 256 in "]),
        (ATTENTION.replace("dim: 256", "dim: 256, dim_v: 128"), ["dim_v of draft: 256 "]),
        (ATTENTION.replace("dim: 256", "dim: 256, window: 64"), ["window of draft: 0 as "]),
        (ATTENTION.replace("dim: 256", "dim: 256, needs: {window: 64}"), ["needs.window of draft: 0 as "]),
        (STATES, ["caches of kind gqa: 1 as ", "caches of kind gdn: 0 as "]),
        (LATENT, ["caches of kind gqa: 1 as ", "caches of kind mla: 0 as "]),
        (f"{ATTENTION}\n  more: {ATTENTION}", ["caches of kind gqa: 1 as "]),
        (f"{ATTENTION}\n  more: {STATES}", ["caches of kind gdn: 0 as "]),
    ],
)
def test_each_field_of_a_draft_layer_is_compared(draft: str, doubts: list[str], tmp_path: Path) -> None:
    """It happened: a draft of states passed, because other layers of the model keep states."""
    text = (MODELS / "qwen3-next-80b.yaml").read_text().replace("model: qwen3-next-80b", "model: mine")
    told = doctor("qwen3-next-80b", text.replace(ATTENTION, draft), tmp_path)
    found = [doubt.removeprefix("layer 48: ") for doubt in told["doubts"] if doubt.startswith("layer 48: ")]
    assert [given[: len(doubt)] for given, doubt in zip(found, doubts, strict=True)] == doubts


def test_what_to_do_about_a_wrong_draft_names_the_way_out_for_another_one(tmp_path: Path) -> None:
    """`kvplan new` writes no draft layers, so it does not help."""
    told = doctor("glm-4.5", "glm-4.5\ncaches: {draft: {heads: 4}}", tmp_path)
    assert told["help"] == f"{CORRECT_DRAFT}; {NOT_ITS_DRAFT}"
    rules = "match: {architectures: Glm4MoeForCausalLM}\nconfig: {words: {drafts: 0}}"
    told = doctor("glm-4.5", f"glm-4.5\n{rules}\ncaches: {{draft: {{heads: 4}}}}", tmp_path)
    assert (told["doubts"], told["notes"]) == ([], [OWN_DRAFT])


def test_a_draft_that_is_like_one_of_several_sorts_of_layers_is_noted(tmp_path: Path) -> None:
    """The configuration does not say whether the draft has the window that some layers have."""
    told = doctor("mimo-v2-flash", "mimo-v2-flash", tmp_path)
    assert told["doubts"] == []
    assert "layer 48: window of draft: 128 or 0 as config.json is read, 128 in mine" in told["notes"]


def test_draft_layers_are_compared_as_far_as_the_configuration_goes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    draft = "caches: {draft: {heads: 4, dim: 64}}\n"
    path.write_text(f"kvplan: 1\nmodel: mine\nextends: glm-4.5\ndrafts: 3\n{draft}")
    told = answer("glm-4.5.json", str(path))
    assert [doubt for doubt in told["doubts"] if doubt.startswith("drafts: 1 in ")]
    path.write_text(f"kvplan: 1\nmodel: mine\nextends: gpt-oss-20b-eagle3\n{draft}")
    told = answer("gpt-oss-20b.json", str(path))
    assert (told["doubts"], UNCOMPARED in told["notes"]) == ([], True)


@pytest.mark.parametrize(
    ("config", "extends", "draft", "doubt"),
    [
        ("glm-4.5", "glm-4.5", "draft: {heads: 4}", "layer 92: heads of draft: 8 in "),
        ("glm-4.5", "glm-4.5", "draft: {dim: 64}", "layer 92: dim of draft: 128 in "),
        ("glm-4.5", "glm-4.5", "draft: {window: 4096}", "layer 92: window of draft: 0 as "),
        ("deepseek-v4-flash", "deepseek-v4-flash", "draft: {window: 64}", "layer 43: window of draft: 128 in "),
        ("qwen3.5-27b", "qwen3.5-27b", "draft: {heads: 2}", "layer 64: heads of draft: 4 in "),
        ("glm-5", "glm-5", "draft-indexer: {dim: 64}", "layer 78: dim of draft-indexer: 128 in "),
        ("mimo-v2-flash", "mimo-v2-flash", "draft: {window: 64}", "layer 48: window of draft: 128 in "),
        ("qwen3-next-80b", "qwen3-next-80b", "draft: {heads: 4}", "layer 48: heads of draft: 2 in "),
        ("minimax-m3", "minimax-m3", "draft: {dim: 64}", "layer 60: dim of draft: 128 in "),
        ("deepseek-v3", "glm-4.5", "", "layers 0-61: caches of kind mla: 1 as "),
    ],
)
def test_draft_layers_store_what_a_layer_of_the_model_does(
    config: str, extends: str, draft: str, doubt: str, tmp_path: Path
) -> None:
    path, caches = tmp_path / "mine.yaml", f"caches: {{{draft}}}\n"
    other = "layers: 61\nquery_heads: 128\n" if config != extends else ""
    path.write_text(f"kvplan: 1\nmodel: mine\nextends: {extends}\n{other}{caches}")
    told = answer(f"{config}.json", str(path))
    assert [each for each in told["doubts"] if each.startswith(doubt)], told


def test_draft_layers_of_a_side_that_does_not_draft_are_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (MODELS / "glm-4.5.yaml").read_text().replace("model: glm-4.5", "model: mine")
    path.write_text(text.replace(", when: draft_tokens > 0, optional: true", ""))
    doubts = answer("glm-4.5.json", str(path))["doubts"]
    told = "cache 'draft' of draft layers has no `when`: sides that do not draft store it, too (W006)"
    assert doubts == [f"{told}: write when: draft_tokens > 0"]


@pytest.mark.parametrize(("drafting", "rules"), [(False, ""), (True, ""), (True, "config: {words: {drafts: 0}}\n")])
def test_a_draft_that_the_layout_lacks_is_in_doubt_on_a_side_that_drafts(
    drafting: bool, rules: str, tmp_path: Path
) -> None:
    """The engine may draft by n-grams, which rules can say."""
    path = tmp_path / "mine.yaml"
    text = (MODELS / "glm-4.5.yaml").read_text().replace("model: glm-4.5", "model: mine").replace("drafts: 1\n", "")
    path.write_text("".join(line for line in text.splitlines(True) if "layers: drafts" not in line) + rules)
    told = answer("glm-4.5.json", str(path), "--options", f"draft_tokens={int(drafting)}")
    missing = [doubt for doubt in told["doubts"] if "the layout has no draft" in doubt]
    assert len(missing) == (drafting and not rules)
    assert ("config: {words: {drafts: 0}}" in str(told["help"])) == (drafting and not rules)


def test_a_warning_about_the_file_that_is_named_asks_to_correct_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (MODELS / "glm-4.5.yaml").read_text().replace("model: glm-4.5", "model: mine")
    path.write_text(text.replace(", when: draft_tokens > 0, optional: true", ""))
    assert answer("glm-4.5.json", str(path))["help"] == f"correct {path}"


def test_a_layer_of_a_draft_that_stores_one_cache_of_several_is_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (MODELS / "sparse-latent.yaml").read_text().replace("model: sparse-latent", "model: mine")
    lines = [line for line in text.splitlines() if "draft-indexer" not in line]
    path.write_text("\n".join(lines).replace("  deepseek-v3.2:", "  other:").replace("  glm-5:", "  mine:"))
    told = answer("glm-5.json", "mine", "--layouts", str(tmp_path))
    assert "layer 78: caches of kind indexer: 1 as " in str(told["doubts"])


@pytest.mark.parametrize(
    ("name", "config", "why"),
    [
        ("llama-3.1-8b-eagle3", "llama-3.1-8b", UNCOMPARED), ("gpt-oss-20b-eagle3", "gpt-oss-20b", UNCOMPARED),
        ("kimi-k2-eagle3", "kimi-k2", OWN_DRAFT), ("deepseek-v3-eagle3", "deepseek-v3", OWN_DRAFT),
    ],
)  # fmt: skip
def test_a_draft_with_a_configuration_of_its_own_is_not_compared(name: str, config: str, why: str) -> None:
    told = answer(f"{config}.json", name)
    assert (told["doubts"], [note for note in told["notes"] if note in (UNCOMPARED, OWN_DRAFT)]) == ([], [why])


@pytest.mark.parametrize("name", ["kimi-k2", "deepseek-v3"])
def test_a_checkpoint_is_known_as_the_model_without_another_draft(name: str) -> None:
    said = CliRunner().invoke(main, ["new", str(CONFIGS / f"{name}.json"), "--format", "json"])
    assert json.loads(said.stdout)["known"] == name
