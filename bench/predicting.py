"""Times that `kvplan advise` predicts, by this machine's profile of the same minute, against measured ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.peer import SECONDS
from kvplan.bench.report import Row
from kvplan.bench.sample import WARMUP
from kvplan.bench.stage import library

if TYPE_CHECKING:
    from kvplan.calibrate.measure import Calibration
    from kvplan.compiler.bound import BoundSide
    from kvplan.compiler.cost.cost import Moves
    from kvplan.dsl.schema.machine import MachineProfile
    from kvplan.plan.types import Group, Plan
    from kvplan.runtime import Blocks, DecodeWorker, Peer, Request, Slot

AREA = "predicted times"
MOST = 0.15
SIZE = 64 << 20
DIRECT, UNPACK = "direct", "unpack"
# Model, sides and strategy. One prefill worker has everything, because the other process runs one of each pair.
PAIRS = (
    ("qwen3-0.6b", "tp=1", "tp=1", DIRECT),
    ("qwen3-0.6b", "tp=1,block=64", "tp=1,block=64", DIRECT),
    ("qwen3-0.6b", "tp=1", "tp=2", DIRECT),
    ("qwen3-0.6b", "tp=1", "tp=4", DIRECT),
    ("qwen3-0.6b", "tp=1", "tp=1,block=32", DIRECT),
    ("qwen3-0.6b", "tp=1,order=nhd", "tp=2,order=nhd", DIRECT),
    ("qwen3-0.6b", "tp=1,order=BLHNC", "tp=1", DIRECT),
    ("qwen3-0.6b", "tp=1", "tp=1,order=nhd", DIRECT),
    ("nemotron-3-nano-30b", "tp=1", "tp=1", DIRECT),
    ("nemotron-3-nano-30b", "tp=1", "tp=2", DIRECT),
    ("deepseek-v3", "tp=1", "tp=1", DIRECT),
    ("gpt-oss-20b", "tp=1", "tp=2", DIRECT),
    ("qwen3-0.6b", "tp=1", "tp=1,order=nhd", UNPACK),
    ("llama-3.1-8b", "tp=1", "tp=2,order=nhd", UNPACK),
    ("qwen3-0.6b", "tp=1,order=nhd", "tp=2,order=nhd", UNPACK),
    ("qwen3-0.6b", "tp=1,order=nhd", "tp=1,order=nhd,block=64", UNPACK),
)


@dataclass(frozen=True, slots=True)
class PredictedPair:
    """A pair with predicted times: its sides, the path of its plan, the blocks of either pool."""

    name: str
    prefill: BoundSide
    decode: BoundSide
    strategy: str
    path: str
    blocks: int

    def request(self, turn: int) -> str:
        """Return the name of one turn's request."""
        return f"{self.name}, {turn}"

    def moves(self, profile: MachineProfile) -> tuple[Moves, ...]:
        """Return what its plan moves, with the stages' times by `profile`."""
        from kvplan.compiler.api import compile_bound

        return compile_bound(self.prefill, self.decode, {"strategy": self.strategy}, profile=profile).facts.moves


@dataclass(frozen=True, slots=True)
class Reader:
    """The decode worker of a pair, which has met its peer."""

    pair: PredictedPair
    worker: DecodeWorker
    peer: Peer

    def read(self, turn: int) -> float:
        """Return the seconds from submit to done."""
        wanted = request(self.peer.plan, self.pair.request(turn))
        began = time.perf_counter()
        self.worker.submit(wanted, SECONDS).wait()
        return time.perf_counter() - began


def measure(pairs: int) -> list[Row]:
    """Measure: the median error over all pairs under 15 %; the profile is measured in turns with them."""
    with TemporaryDirectory() as folder, readers(compiled(folder), WARMUP + pairs) as met:
        for reader in met:
            _ = [reader.read(turn) for turn in range(WARMUP)]
        times: dict[str, list[float]] = {reader.pair.name: [] for reader in met}
        profile = measured(pairs, met, times)
    rows = [_row(reader.pair, times[reader.pair.name], profile) for reader in met]
    return [*rows, _median(rows, profile)]


def measured(rounds: int, met: Sequence[Reader], times: dict[str, list[float]]) -> MachineProfile:
    """Return this machine's profile; between its rounds every reader reads once, and `times` records that."""
    from kvplan.calibrate.measure import calibrated

    def watch(turns: Iterable[int]) -> Iterator[int]:
        for turn in turns:
            yield turn
            for reader in met:
                times[reader.pair.name].append(reader.read(turn))

    return profile_of(calibrated("DRAM", rounds, SIZE, watch))


