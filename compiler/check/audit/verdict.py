"""What an audit found: bytes by fault, and for each sort of fault the first byte in words."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.compiler.words import many

FAULTS = ("missing", "double", "wrong", "before", "outside")


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes that are wrong alike: the first of them, at `offset` of a decode worker's plane, in words.

    `bytes` counts all of them, the first too; `copies` are the copies that wrote the first, by index in the list.
    """

    fault: str
    worker: int
    plane: str
    offset: int
    text: str
    bytes: int
    copies: tuple[int, ...] = ()

    def line(self) -> str:
        by = f" (copy {', '.join(map(str, self.copies))})" if self.copies else ""
        return f"decode worker {self.worker} · {self.text}; {many(self.bytes, 'byte')} like it{by}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts are bytes but for `workers`, `planes` and `copies`. `bytes` are those that the request needs.

    Faults: needed and not written (`missing`), written more than once (`double`) or with another byte (`wrong`);
    written `before` the first token asked for, or `outside` of the request's own blocks. Allowed: own blocks `beyond`
    what is needed, and `padding`. `others` are faulty bytes of which no finding tells.
    """

    workers: int
    planes: int
    copies: int
    bytes: int
    missing: int = 0
    double: int = 0
    wrong: int = 0
    before: int = 0
    outside: int = 0
    beyond: int = 0
    padding: int = 0
    findings: tuple[Finding, ...] = ()
    others: int = 0

    @property
    def right(self) -> bool:
        return not any(getattr(self, fault) for fault in FAULTS)

    def text(self) -> str:
        """What was compared, what was found, and every finding on a line of its own."""
        where = f"{many(self.planes, 'plane')} of {many(self.workers, 'decode worker')}"
        copies = "1 copy" if self.copies == 1 else f"{self.copies:,} copies"
        said = f"{many(self.bytes, 'needed byte')} in {where}, {copies}"
        if self.right:
            return f"OK: {said}: each written once, from its own coordinate{self._spare()}"
        counts = ", ".join(f"{getattr(self, fault):,} {fault}" for fault in FAULTS if getattr(self, fault))
        rest = [f"{many(self.others, 'byte')} in other ways"] if self.others else []
        return "\n  ".join([f"WRONG: {said}: {counts}", *(finding.line() for finding in self.findings), *rest])

    def _spare(self) -> str:
        """What was written besides, and may be."""
        words = {"beyond what is needed": self.beyond, "of padding": self.padding}
        return "".join(f"; {many(count, 'byte')} {word} written, too" for word, count in words.items() if count)
