"""The result of an audit: bytes by fault, and for each kind of error the first byte in words."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.compiler.words import many

FAULTS = ("missing", "double", "wrong", "before", "outside")
# Faults that only a plan's own copies can have.
STRICT_FAULTS = ("beyond", "spilled", "loose")


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes with one fault: the first of them, at `offset` of a decode worker's plane, in words.

    `bytes` counts all of them, including the first; `copies` wrote the first, by index in the list.
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
    """Counts are bytes except `workers`, `planes` and `copies`. `bytes` are those that the request needs.

    Faults: needed and not written (`missing`), written more than once (`double`) or with another byte (`wrong`);
    written `before` the first requested token, or `outside` of the request's own blocks. Allowed: own blocks `beyond`
    what is needed, and `padding`. A `strict` verdict, on a plan's copies, allows only padding inside a page that is
    written from padding. It also counts bytes beyond what is needed, bytes `spilled` into padding, and unneeded bytes
    at which a copy begins or ends (`loose`); `crowded` are sentences on unevenly spread readers. `others` are faulty
    bytes that no finding mentions.
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
    spilled: int = 0
    loose: int = 0
    strict: bool = False
    findings: tuple[Finding, ...] = ()
    others: int = 0
    crowded: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """The kinds of faults that occurred."""
        counted = (*FAULTS, *STRICT_FAULTS) if self.strict else FAULTS
        return tuple(fault for fault in counted if getattr(self, fault))

    @property
    def right(self) -> bool:
        return not self.faults and not self.crowded

    def text(self) -> str:
        """Return what was compared, what was found, and every finding on its own line."""
        where = f"{many(self.planes, 'KV cache tensor')} of {many(self.workers, 'decode worker')}"
        copies = "1 copy" if self.copies == 1 else f"{self.copies:,} copies"
        compared = f"{many(self.bytes, 'needed byte')} in {where}, {copies}"
        if self.right:
            return f"OK: {compared}: each written once, from its own coordinate{self._spare()}"
        counts = [f"{getattr(self, fault):,} {fault}" for fault in self.faults]
        counts += [f"{len(self.crowded):,} crowded"] if self.crowded else []
        rest = [f"{many(self.others, 'byte')} in other ways"] if self.others else []
        lines = [*(finding.line() for finding in self.findings), *rest, *self.crowded]
        return "\n  ".join([f"WRONG: {compared}: {', '.join(counts)}", *lines])

    def _spare(self) -> str:
        """Say which unneeded bytes were written and may be."""
        words = {"beyond what is needed": self.beyond, "of padding": self.padding}
        return "".join(f"; {many(count, 'byte')} {word} written, too" for word, count in words.items() if count)
