import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan.types import Loop, Nest

NEST = Nest(
    ("k",), (2, 5), (1, 7), 16, (Loop("layer", 2, (1, 0), (3, 0)), Loop("head", 3, (0, 100), (0, 10))), (16, 32)
)


def test_loops_run_outermost_first() -> None:
    spelled = [(2 + layer, 5 + 100 * head, 1 + 3 * layer, 7 + 10 * head, 16) for layer in range(2) for head in range(3)]
    assert rows.expand((NEST,)).tolist() == [list(row) for row in spelled]
    assert rows.size((NEST,)) == 6


def test_token_steps_are_columns() -> None:
    assert rows.expand_tokens((NEST,))[:, rows.P_TOKEN :].tolist() == [[16, 32]] * 6
    assert rows.expand_tokens((Nest((), (0, 0), (0, 0), 4),)).tolist() == [[0, 0, 0, 0, 4, 0, 0]]


def test_nests_follow_each_other_and_none_is_no_row() -> None:
    assert len(rows.expand((NEST, NEST))) == 12
    assert rows.expand(()).shape == (0, 5)
    assert rows.expand(()).dtype == np.int64


def test_rows_of_a_page_that_run_on_into_each_other_are_one() -> None:
    page = np.array([[0, 8, 1, 0, 4], [0, 20, 1, 16, 4], [0, 12, 1, 4, 8], [0, 24, 2, 20, 4], [0, 30, 1, 20, 4]])
    assert rows.joined(page).tolist() == [[0, 8, 1, 0, 12], [0, 20, 1, 16, 4], [0, 30, 1, 20, 4], [0, 24, 2, 20, 4]]
    assert rows.joined(page[:0]).shape == (0, 5)
