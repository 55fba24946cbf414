"""A revision made of a checkpoint's files: the same weights anywhere, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.runtime import revision_of

SIZE = 3_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two files of weights beside others."""
    folder = tmp_path / "model"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"model-{number}.safetensors").write_bytes(bytes(range(1, 251)) * (SIZE // 250))
    (folder / "config.json").write_text("{}")
    (folder / "model.bin").write_bytes(b"the same weights in another format")
    return folder


def tuned(folder: Path) -> None:
    """One tensor of five kilobytes has other numbers."""
    path = folder / "model-2.safetensors"
    data = bytearray(path.read_bytes())
    data[2_000_000:2_005_000] = bytes(5_000)
    path.write_bytes(data)


def test_a_copy_anywhere_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for path in checkpoint.glob("*.safetensors"):
        (tmp_path / "elsewhere" / path.name).write_bytes(path.read_bytes())
    assert revision_of(tmp_path / "elsewhere") == revision_of(checkpoint) != ""


@pytest.mark.parametrize(
    "change",
    [
        tuned,
        lambda folder: (folder / "model-2.safetensors").unlink(),
        lambda folder: (folder / "model-2.safetensors").write_bytes(b""),
        lambda folder: (folder / "model-2.safetensors").rename(folder / "model-3.safetensors"),
    ],
)
def test_other_weights_are_another_revision(change: Callable[[Path], object], checkpoint: Path) -> None:
    before = revision_of(checkpoint)
    change(checkpoint)
    assert revision_of(checkpoint) not in (before, "")


def test_one_file_and_none(checkpoint: Path, tmp_path: Path) -> None:
    one = revision_of(checkpoint / "model-1.safetensors")
    assert one != revision_of(checkpoint)
    (checkpoint / "model-1.safetensors").rename(tmp_path / "renamed.gguf")
    assert revision_of(tmp_path / "renamed.gguf") == one
    assert revision_of(tmp_path / "nowhere") == ""


def test_what_a_trainer_leaves_is_no_format_of_weights(tmp_path: Path) -> None:
    (tmp_path / "training_args.bin").write_bytes(b"the same")
    found = set()
    for weights in (b"base", b"tuned"):
        (tmp_path / "consolidated.00.pth").write_bytes(weights)
        found.add(revision_of(tmp_path))
    assert len(found) == 2
