"""Find the doubts about a configuration that a layout settles, because its file gives the number itself."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.configs.recognise import RecognisedModel
from kvplan.dsl.configs.write_model import doubted
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Model

# Every layout gives it.
DTYPE = "dtype"


def settled(kinds: Mapping[str, Kind], found: RecognisedModel, layout: Model) -> frozenset[str]:
    """The doubts about numbers that the layout gives. Spellings that contradict each other are not settled so: the file
    may have copied the wrong one."""
    given = _given(kinds, layout)
    remarks = (text for text, name in found.unsure.items() if name in given)
    assumed = (sentence for name, answer, sentence in doubted(found) if name in given and not answer.disputed)
    return frozenset((*remarks, *assumed))


def _given(kinds: Mapping[str, Kind], layout: Model) -> frozenset[str]:
    """The numbers that the file gives, parameters in all caches that have them."""
    caches = layout.caches.values()
    left = {name for cache in caches for name in kinds[cache.kind].params if name not in cache.params}
    return frozenset({DTYPE} | ({name for cache in caches for name in cache.params} - left))
