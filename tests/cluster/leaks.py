"""Resources that idle workers hold, compared with an earlier measurement."""

from __future__ import annotations

from tests.cluster.engine import Engine, Worker
from tests.cluster.process import Process, Word

MIB = 1 << 20
# A transport keeps sockets and caches of ended peers for a while, and lists of a set of layers are made when
# the first chunk of it comes; what leaks by request is far more.
MORE_FDS, MORE_BYTES, MORE_LISTS = 16, 64 * MIB, 32


def looks(engines: list[Engine]) -> dict[Worker, Word]:
    """Every worker's figures."""
    return {worker: worker.call("stats") for engine in engines for worker in engine.workers}


def leaks(before: dict[Worker, Word], after: dict[Worker, Word]) -> list[str]:
    """Everything that has grown in workers that live since `before`, and everything that no idle worker should hold."""
    found = [f"{_name(worker)}: {text}" for worker, word in after.items() for text in _unrest(word)]
    for worker, word in after.items():
        if worker in before:
            found += [f"{_name(worker)}: {text}" for text in _grown(before[worker], word, isinstance(worker, Process))]
    return found


def _unrest(word: Word) -> list[str]:
    found = [f"{count} handles" for kind, count in word["live"].items() if kind == "handles"]
    found += [f"blocks of {word['requests']} are not free"] if word["requests"] else []
    return found + ([f"{word['quarantined']} blocks in quarantine"] if word.get("quarantined") else [])


def _grown(before: Word, after: Word, alone: bool) -> list[str]:
    """A worker in a separate process also owns the process's file descriptors and memory."""
    kinds = [("registrations", before["live"], after["live"], 0), ("lists", before["live"], after["live"], MORE_LISTS)]
    if alone:
        kinds += [("fds", before, after, MORE_FDS), ("rss", before, after, MORE_BYTES)]
    found = [(kind, old.get(kind, 0), new.get(kind, 0), more) for kind, old, new, more in kinds]
    return [f"{kind} grew from {old} to {new}" for kind, old, new, more in found if new > old + more]


def _name(worker: Worker) -> str:
    config = worker.config if isinstance(worker, Process) else {}
    return f"{config.get('role', 'worker')} {config.get('number', '')}"
