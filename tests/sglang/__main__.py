"""`make sglang`: cases of real SGLang engines, and the tables of docs/sglang.md with what came of them.

python -m tests.sglang [WORD…]           cases whose names have one of these words; all of them without
python -m tests.sglang --mixed [WORD…]   those of a vLLM and an SGLang engine, which take vLLM's environment, too
python -m tests.sglang --own [WORD…]     the same with SGLang's own NIXL backend, of which nothing is required
python -m tests.sglang --router          two servers over HTTP behind SGLang's own router, installed once, 90 MB
python -m tests.sglang --times [WORD…]   time to first token of both backends, by turns, and of mixed pairs
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.engine_environment import UnavailableError
from tests.sglang import environment
from tests.sglang.cases import CASES, MODES, TIMED
from tests.sglang.mixed import MixedPlayer
from tests.sglang.mixed_cases import MIXED, TIMED_MIXED
from tests.sglang.routed import routed
from tests.sglang.run import GOOD, played
from tests.sglang.table import BACKENDS, GAP, KVPLAN, OWN, RATIO, ROUTED, Cell, cell_of, over_http, write
from tests.vllm import environment as of_vllm

ROUNDS = 5
ONE_ENGINE = "SGLang only"


def main(words: Sequence[str]) -> int:
    own, times, mixed, router = (word in words for word in ("--own", "--times", "--mixed", "--router"))
    words = [word for word in words if not word.startswith("--")]
    try:
        python = environment.ready()
    except UnavailableError as reason:
        print(f"not run: {reason}")
        return 0
    if times:
        return timed(python, words)
    if mixed:
        return mixed_cases(python, words)
    if router:
        return routed_case(python)
    backend = OWN if own else KVPLAN
    chosen = [case for case in CASES if not words or any(word in case.name for word in words)]
    chosen = [case for case in chosen if not own or case.config.get("mode", MODES[0]) == MODES[0]]
    with tempfile.TemporaryDirectory(prefix="kvplan-sglang-") as folder:
        found = played(python, Path(folder), chosen, backend)
    words_of = {one.case: one.word if one.word in GOOD else f"**{one.word}**" for one in found}
    write({cell_of(case, backend): words_of[case.name] for case in chosen if case.name in words_of})
    return int(not own and sum(one.word in GOOD for one in found) < len(chosen))


def mixed_cases(python: Path, words: Sequence[str]) -> int:
    """Play cases of a vLLM and an SGLang engine. The table has what each came to, at once."""
    try:
        vllm = of_vllm.ready()
    except UnavailableError as reason:
        print(f"not run: {reason}")
        return 0
    chosen, good = [case for case in MIXED if not words or any(word in case.name for word in words)], 0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvplan-mixed-"))
        player = stack.enter_context(MixedPlayer(vllm, python, Path(folder)))
        for case in chosen:
            found = player.play(case)
            good += found.word in GOOD
            print(": ".join(filter(None, (found.case, found.word, found.why, found.within))), flush=True)
            word = found.word if found.word in GOOD else f"**{found.word}**"
            write({(case.name, KVPLAN): word, (case.name, GAP): found.within or "–"})
    return int(good < len(chosen))


def routed_case(python: Path) -> int:
    """Play the case of servers behind SGLang's router."""
    with tempfile.TemporaryDirectory(prefix="kvplan-routed-") as folder:
        word, why = routed(python, Path(folder))
    print(": ".join(filter(None, (ROUTED, word, why))))
    write({(ROUTED, KVPLAN): word if word in GOOD else f"**{word}**"})
    return int(word not in GOOD)


def timed(python: Path, words: Sequence[str]) -> int:
    """Write medians of seconds until the first token of pairs of engines, with either backend by turns."""
    named = [name for name in TIMED if not words or any(word in name for word in words)]
    seconds: dict[Cell, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="kvplan-sglang-") as folder:
        for _ in range(ROUNDS if named else 0):
            for backend in BACKENDS:
                for one in played(python, Path(folder), [case for case in CASES if case.name in named], backend):
                    seconds.setdefault((one.case, backend), []).extend(one.first)
    medians = {cell: median(found) for cell, found in seconds.items() if found}
    ratios = {
        (name, RATIO): f"{medians[name, KVPLAN] / medians[name, OWN]:.2f}" for name in named if (name, OWN) in medians
    }
    write({cell: _milliseconds(found) for cell, found in medians.items()} | ratios, times=True)
    return timed_mixed(python, words)


def timed_mixed(python: Path, words: Sequence[str]) -> int:
    """Write the same of mixed pairs, over HTTP."""
    named = [name for name in TIMED_MIXED if not words or any(word in name for word in words)]
    if not named:
        return 0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvplan-mixed-"))
        player = stack.enter_context(MixedPlayer(of_vllm.ready(), python, Path(folder)))
        for case in (case for case in MIXED if case.name in named):
            row = over_http(case.name)
            found = _milliseconds(median(player.first(case, ROUNDS)))
            write({(row, KVPLAN): found, (row, OWN): ONE_ENGINE, (row, RATIO): "–"}, times=True)
    return 0


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
