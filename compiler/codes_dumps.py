"""The codes of dumps, D: what is wrong with one, or keeps it from being compared with a layout or made into one."""

from __future__ import annotations

from collections.abc import Mapping

DUMPS: Mapping[str, tuple[str, str]] = {
    "D001": ("the dump is not JSON", "docs/from-cache.md shows a dump, and how an engine prints one."),
    "D002": ("not a dump of version 1", '`"kvplan-dump": 1` is the version of the format that can be read.'),
    "D003": (
        "a dump's mapping or value is not of the right shape",
        "A key is unknown, missing or given twice, or its value is of another type.",
    ),
    "D004": (
        "a number of a dump is out of range",
        "Bytes, counts and indices are whole numbers; ranks lie inside the mesh, kernel blocks divide blocks.",
    ),
    "D005": (
        "a dump's layers and groups do not belong together",
        "Each layer has a name of its own, and is listed in one group, whose number it names.",
    ),
    "D006": (
        "a view reaches beyond its allocation",
        "Offset, shape and strides of a layer reach a byte that the allocation does not have. Strides are in bytes, "
        "not in elements.",
    ),
    "D007": (
        "a dump's view cannot be read",
        "Shape, strides and axes have one entry each per axis: block, and token, head and content as far as there are "
        "such. The type is an element type.",
    ),
    "D008": (
        "nothing says which layer it is",
        "Layers have their number as `layer`, or as the first number between dots in their name.",
    ),
    "D009": ("no layout to compare a dump with", "Name one with --model, or write one from the dump with -o FILE."),
    "D010": (
        "the dump's worker is not one of the side's",
        "The mesh has axes that the engine lacks, or the worker's rank is nobody's. --side says where the layout's "
        "side is another than the dump's.",
    ),
    "D011": ("the engine has no rules for dumps", "An engine's file says under `dump` what its layers store."),
    "D012": (
        "no rule says what a layer stores",
        "None of the rules under `dump` in the engine's file holds for the layer's spec. A new kind of cache needs a "
        "kind file and a rule.",
    ),
    "D013": (
        "a dump does not say all numbers of a model",
        "A rule of the engine's `dump` gives no usable value for a parameter that its kind needs, or none says of "
        "which element type the model is.",
    ),
    "D014": (
        "a dump of one pipeline stage is no whole model",
        "It lacks the layers of the other stages. Print one with a pipeline of one stage; comparing needs no more than "
        "one stage.",
    ),
}
