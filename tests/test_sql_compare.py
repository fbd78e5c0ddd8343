"""Equality of results: the rule's table by hand, and its laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elite_lightning.domains.sql.compare import Rows, same_rows

TABLE = [  # gold's rows, the query's rows, equal as multisets, equal as lists
    ([(1,), (2,)], [(2,), (1,)], True, False),
    ([(1,), (1,)], [(1,)], False, False),
    ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
    ([(1, "a")], [("a", 1)], False, False),
    ([(1,)], [(1.0,)], True, True),
    ([(None,)], [(None,)], True, True),
    ([(None,)], [("",)], False, False),
    ([("1",)], [(1,)], False, False),
    ([(b"a",)], [("a",)], False, False),
    ([("A",)], [("a",)], False, False),
    ([(0.1 + 0.2,)], [(0.3,)], True, True),
    ([(0.3,)], [(0.3000001,)], False, False),
    ([(0.0,)], [(1e-17,)], True, True),
    ([(1e300,)], [(math.inf,)], False, False),
    ([(math.inf,)], [(math.inf,)], True, True),
    ([(2**53,)], [(2**53 + 1,)], False, False),
    ([], [], True, True),
    ([], [(None,)], False, False),
    ([(1, 2), (2, 1)], [(1, 2), (1, 2)], False, False),
    # Sorting each side by value would pair these wrongly.
    ([(0.1 + 0.2, "b"), (0.3, "a")], [(0.3, "b"), (0.3, "a")], True, True),
    ([(0.1 + 0.2, 5), (0.3, 7)], [(0.3, 7), (0.3, 5)], True, False),
    ([(0.1 + 0.2, 5), (0.3, 7)], [(0.3, 7), (0.3, 7)], False, False),
]


@pytest.mark.parametrize(("gold", "got", "as_multiset", "as_list"), TABLE)
def test_table_of_cases(gold, got, as_multiset, as_list):
    columns = len((gold or got or [(0,)])[0])
    left, right = Rows(columns, gold), Rows(len((got or gold or [(0,)])[0]), got)
    assert same_rows(left, right, ordered=False) is as_multiset
    assert same_rows(left, right, ordered=True) is as_list
    assert same_rows(right, left, ordered=False) is as_multiset


def test_columns_count_even_without_rows():
    assert not same_rows(Rows(1, []), Rows(2, []), ordered=False)
    assert not same_rows(Rows(1, [(1,)]), Rows(2, [(1, 1)]), ordered=False)


cells = st.one_of(
    st.none(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, 0.3, 2.25]), st.sampled_from(["", "a", b"a"])
)
tables = st.lists(st.tuples(cells, cells), max_size=6)


@given(tables, st.randoms(use_true_random=False))
def test_order_and_noise_do_not_matter_to_a_multiset(rows, random):
    noisy = [tuple(cell * (1 + 1e-13) if isinstance(cell, float) else cell for cell in row) for row in rows]
    random.shuffle(noisy)
    assert same_rows(Rows(2, rows), Rows(2, noisy), ordered=False)


@given(tables, tables)
def test_equal_exactly_when_every_row_occurs_equally_often(left, right):
    """Brute force: take gold's rows away one by one. These floats are far apart, so tolerance plays no part."""
    rest = list(right)
    for row in left:
        if row in rest:
            rest.remove(row)
    brute = len(left) == len(right) and not rest
    assert same_rows(Rows(2, left), Rows(2, right), ordered=False) is brute
    assert same_rows(Rows(2, left), Rows(2, right), ordered=True) is (left == right)
