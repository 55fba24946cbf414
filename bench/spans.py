"""What users would write themselves: a NIXL request for each span of two equal sides; and memcpy, the limit."""

from __future__ import annotations

import time
from itertools import count
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from kvplan.bench.homogeneous import BYTES, MODEL, SIDE, request
from kvplan.bench.peer import SECONDS, met
from kvplan.bench.raw import Raw
from kvplan.bench.report import Row, faster, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import library, nixl_missing, write_plan

AREA = f"equal sides, {BYTES >> 20} MiB"


class SpanLoop(Raw):
    """NIXL by hand with a request for each span of `span` bytes, nothing merged, all of them in flight together."""

    def meet(self, card: tuple[bytes, int], span: int = 0) -> None:
        metadata, address = card
        peer = self._agent.add_remote_agent(metadata).decode()
        base, size, _ = (int(number) for number in self._row[0])
        local = self._agent.prep_xfer_dlist("NIXL_INIT_AGENT", rows(base, size, span), "DRAM")
        self._lists = local, self._agent.prep_xfer_dlist(peer, rows(address, size, span), "DRAM")
        self._spans = [np.array([number], np.int32) for number in range(size // span)]

    def read(self, seconds: float = SECONDS) -> None:
        """Read all spans. Raises TimeoutError after `seconds`."""
        assert self._lists is not None, "meet() comes first"
        local, remote = self._lists
        handles = [self._agent.make_prepped_xfer("READ", local, span, remote, span) for span in self._spans]
        states, end = [self._agent.transfer(handle) for handle in handles], time.monotonic() + seconds
        for handle, state in zip(handles, states, strict=True):
            while state != "DONE":
                if time.monotonic() > end:
                    raise TimeoutError(f"of {len(handles)} requests one is still {state} after {seconds} s")
                state = self._agent.check_xfer_state(handle)
            self._agent.release_xfer_handle(handle)


def rows(address: int, size: int, span: int) -> npt.NDArray[np.uint64]:
    """Descriptors (address, bytes, device) of spans that follow each other; `span` divides `size`."""
    starts = address + np.arange(0, size, span, dtype=np.uint64)
    return np.stack([starts, np.full_like(starts, span), np.zeros_like(starts)], axis=1)


def measure(pairs: int) -> list[Row]:
    """kvplan's runtime, submit to done, in turns with each of them."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, MODEL, SIDE, SIDE)
        (planes,) = plan.decode.workers[0].planes
        blocks = BYTES // (planes.page * len(planes.loops[0][1]))
        names = [f"request-{number}" for number in range(1 + 2 * (WARMUP + pairs))]
        with met(path, blocks, names) as pair:
            from kvplan.runtime.transport.nixl import api

            loop, left = SpanLoop(api(), "span-decode", pair.memory), map("request-{}".format, count())
            loop.meet(pair.card, planes.page)

            def ours() -> object:
                return pair.decode.submit(request(plan, blocks, next(left)), SECONDS).wait()

            loop.read()
            source = pair.memory.copy()
            pair.memory[:] = 0
            ours()
            assert np.array_equal(pair.memory, source), "the runtime reads other bytes than NIXL span by span"
            spans = faster(AREA, f"{len(source) // planes.page:,} NIXL requests", interleave(ours, loop.read, pairs))
            copied = within(AREA, "memcpy", interleave(ours, lambda: np.copyto(pair.memory, source), pairs))
    return [spans, copied]
