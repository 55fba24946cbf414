"""The codes of proofs that fail."""

from __future__ import annotations

from collections.abc import Mapping

PROOFS: Mapping[str, tuple[str, str]] = {
    "P001": ("a span cuts an element", "Spans begin and end between elements."),
    "P002": ("the plan is for another side", "The sides that stand in the plan are not those that were bound."),
    "P003": ("not one list of reads per decode worker", "The plan has too many or too few."),
    "P004": ("a share of the tokens is not read", "Every worker that holds tokens in turns has to be read."),
    "P005": ("a read from a worker that has none of it", "The prefill worker does not exist or lacks the group."),
    "P006": ("a read names an unknown pair", "Pairs of groups stand in the plan once, by name."),
    "P007": ("a read says it holds what it does not", "The intervals of a read are those that both workers hold."),
    "P008": ("readers are spread unevenly", "Holders of the same interval get the same number of readers, within one."),
    "P019": ("the plan's frame is not the pair's", "Its model, its digests or what it skips are not what was bound."),
    "P009": ("a prefill worker is never told", "Every worker is read or named as notify-only, or it keeps its blocks."),
    "P010": ("something is written outside its tensor", "A nest runs beyond an axis, or over one that is not there."),
    "P011": ("bytes are written twice", "Every byte that is needed is written exactly once."),
    "P012": ("bytes are not written", "Every byte that is needed is written exactly once."),
    "P013": ("a loop or token step is not what it says", "One step moves one axis by one amount, the same every time."),
    "P014": ("a span names other tensors", "The names in a table are those of the bytes that move."),
    "P015": ("a span pairs unlike coordinates", "Each byte comes from the same layer, head, token and element."),
    "P016": (
        "a span begins or ends in padding",
        "Padding is crossed only between data, and only where it faces padding.",
    ),
    "P017": ("a span leaves its page", "Spans lie inside one page on both sides."),
    "P018": ("the plan does not say what was proved", "The sentence in the header is recomputed and compared."),
}
