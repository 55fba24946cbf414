"""Which weights a LoRA has: its name, and its number, stay when it is loaded again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from kvplan.integrations.vllm.adapters import adapter_identity


def adapter(folder: Path, weights: bytes = b"weights", config: str = "{}") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    (folder / "adapter_config.json").write_text(config)
    return str(folder)


def identity(path: str, name: str = "adapter") -> str:
    return adapter_identity(SimpleNamespace(lora_name=name, lora_int_id=1, lora_path=path))


def test_weights_are_known_by_their_files_wherever_they_lie(tmp_path: Path) -> None:
    one, copy = adapter(tmp_path / "one"), adapter(tmp_path / "copy")
    other, scaled = adapter(tmp_path / "other", b"others!"), adapter(tmp_path / "scaled", config='{"lora_alpha": 8}')
    assert identity(one) == identity(copy, "another name")
    assert len({identity(path) for path in (one, other, scaled)}) == 3


def test_files_that_change_under_one_path_are_read_again(tmp_path: Path) -> None:
    """`load_inplace` loads them again, and vLLM tells no connector."""
    path = adapter(tmp_path)
    before = identity(path)
    adapter(tmp_path, b"WEIGHTS")
    os.utime(tmp_path / "adapter_model.safetensors", ns=(1, 1))
    assert identity(path) != before


def test_an_adapter_without_files_here_is_known_by_name_and_path(tmp_path: Path) -> None:
    paths = ["org/one", "org/other", str(tmp_path)]
    assert len({identity(path, name) for path in paths for name in ("a", "b")}) == 6


def test_an_adapter_of_the_hub_is_found_in_the_folder_of_its_client(tmp_path: Path) -> None:
    here = adapter(tmp_path)
    lora = SimpleNamespace(lora_name="adapter", lora_path="org/adapter")
    assert adapter_identity(lora, lambda name: here if name == "org/adapter" else None) == identity(here)
    assert adapter_identity(lora, lambda name: None).startswith("name ")