def profile_of(calibration: Calibration) -> MachineProfile:
    """Return this machine's profile from a calibration."""
    from kvplan.calibrate.machine_text import machine_text
    from kvplan.dsl.library import load

    with TemporaryDirectory() as folder:
        path = Path(folder) / "here.yaml"
        path.write_text(machine_text("here", calibration, "DRAM", "kvplan bench"))
        return load([path]).machine("here")


def compiled(folder: str) -> list[PredictedPair]:
    """Compile all pairs, each with the blocks of a request of 1024 tokens, and those between them."""
    from kvplan.compiler.api import compile_pair

    predicted = []
    for number, (model, prefill, decode, strategy) in enumerate(PAIRS):
        made = compile_pair(library(), model, prefill, decode, {"strategy": strategy})
        path = Path(folder) / f"pair_{number}.py"
        path.write_text(made.text)
        plan = made.plan
        blocks = max(_apart(side.groups) * _count(g) for side in (plan.prefill, plan.decode) for g in side.groups)
        name = f"{model} {prefill} -> {decode}, {strategy}"
        predicted.append(PredictedPair(name, made.prefill, made.decode, strategy, str(path), blocks))
    return predicted


def request(plan: Plan, name: str) -> Request:
    """Return a request of 1024 tokens from token 0 whose blocks are never adjacent, as in costs."""
    from kvplan.compiler.cost.cost import TOKENS
    from kvplan.runtime import Request

    prefill, decode = (_tables(side.groups, TOKENS) for side in (plan.prefill, plan.decode))
    return Request(name, (0, TOKENS), prefill, decode)


def _tables(groups: tuple[Group, ...], tokens: int) -> dict[str, Blocks | Slot]:
    """Return interleaved blocks, because groups may overlay one memory, and a block belongs to one group."""
    from kvplan.runtime import Blocks, Slot

    ids = {g.name: number + _apart(groups) * np.arange(_count(g), dtype=np.int64) for number, g in enumerate(groups)}
    states = {group.name for group in groups if group.store == "state"}
    return {name: Slot(int(each[0]), tokens) if name in states else Blocks(0, each) for name, each in ids.items()}


def _apart(groups: tuple[Group, ...]) -> int:
    return max(2, len(groups))


def _count(group: Group) -> int:
    """Return the blocks of 1024 tokens, or 1 for a state."""
    from kvplan.compiler.cost.cost import TOKENS

    return -(-TOKENS // group.tokens) if group.store == "tokens" else 1


@contextmanager
def readers(pairs: Sequence[PredictedPair], turns: int) -> Iterator[list[Reader]]:
    """Start both processes; the other one holds the requests of all turns."""
    from kvplan.calibrate.peers import ServedPair, served

    held = [ServedPair(pair.path, pair.blocks, tuple(map(pair.request, range(turns)))) for pair in pairs]
    with served(held, "DRAM") as met:
        yield [Reader(pair, *met.reader(number)) for number, pair in enumerate(pairs)]


def _row(pair: PredictedPair, seconds: Sequence[float], profile: MachineProfile) -> Row:
    from kvplan.compiler.cost.times import times_us

    predicted = times_us(pair.moves(profile), pair.strategy, profile)[0] / 1e6
    parts = [predicted / taken for taken in seconds]
    low, middle, high = quantiles(parts, n=4, method="inclusive")
    details: dict[str, object] = {"predicted": predicted, "seconds": median(seconds), "error": abs(middle - 1)}
    words = f"{1e3 * median(seconds):.1f} ms, predicted {middle:.2f}x of it"
    return Row(AREA, pair.name, words, spread=f"{low:.2f}..{high:.2f}", pairs=len(seconds), details=details)


def _median(rows: Sequence[Row], profile: MachineProfile) -> Row:
    error = median(float(str(row.details["error"])) for row in rows)
    target = f"at most {100 * MOST:.0f} %"
    details = {name: getattr(profile, name) for name in ("transfer_us", "slice_us", "descriptor_us", "wire")}
    return Row(AREA, "median error", f"{100 * error:.0f} %", target, error <= MOST, pairs=len(rows), details=details)
