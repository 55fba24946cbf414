"""The demo from end to end: over memory, over NIXL between processes, and that a wrong byte cannot pass."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.demo.pairs import SECONDS, library, moved, ready, scaled, untouched

from kvplan.cli.commands.demo import command, shipped
from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.bound import BoundGroup
from kvplan.compiler.check import oracle
from kvplan.demo import requests as demo_asked
from kvplan.demo import run as demo_run
from kvplan.demo.content import WrongBytesError, check, padding
from kvplan.demo.processes import ProcessError
from kvplan.demo.requests import RequestShare
from kvplan.deploy.jobs import compiled
from kvplan.plan.block_tables import blocks

NIXL = any(importlib.util.find_spec(name) for name in ("nixl", "nixl_cu12", "nixl_cu13", "nixl_rocm", "rixl"))
needs_nixl = pytest.mark.skipif(not NIXL, reason="NIXL is not installed")
SMALL = """\
kvplan: 1
deployment: small
plans:
  - {models: qwen3-0.6b, prefill: "tp=1", decode: "tp=2,order=nhd"}
"""


@pytest.fixture(scope="module")
def hybrid() -> Compiled:
    """States and tokens, kernel blocks, overlaid groups with padded pages, an eighth of the model per worker."""
    return scaled("nemotron-3-nano-30b", "tp=4,kv_dtype=fp8,kernel_block=16", "tp=8,kernel_block=16,kv_dtype=fp8")


@pytest.fixture
def dense() -> Compiled:
    """Tokens only, few bytes, different blocks."""
    return compile_pair(library(), "qwen3-0.6b", "tp=2", "tp=1,block=32")


@pytest.fixture(autouse=True)
def _few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_asked, "LEAST_TOKENS", 100)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_the_shipped_pairs_are_the_promised_ones() -> None:
    ends = {(made.plan.model, made.plan.prefill.key, made.plan.decode.key) for made in compiled(shipped()).values()}
    assert len(ends) == 2
    ratios = [
        {group.ratio for group in made.plan.prefill.groups + made.plan.decode.groups}
        for made in compiled(shipped()).values()
    ]
    assert {131, 261} <= ratios[0] | ratios[1]


def test_memory_as_it_must_be_passes(hybrid: Compiled) -> None:
    share, memory, before = ready(hybrid)
    content, compared = check(share, memory, before)
    assert content > 100_000
    assert compared == sum(arena.nbytes for arena in memory.arenas) > content


def first_block(share: RequestShare, group: BoundGroup) -> int:
    """The block of the first token, or of a state."""
    table = blocks(share.tables[group.name])
    return int(table.ids[share.request.range_of(group)[0] // group.tokens - table.first if group.tokens else 0])


@pytest.mark.parametrize("place", ["first", "last"])
def test_one_wrong_byte_anywhere_is_found(hybrid: Compiled, place: str) -> None:
    share, memory, _ = ready(hybrid)
    for group in hybrid.decode.groups:
        plane = next(
            p for p in oracle.planes(hybrid.decode, hybrid.decode.workers[0]).values() if p.group.name == group.name
        )
        block = first_block(share, group) * group.ratio + (group.ratio - 1 if place == "last" else 2 % group.ratio)
        byte = np.flatnonzero(~padding(plane))[-1 if place == "last" else 0]
        memory.planes[plane.name][block, byte] ^= 1
        with pytest.raises(WrongBytesError, match=rf"block {block}, byte {byte} "):
            check(share, memory, untouched(hybrid, share))
        memory.planes[plane.name][block, byte] ^= 1


def test_a_byte_before_the_first_token_may_not_be_written(hybrid: Compiled) -> None:
    share, memory, before = ready(hybrid)
    group = next(group for group in hybrid.decode.groups if group.store == "tokens")
    name = next(
        p.name for p in oracle.planes(hybrid.decode, hybrid.decode.workers[0]).values() if p.group.name == group.name
    )
    assert share.request.range_of(group)[0] % group.kernel
    memory.planes[name][first_block(share, group) * group.ratio, 0] ^= 1
    with pytest.raises(WrongBytesError, match=name):
        check(share, memory, before)


def test_a_block_that_was_not_dealt_may_not_be_written(hybrid: Compiled) -> None:
    share, memory, before = ready(hybrid)
    used = np.concatenate([blocks(table).ids for table in share.tables.values()])
    state = next(group for group in hybrid.decode.groups if group.store == "state")
    plane = next(
        p for p in oracle.planes(hybrid.decode, hybrid.decode.workers[0]).values() if p.group.name == state.name
    )
    spare = next(block for block in range(len(memory.planes[plane.name])) if block not in used)
    memory.planes[plane.name][spare, -1] ^= 1
    with pytest.raises(WrongBytesError):
        check(share, memory, before)


@pytest.mark.parametrize("transport", ["memory", pytest.param("nixl", marks=needs_nixl)])
def test_a_request_moves_and_every_byte_is_checked(tmp_path: Path, transport: str, dense: Compiled) -> None:
    (outcome,) = moved(dense, tmp_path, transport)
    assert outcome.sources == 2
    assert outcome.content == 76 * 28 * 8 * 2 * 128 * 2
    assert 0 < outcome.descriptors == outcome.predicted


@needs_nixl
def test_a_worker_that_cannot_start_ends_the_demo(tmp_path: Path, dense: Compiled) -> None:
    with pytest.raises(ProcessError, match="prefill worker 0: PlanLoadError"):
        demo_run.run(dense, tmp_path / "none.py", "nixl", time.monotonic() + SECONDS, lambda _: None)


def test_the_demo_gives_up_at_its_deadline(tmp_path: Path, dense: Compiled) -> None:
    with pytest.raises(ProcessError, match=r"before the deadline|has ended"):
        moved(dense, tmp_path, "memory", seconds=0.05)


def test_the_command_prints_what_moved_and_where_the_plan_is(small: Path, tmp_path: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(command, [str(small), "--transport", "memory", "-o", str(tmp_path / "plans")])
    assert result.exit_code == 0, result.output
    (plan,) = (tmp_path / "plans").rglob("*.py")
    first, second, third, *rest = result.stdout.splitlines()
    assert first.startswith("Prefill and decode keep")
    assert (bool(second), third) == (True, "")
    assert f": {plan}" in result.stdout
    assert "Qwen3 0.6B: prefill tp=1 -> decode tp=2,order=LBNHC" in result.stdout
    assert "bytes over memory in" in result.stdout
    assert rest[-2] == "Try next:"
    assert rest[-1].endswith(f" explain {plan}")
    assert [line for line in result.stdout.splitlines() if len(line) > 80 and str(plan) not in line] == []


def test_without_nixl_auto_says_so_and_goes_on(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.transport.nixl.MODULES", ("no_such_nixl._api",))
    result = CliRunner().invoke(command, [str(small), "-o", str(tmp_path / "plans")])
    assert result.exit_code == 0, result.output
    assert "over memory" in result.output
    assert "no_such_nixl" in result.output
