"""Layout files as an editor reads them: by the core schema of YAML 1.2, which guesses the types of plain values."""

from __future__ import annotations

import re
from pathlib import Path

from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable, read

NULL = re.compile(r"~|null|Null|NULL|")
TRUTH = re.compile(r"true|True|TRUE|false|False|FALSE")
INTEGER = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
BASES = {"0x": 16, "0o": 8}


def seen(path: Path) -> object:
    """A file's value. Raises DslError where it is not YAML at all."""
    return value(read(path).root)


def value(tree: Tree) -> object:
    if isinstance(tree, YamlTable):
        return {str(entry.key): value(entry.value) for entry in tree.entries}
    return scalar(tree) if isinstance(tree, YamlScalar) else [value(item) for item in tree.items]


def scalar(tree: YamlScalar) -> object:
    text = str(tree)
    if tree.quoted or not any(kind.fullmatch(text) for kind in (NULL, TRUTH, INTEGER, FLOAT)):
        return int(text, BASES[text[:2]]) if not tree.quoted and re.fullmatch("0x[0-9a-fA-F]+|0o[0-7]+", text) else text
    if NULL.fullmatch(text):
        return None
    if TRUTH.fullmatch(text):
        return text.lower() == "true"
    return int(text) if INTEGER.fullmatch(text) else float(text)
