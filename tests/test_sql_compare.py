"""Equality of results: the rule's table by hand, and its laws."""

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.domains.sql.compare import MATCHED_ROWS, Rows, rows_fit, same_rows

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
    ([(2**53 + 1,)], [(float(2**53),)], False, False),
    # Whole numbers are exact below 2^53, whatever their type; beyond, a REAL is not.
    ([(1.7e9,)], [(1.7e9 + 1,)], False, False),
    ([(1.7e9,)], [(1.7e9 + 0.5,)], True, True),
    ([(1.7e9 + 0.5,)], [(1.7e9,)], True, True),
    ([(12345678902,)], [(12345678902.5,)], False, False),
    ([(3.0000000000000004,)], [(3.0,)], True, True),
    ([(3.0000000000000004,)], [(3,)], False, False),
    ([(1e17,)], [(1e17 + 16,)], True, True),
    # A tolerance does not add up from row to row: 0.5 and 0.5 + 1e-9 are too far apart, each is near what lies between.
    ([(0.5,), (0.5 + 4e-10,), (0.5 + 1e-9,)], [(0.5,), (0.5 + 4e-10,), (0.5 + 4e-10,)], False, False),
    ([(0.5,), (0.5 + 4e-10,), (0.5 + 8e-10,)], [(0.5,)] * 3, False, False),
    ([(1,), (1.0,)], [(1,), (1 + 1e-13,)], True, True),
    ([(1,), (1,)], [(1,), (1 + 1e-13,)], False, False),
    ([(0.5,), (0.5 + 8e-10,)], [(0.5 + 4e-10,), (0.5,)], True, False),  # 0.5 leaves its nearest to who has no other
    ([(0.5, 1), (0.5 + 4e-10, 2)], [(0.5 + 8e-10, 2), (0.5 + 4e-10, 1)], True, False),
    ([(1.7e9 + i,) for i in range(5)], [(1.7e9 + i + 1e-7,) for i in (4, 2, 0, 1, 3)], True, False),
    ([(1.7e9 + i,) for i in range(5)], [(1.7e9 + i,) for i in (1, 1, 2, 3, 4)], False, False),
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


NEAR = st.sampled_from([0, 1, 1.0, 2.0, None, "a", *(0.5 + i * 2e-10 for i in range(5)), 1 + 4e-10, 1 - 4e-10])


def by_definition(left, right) -> bool:
    """Equality of two cells, by the words of the documentation."""
    if type(left) is float and type(right) is float and left % 1 + right % 1 > 0:
        return abs(left - right) <= 1e-9 * max(abs(left), abs(right))
    return left == right


@settings(max_examples=500, deadline=None)
@given(st.lists(NEAR, max_size=4), st.lists(NEAR, max_size=5))
def test_each_row_has_a_partner_of_its_own_that_is_near(taken, choice):
    """Brute force over all pairings; among many rows, as those far away here, one may be missed and none invented."""
    pairings = [list(zip(taken, order, strict=True)) for order in permutations(choice, len(taken))]
    possible = any(all(by_definition(*pair) for pair in pairing) for pairing in pairings)
    assert rows_fit([(cell,) for cell in taken], [(cell,) for cell in choice]) is possible
    many = [(float(number),) for number in range(10, 10 + MATCHED_ROWS)]
    assert possible or not rows_fit([(cell,) for cell in taken] + many, [(cell,) for cell in choice] + many)


def test_noise_in_many_rows_does_not_matter_and_a_changed_row_does():
    """REALs in two columns, whole ones and neighbours of whole ones among them, beside integers and texts."""
    rows = [(i % 3, 0.1 * (i % 5), 1.7e9 + i / 2, "ab"[i % 2]) for i in reversed(range(4 * MATCHED_ROWS))]
    noisy = [(a, b * (1 + 3e-16), c * (1 - 3e-16), d) for a, b, c, d in reversed(rows)]
    assert same_rows(Rows(4, rows), Rows(4, noisy), ordered=False)
    many = [(float(number),) for number in range(10, 10 + MATCHED_ROWS)]
    assert rows_fit([(1,), (1 + 1e-13,), *many], [(1.0,), (1,), *many])
    first = noisy[0]
    changes = [(0, first[0] + 1), (0, first[0] + 1e-9), (1, first[1] + 1e-6), (2, first[2] + 3.25), (3, "c")]
    for column, other in changes:
        row = (*first[:column], other, *first[column + 1 :])
        assert not same_rows(Rows(4, rows), Rows(4, [row, *noisy[1:]]), ordered=False)
