"""Copy programs of random nests, against spans that are copied one by one; every byte of both memories is compared."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.staging.nests import Drawn, asked, blocks_of, by_hand, imaged, nests, pool, stage_of, volume

from kvplan.runtime.errors import AddressError
from kvplan.runtime.staging import views
from kvplan.runtime.staging.copies import StridedCopy, by_planes, copies
from kvplan.runtime.staging.program import CopyProgram
from kvplan.runtime.staging.views import HostCopies, Index, StageBlocks, between, index


class TorchCopies(HostCopies):
    """The device's way of copying, on the host."""

    def views(self, copy: StridedCopy, stage: StageBlocks) -> tuple[Any, Any]:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        staged, pool = super().views(copy, stage)
        return torch.from_numpy(staged), torch.from_numpy(pool)

    def copy(self, source: Any, chosen: Index, target: Any, place: Index, size: int) -> None:
        between(source, target, chosen, place)


class KernelCopies(TorchCopies):
    """The device's way of copying blocks in no order, as Triton interprets it."""

    def copy(self, source: Any, chosen: Index, target: Any, place: Index, size: int) -> None:
        interpreted().copy(source, target, numbers(chosen), numbers(place))


def numbers(chosen: Index) -> Any:
    return np.arange(10**6)[chosen] if isinstance(chosen, slice) else chosen


@functools.cache
def interpreted() -> Any:
    """The kernel by Triton's interpreter, as a module of its own: another test may use the compiled one."""
    pytest.importorskip("triton", reason="triton is not installed")
    found = importlib.util.find_spec("kvplan.runtime.staging.kernel")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        found.loader.exec_module(module)
    return module


def copied(drawn: Drawn, staged: int, data: Any, apart: int, kind: type[HostCopies]) -> None:
    runs = data.draw(asked(drawn.tokens))
    rows, (memory, geometry) = imaged(drawn, staged), pool(drawn, 1 - staged, apart)
    program = CopyProgram((), [by_planes(drawn.nest)], staged, rows, geometry)
    noise = stage_of(rows, len(blocks_of(runs, staged)))
    maker = kind(geometry, noise.nbytes)
    maker.memory[:] = noise
    stage, wanted = by_hand(drawn, staged, runs, (noise, memory), geometry)
    blocks = StageBlocks(maker.memory.ctypes.data, np.unique(runs.decode_block if staged else runs.prefill_block))
    program.run(maker, blocks, runs, np.zeros(len(runs.count), np.bool_))
    np.testing.assert_array_equal(maker.memory, stage)
    np.testing.assert_array_equal(memory, wanted)
    assert program.token_bytes == volume(drawn)


@settings(max_examples=150, deadline=None)
@given(nests(), st.integers(0, 1), st.sampled_from([0, 3, 16]), st.data())
def test_every_span_is_where_it_is_by_hand(drawn: Drawn, staged: int, apart: int, data: Any) -> None:
    copied(drawn, staged, data, apart, HostCopies)


@settings(max_examples=40, deadline=None)
@given(nests(), st.integers(0, 1), st.data())
def test_torch_copies_the_same(drawn: Drawn, staged: int, data: Any) -> None:
    copied(drawn, staged, data, 16, TorchCopies)


@settings(max_examples=40, deadline=None)
@given(nests(), st.integers(0, 1), st.data())
def test_the_kernel_copies_the_same(drawn: Drawn, staged: int, data: Any) -> None:
    interpreted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "facts", functools.partial(views.facts, widest=views.WIDEST))
        copied(drawn, staged, data, 16, KernelCopies)


@settings(max_examples=60, deadline=None)
@given(nests(), st.integers(0, 1), st.data())
def test_large_blocks_are_copied_one_by_one(drawn: Drawn, staged: int, data: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "ONE_BY_ONE", 1)
        copied(drawn, staged, data, 3, HostCopies)


def test_planes_that_lie_equally_far_apart_are_one_copy() -> None:
    one, other = (len(_copies_of(bases)) for bases in ([0, 400, 800, 1200], [0, 400, 800, 1300]))
    assert (one, other) == (1, 2)


def test_planes_that_lie_one_before_the_other_are_copied_without_strides_that_run_backwards() -> None:
    found = _copies_of([1200, 800, 400, 0])
    assert len(found) == 4
    assert min(copy.address_step for copy in found) == 0


@pytest.mark.parametrize(("tokens", "inside"), [((0, 0, 4), True), ((1, 0, 4), False), ((0, 1, 4), False)])
def test_a_run_that_leaves_the_page_is_refused(tokens: tuple[int, int, int], inside: bool) -> None:
    (copy,) = _copies_of([0, 400])
    if inside:
        assert copy.at(*tokens).bytes == 4 * 16
        return
    with pytest.raises(AddressError, match="leaves its page"):
        copy.at(*tokens)


@pytest.mark.parametrize(
    ("numbers", "found"), [([3], slice(3, 4)), ([2, 4, 6], slice(2, 7, 2)), ([5, 3], None), ([1, 2, 4], None)]
)
def test_blocks_at_equal_steps_are_a_slice(numbers: list[int], found: slice | None) -> None:
    got = index(np.array(numbers))
    assert got == found if found else isinstance(got, np.ndarray)


def _copies_of(bases: list[int]) -> tuple[StridedCopy, ...]:
    """Copies of 4 tokens of 16 bytes, dense on both sides, in planes at these addresses."""
    from kvplan.plan.stage import image
    from kvplan.plan.types import Loop, Nest, PageRange
    from kvplan.runtime.memory.geometry import Geometry

    count = len(bases)
    every = np.ones(count, np.int64)
    pool = Geometry(
        np.array(bases) + 4096, every * 64, every * 64, every * 2, every * 0, every * 0, np.array([[4096, 4096, 0]]),
        ("DRAM",),
    )  # fmt: skip
    nest = Nest(("k",), bytes=16, loops=(Loop("layer", count, (1, 0), (1, 0)),), token_step=(16, 16))
    return copies([by_planes(nest)], 0, image((PageRange(0, 0, 64, count),)), pool)
