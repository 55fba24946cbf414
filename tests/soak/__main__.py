"""`python -m tests.soak --seconds 600 --seed 1`: requests and faults, round after round. Exits 1 if one is wrong."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from random import Random

from tests.cluster import hosts
from tests.cluster.load import Mix
from tests.cluster.process import Lost
from tests.paths import ROOT
from tests.runtime.helpers.plans import Shape
from tests.soak.faults import OUTSTANDING, SPARE
from tests.soak.figures import Figures
from tests.soak.flood import FULL, flood, lies
from tests.soak.relays import relayed
from tests.soak.rounds import Round, cluster, draw

from kvplan.runtime.errors import NixlMissingError
from kvplan.runtime.transport.nixl import api

ROUND, SHORTEST, FULL_LENGTH = 60.0, 10.0, 600.0
IN_MEMORY = 10_000
LIES = 200
# The number of waves of relayed requests, in either direction and mode.
WAVES = 40
# Seconds: a lease of requests of which very many are held before the first is asked for.
WAITING = 10.0
DISK = "tests/deploy/test_plan_index.py::test_a_full_disk"


def main(seconds: float, seed: int) -> int:
    """Garbage and requests in memory, whose numbers shrink with a shorter soak; then processes and hosts in turn."""
    random, figures, end = Random(seed), Figures(), time.monotonic() + seconds
    share, begun, turn = min(1.0, seconds / FULL_LENGTH), 0, 0
    spared = full_disk(figures)
    flooded(random, figures, seed, round(FULL * share))
    while begun < IN_MEMORY * share and not figures.bad:
        begun += one(random, figures, "memory", seed, ROUND * share, round(IN_MEMORY * share) - begun)
    relays(random, figures, max(1, round(WAVES * share)))
    restarted(random, figures, "memory", seed)
    unable = {"processes": nixl(), "hosts": nixl() or hosts.unable(), "a full disk": spared}
    places = [where for where in ("processes", "hosts") if not unable[where]]
    for where in places:
        restarted(random, figures, where, seed)
    while places and time.monotonic() < end and not figures.bad:
        one(random, figures, places[turn % len(places)], seed, max(SHORTEST, min(ROUND, (end - time.monotonic()) / 2)))
        turn += 1
    print("\n".join([*(f"not run on {where}: {why}" for where, why in unable.items() if why), *figures.lines()]))
    return int(figures.bad)


def one(random: Random, figures: Figures, where: str, seed: int, seconds: float, most: int = 1 << 60) -> int:
    """A round; how many requests it had."""
    drawn = draw(random, where, seed)
    print(f"{time.strftime('%X')} {drawn}", flush=True)
    before = figures.begun.total()
    try:
        with cluster(drawn, random) as made:
            mix = Mix(at_once=24 if where == "memory" else 12)
            Round(made, drawn, random, figures, mix).play(seconds, most)
    except (AssertionError, Lost) as error:
        figures.broken.append(f"{drawn}: {error}")
    return max(1, figures.begun.total() - before)


def relays(random: Random, figures: Figures, waves: int) -> None:
    """Engines that offer on what they receive, both ways at once, while callbacks raise."""
    for mode in ("pull", "push"):
        print(f"{time.strftime('%X')} relays: {waves} waves, {mode}", flush=True)
        struck = Counter[str]()
        try:
            tally = relayed(random, mode, waves, struck)
            figures.add(tally)
            figures.survived += Counter() if tally.harmed or tally.wrong else struck
        except AssertionError as error:
            figures.broken.append(f"relays, {mode}: {error}")
        figures.injected += struck


def restarted(random: Random, figures: Figures, where: str, seed: int) -> None:
    """An engine dies under a thousand requests."""
    drawn = draw(random, where, seed)
    setting = replace(
        drawn.setting, prefill=Shape(1), decode=Shape(1), logical=OUTSTANDING + SPARE, lease=WAITING, limits={}, odds={}
    )
    drawn = replace(drawn, setting=setting, decodes=2)
    print(f"{time.strftime('%X')} restart under {OUTSTANDING} requests: {drawn}", flush=True)
    try:
        with cluster(drawn, random) as made:
            Round(made, drawn, random, figures).restart()
    except (AssertionError, Lost) as error:
        figures.broken.append(f"restart, {drawn}: {error}")


def flooded(random: Random, figures: Figures, seed: int, count: int) -> None:
    """Garbage messages, while requests run."""
    drawn = replace(draw(random, "memory", seed), decodes=1, secure=False)
    print(f"{time.strftime('%X')} garbage: {count} messages, {drawn}", flush=True)
    with cluster(replace(drawn, setting=replace(drawn.setting, odds={}, limits={}, lease=30.0)), random) as made:
        figures.injected["flood of garbage"] += 1
        figures.broken += (bad := flood(made, count, random) + lies(made, LIES, random))
        figures.survived["flood of garbage"] += not bad
        figures.garbage += count + LIES
        figures.add(made.tally)


def full_disk(figures: Figures) -> str:
    """The disk of the plans directory is full; why that could not be tried."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", DISK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0 and "SKIPPED" in done.stdout:
        return next(line for line in done.stdout.splitlines() if "SKIPPED" in line)
    figures.injected["full disk"] += 1
    figures.survived["full disk"] += not done.returncode
    figures.broken += [done.stdout[-1000:]] if done.returncode else []
    return ""


def nixl() -> str:
    """Why there is no NIXL; empty where there is."""
    try:
        api()
        return ""
    except NixlMissingError as error:
        return str(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    sys.exit(main(given.seconds, given.seed))
