"""kvplan new --transformers: the class of a configuration fills it in; where that is not possible, F009."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main

CONFIG = {
    "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "num_hidden_layers": 4, "dtype": "bfloat16",
}  # fmt: skip


class Auto:
    """A class that adds what a configuration leaves out, and refuses one key."""

    @staticmethod
    def for_model(model_type: str, **given: object) -> SimpleNamespace:
        if "refused" in given:
            raise TypeError("unexpected key 'refused'")
        whole = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "model_type": "x", **given}
        return SimpleNamespace(to_dict=lambda: whole)


def new(tmp_path: Path, *args: str, **more: object) -> Result:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **more}))
    return CliRunner().invoke(main, ["new", str(tmp_path / "config.json"), "--transformers", *args])


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(__version__="9.1", CONFIG_MAPPING={"gemma": object}, AutoConfig=Auto)
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.mark.usefixtures("installed")
def test_the_class_is_asked_and_the_file_says_so(tmp_path: Path) -> None:
    said = new(tmp_path)
    assert said.exit_code == 0, said.output
    assert "heads: 2  # num_key_value_heads\n" in said.stdout
    assert "read by transformers 9.1, whose class says what the configuration leaves out" in said.stdout
    assert "checkpoint: {architecture: GemmaForCausalLM, model_type: gemma}" in said.stdout


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"refused": 1}, "transformers 9.1 cannot read the configuration: TypeError: unexpected key 'refused'"),
        ({"model_type": "newer"}, "transformers 9.1 has no class of configurations for model_type 'newer'"),
        ({"model_type": None}, "transformers 9.1 has no class of configurations for model_type 'None'"),
    ],
)
def test_a_class_that_cannot_is_an_error(tmp_path: Path, more: dict[str, object], text: str) -> None:
    said = new(tmp_path, **more)
    assert said.exit_code == 2
    assert f"error[F009]: {text}" in said.output


def test_transformers_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    said = new(tmp_path)
    assert said.exit_code == 2
    assert "error[F009]: transformers cannot be imported" in said.output
    assert "pip install transformers, or leave --transformers out" in said.output
