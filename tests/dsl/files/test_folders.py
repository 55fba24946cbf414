"""Layout files are known by their keys, whatever they and their folders are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.dsl.check import check
from kvplan.dsl.files.folders import folder_files, layout_type
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import DslError

KIND = "kvplan: 1\nkind: ours\nextends: gqa\n"
MODEL = "kvplan: 1\nmodel: new\nextends: llama-3.1-8b\ncaches: {attention: {kind: ours}}\n"
ENGINE = "kvplan: 1\nengine: fast\nextends: custom\ntitle: Fast\n"
DEPLOYMENT = "kvplan: 1\ndeployment: all\nplans: [{models: [new], prefill: engine=fast, decode: engine=fast}]\n"
LAYERS = "new: layers: 32 (all store attention)\n"
ORDINARY = ("models", "kinds", "engines", "machines", "configs", "mine")


def write(folder: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [folder / name for name in files]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


@pytest.mark.parametrize("folder", ORDINARY)
def test_a_folders_name_says_nothing(tmp_path: Path, folder: str) -> None:
    here = tmp_path / folder
    every = {"ours.yaml": KIND, "new.yaml": MODEL, "fast.yaml": ENGINE, "all.yaml": DEPLOYMENT}
    paths = write(here, every)
    assert check(paths) == check(paths[1:2], [here]) == []
    for known in (load(paths), load((), [here])):
        assert known.model("new").caches["attention"].kind == known.kind("ours").name
        assert known.engine("fast").title == "Fast"
    done = run("check", here)
    assert (done.exit_code, done.output.partition(";")[0]) == (0, f"{LAYERS}4 files: no errors")


@pytest.mark.parametrize("folder", ORDINARY)
def test_a_file_is_pointed_at_by_what_it_is(tmp_path: Path, folder: str) -> None:
    """Wherever it lies beside the one that names it; one that is something else is not."""
    kind, model = write(tmp_path, {f"{folder}/ours.yaml": KIND, "new/new.yaml": MODEL})
    (error,) = check([model])
    assert error.help == f"{kind} is not read: give --layouts {tmp_path}"
    kind.write_text(ENGINE.replace("fast", "ours"))
    (error,) = check([model])
    assert "is not read" not in error.help


def test_what_is_hidden_or_not_ours_is_skipped_and_counted(tmp_path: Path) -> None:
    nested = "jobs:\n  kvplan: 1\n  say: |\n    kvplan: 1\n# kvplan: 1\n"
    others = {"compose.yaml": nested, ".github/workflows/ci.yml": "on: push\n", ".ours.yaml": KIND, "notes.md": KIND}
    write(tmp_path, {"deep/ours.yaml": KIND, "new.yml": MODEL, **others})
    found = folder_files(tmp_path)
    assert [path.name for path in found.layouts] == ["ours.yaml", "new.yml"]
    said = f"skipped in {tmp_path}: 1 YAML file without the key kvplan and 2 hidden files or folders\n"
    done = run("check", tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{LAYERS}2 files: no errors\n", said)
    done = run("check", tmp_path / "new.yml", "--layouts", tmp_path, "--format", "json")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "[]\n", said)
    assert run("compile", "new", "--prefill", "tp=2", "--decode", "tp=1", "--layouts", tmp_path).exit_code == 0


def test_a_folder_that_is_hidden_itself_is_read(tmp_path: Path) -> None:
    write(tmp_path / ".layouts", {"ours.yaml": KIND})
    assert load((), [tmp_path / ".layouts"]).kind("ours")


def test_a_file_that_is_named_is_checked_whatever_it_says(tmp_path: Path) -> None:
    (path,) = write(tmp_path, {".other.yaml": "model: other\n"})
    assert "K004" in [error.code for error in check([path])]
    done = run("check", tmp_path)
    assert (done.exit_code, "1 hidden file or folder" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "# kvplan\n---\nkvplan: 1\nmodel: new\n",
        "\ufeffkvplan: 1\nmodel: new\n",
        '"kvplan": 1\n"model": new\n',
        "{kvplan: 1, model: new}\n",
        "{\n  kvplan: 1,\n  model: new\n}\n",
        "kvplan : 1\nconfig: {}\nmodel: new\n",
        "kvplan: 1\nmodel: new\ntitle: *broken\n",
    ],
)
def test_keys_are_known_as_yaml_writes_them(tmp_path: Path, text: str) -> None:
    (path,) = write(tmp_path, {"kinds/new.yaml": text})
    assert folder_files(tmp_path).layouts == (path,)
    assert layout_type(path) == "model"


def test_a_file_that_is_nothing_is_refused(tmp_path: Path) -> None:
    (path,) = write(tmp_path, {"models/new.yaml": "kvplan: 1\nmodell: new\n"})
    with pytest.raises(DslError, match="K005"):
        load((), [tmp_path])
    assert [error.code for error in check([path])] == ["K005"]


def test_shipped_files_are_found_as_any_others_are() -> None:
    found = folder_files(ROOT / "layouts")
    known = {path.resolve() for paths in load().paths.values() for path in paths.values()}
    assert ({path.resolve() for path in found.layouts}, found.skipped) == (known, "")


@pytest.mark.parametrize(
    ("key", "file_type"), [("plans: []", "deployment"), ("caches: {}", "model"), ("candidates: []", "fleet")]
)
def test_a_file_that_does_not_say_what_it_is_is_told_the_line_to_add(tmp_path: Path, key: str, file_type: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"kvplan: 1\ntitle: t\n{key}\n")
    (error,) = check([path])
    assert (error.code, error.help) == ("K005", f"add '{file_type}: mine'")
