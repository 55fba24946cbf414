"""SGLang's own host pool as a side that declares it: what kvplan writes, SGLang finds, in both memories."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_environment import UnavailableError
from tests.layouts.shrink import thinned
from tests.paths import ROOT
from tests.sglang import environment

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.dsl.library import load

SIDES = "engine=sglang,tp=1,block=64", "engine=sglang,tp=1,block=64,hisparse=true"


@pytest.mark.full
def test_what_lands_in_the_host_pool_of_hisparse_is_what_sglang_finds_there(tmp_path: Path) -> None:
    try:
        python = environment.cached()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    library = load()
    model = thinned(library.model("deepseek-v3.2"))
    model = replace(model, caches={n: replace(c, layers=(0, 1)) for n, c in model.caches.items()})
    plan = tmp_path / "plan.py"
    made = compile_bound(bind(library, model, SIDES[0]), bind(library, model, SIDES[1]))
    plan.write_text(made.text)
    assert {entry.cache: entry.memory for entry in made.plan.decode.workers[0].planes} == {
        "attention": "host",
        "indexer": "",
    }
    variables = {**os.environ, "PYTHONPATH": environment.paths(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    run = [str(python), "-m", "tests.sglang.host_pools", str(plan)]
    said = subprocess.run(run, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout.splitlines()[-1])
    assert found == {"state": "done", "wrong": [], "side": made.plan.decode.key}
