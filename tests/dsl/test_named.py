"""A word names a model, or the path of a file or folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.named import library
from kvplan.dsl.text.diagnostics import DslError

MODEL = "kvplan: 1\nmodel: mine\ntitle: M\ndtype: bf16\nlayers: 2\n"
MODEL += "caches: {a: {kind: gqa, layers: all, heads: 2, dim: 8}}\n"


@pytest.mark.parametrize(
    ("files", "code", "help"),
    [({"notes.py": "x = 1"}, "K008", "did you mean 'phi-4'?"), ({"mine.yaml": MODEL}, "Y012", "name a file of it")],
)
def test_a_folder_counts_only_if_it_has_layout_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], code: str, help: str
) -> None:
    """A folder of any name may lie where a command runs."""
    (tmp_path / "phi4").mkdir()
    for name, text in files.items():
        (tmp_path / "phi4" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DslError) as caught:
        _model("phi4")
    assert [(said.code, said.help) for said in caught.value.diagnostics] == [(code, help)]


def _model(text: str) -> object:
    found, name = library(text)
    return found.model(name)
