"""The benchmark of the time that remains after a prompt's last layer, run once in host memory."""

import pytest
from tests.demo.test_demo import needs_nixl

from kvplan.bench import layers


@pytest.mark.full
@needs_nixl
def test_a_prompt_is_moved_layer_by_layer_and_whole() -> None:
    (row,) = layers.measure(2)
    assert (row.area, row.pairs) == (layers.AREA, 2)


def test_the_clock_completes_events_in_order() -> None:
    first, last = layers.ClockCompute().begin((0.0, 1.0))
    assert first.query()
    assert not last.query()
