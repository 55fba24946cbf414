"""`filter.py SESSION EVERY`, run by cosmic-ray's own Python: keep every EVERYth mutant that changes behaviour.

Annotations are not evaluated, decorators say how a class or a function is kept, an f-string is text for people, and
`strict=True` is an assertion.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from cosmic_ray.ast import get_ast_from_path
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

tree = cache(get_ast_from_path)
SKIPPED = ("decorator", "fstring", "tfpdef")
ANNOTATIONS = [("annassign", ":"), ("funcdef", "->")]


def main(session: str, every: int) -> None:
    kept = 0
    with use_db(session) as database:
        for item in list(database.pending_work_items):
            (mutation,) = item.mutations
            leaf = tree(mutation.module_path).get_leaf_for_position(mutation.start_pos)
            skipped = changes_nothing(leaf) or kept % every > 0
            kept += not changes_nothing(leaf)
            if skipped:
                database.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))


def changes_nothing(node: Any) -> bool:
    """Whether a node of parso's tree stands in an annotation, a decorator, an f-string or `strict=`."""
    while (parent := node.parent) is not None:
        before = parent.children[parent.children.index(node) - 1]
        if parent.type in SKIPPED or (parent.type, before) in ANNOTATIONS:
            return True
        if parent.type == "argument" and parent.get_code(include_prefix=False).startswith("strict="):
            return True
        node = parent
    return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
