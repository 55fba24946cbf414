"""docs/sglang.md: what its example prints, and that the example would see a wrong byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import numpy as np
import pytest
from tests.paths import DOCS, EXAMPLES, ROOT

PATH = EXAMPLES / "vllm_to_sglang.py"
PAGE = (DOCS / "sglang.md").read_text()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("vllm_to_sglang", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["vllm_to_sglang"] = module
    spec.loader.exec_module(module)
    return module


def test_it_prints_what_the_page_shows() -> None:
    said = subprocess.run(
        [sys.executable, str(PATH)], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True, timeout=300
    )
    (shown,) = re.findall(
        r"^```console\n\$ python examples/vllm_to_sglang.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert said.stdout == shown


def test_pages_of_sglang_hold_what_was_computed(example: ModuleType) -> None:
    sources, kv_indices = example.computed(1), np.array([0, 2])
    pool = np.zeros((2, 28, 256, 8, 128), np.uint16)
    example.moved(example.compiled(), sources, pool, kv_indices)
    assert np.array_equal(pool, example.expected(sources, kv_indices))
    assert not np.array_equal(pool, example.expected(sources, np.array([2, 0])))
    assert not np.array_equal(pool, example.expected(example.computed(2), kv_indices))


def test_keys_before_values(example: ModuleType) -> None:
    pool = np.zeros((2, 28, 256, 8, 128), np.uint16)
    args, side = example.pool_args(pool), example.compiled().plan.decode
    memory = example.pool_memory(side, args)
    assert memory["attention.3.0"].base == args.kv_data_ptrs[3] == pool[0, 3].ctypes.data
    assert memory["attention.3.1"].base == args.kv_data_ptrs[31] == pool[1, 3].ctypes.data


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE) if not link.startswith("https://")]
    assert links
    assert not [link for link in links if not (DOCS / link).exists()]
