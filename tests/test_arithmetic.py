"""The second domain: forms of an expression, and a verifier that computes without executing anything."""

import ast
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elite_lightning.domains.arithmetic import FORMS, ArithmeticDomain, ExpressionError, make_problems, parse
from elite_lightning.types import Domain, Problem, Reason

DOMAIN = ArithmeticDomain()
PROBLEM = Problem("p", "?", {"expression": "2 * (3 + 4 + 5)"})


@pytest.mark.parametrize(
    ("solution", "form"),
    [
        ("2 * (3 + 4 + 5)", "direct"),
        (" 2*((3+4)+(5)) ", "direct"),
        ("(3 + 4 + 5) * 2", "commuted"),
        ("2 * (5 + (4 + 3))", "commuted"),
        ("2 * (3 + (4 + 5))", "grouped"),
        ("2 * (3 + 4) + 2 * 5", "grouped"),
        ("2*3 + 2*4 + 2*5", "expanded"),
        ("5*2 + (2*4 + 3*2)", "expanded"),
        ("2*3*4 - 5 + 5", "expanded"),
    ],
)
def test_forms(solution, form):
    assert DOMAIN.verify(PROBLEM, solution).correct
    assert DOMAIN.cell(PROBLEM, solution).approach == form
    assert form in DOMAIN.approaches == FORMS


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ("24", Reason.NOT_ALLOWED),  # other numbers
        ("2 * (3 + 4 + 5) * 1", Reason.NOT_ALLOWED),
        ("2 * (4 + 3) + 5 + 5", None),
        ("2 * 3 + 4 + 5", Reason.WRONG_RESULT),
        ("2 * (3 + 4 + 5", Reason.ERROR),
        ("", Reason.ERROR),
        ("2 +", Reason.ERROR),
        ("2 ** 3 ** 4 ** 5", Reason.NOT_ALLOWED),
        ("-2 * (3 + 4 + 5)", Reason.NOT_ALLOWED),
        ("2(3 + 4 + 5)", Reason.NOT_ALLOWED),
        ("2 * (3, 4, 5)", Reason.NOT_ALLOWED),
        ("24 / 1", Reason.NOT_ALLOWED),
        ("2.0 * (3 + 4 + 5)", Reason.NOT_ALLOWED),
        ("__import__('os').system('true')", Reason.NOT_ALLOWED),
        ("2 * (3 + 4 + 5) # right", Reason.NOT_ALLOWED),
        ("٢ * (3 + 4 + 5)", Reason.NOT_ALLOWED),
        ("5" + "*5" * 20 + "+2+3+4", Reason.TOO_LARGE),
        ("2 * (3 + 4 + 5)" + " + 5 - 5" * 20, Reason.TOO_LARGE),
        ("2 * (3 + 4 + 5)" + "+5-5" * 7, Reason.TOO_LARGE),
        ("9" * 5000, Reason.TOO_LARGE),
        ("*".join(["((5*4)*(3*2))"] * 8), Reason.TOO_LARGE),
        ("(" * 199, Reason.ERROR),
        ("(" * 90 + "2" + ")" * 90, Reason.NOT_ALLOWED),
    ],
)
def test_what_is_not_right_has_its_reason(solution, reason):
    verdict = DOMAIN.verify(PROBLEM, solution)
    assert (verdict.reason, verdict.correct, verdict.reward) == (reason, reason is None, float(reason is None))
    assert "\n" not in verdict.detail


LEAVES = st.integers(0, 20).map(str)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map("".join),
        inner.map("({})".format),
        inner.map(" {} ".format),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.integers(0, 2))
def test_the_verdict_is_the_one_of_python(text, more):
    numbers = {node.value for node in ast.walk(ast.parse(text.strip())) if isinstance(node, ast.Constant)}
    given_text = text + f"+{min(numbers)}" * more
    problem = Problem("p", "?", {"expression": given_text})
    expected = eval(text.strip()) == eval(given_text.strip())
    assert DOMAIN.verify(problem, text).correct is expected


@given(EXPRESSIONS, EXPRESSIONS)
def test_the_strategy_forgets_the_order_of_operands_and_nothing_else(left, right):
    def strategy(text):
        return DOMAIN.strategy(PROBLEM, text)

    for operator in "+*":
        assert strategy(f"({left}){operator}({right})") == strategy(f"({right}){operator}({left})")
    assert strategy(f"({left})-({right})") != strategy(f"({left})+({right})")
    if strategy(left) != strategy(right):
        assert strategy(f"({left})-({right})") != strategy(f"({right})-({left})")
        assert strategy(f"({left})+1") != strategy(f"({right})+1")
    assert strategy(f"(({left})+({right}))+1") != strategy(f"({left})+(({right})+2)")


@given(st.text(max_size=60))
def test_any_text_gets_a_verdict(text):
    solution = DOMAIN.extract(text)
    assert (solution is None) == (not text.strip())
    if solution is not None:
        verdict = DOMAIN.verify(PROBLEM, solution)
        assert verdict.counted


def test_the_cell_counts_operands_and_levels_up_to_a_limit():
    def structure(text):
        return DOMAIN.cell(PROBLEM, text).structure

    assert structure("2 * (3 + 4 + 5)") == "operands=4 depth=3"
    assert structure("2*(3+4) + 2*5") == "operands=5 depth=3"
    assert structure("2*3 + 2*4 + 2*5") == "operands=6 depth=3"
    assert structure("2 * (3 + 4 + 5 + 3 - 3 + 4 - 4 + 5 - 5)") == "operands=8 depth=5"


def test_prompts_name_problem_target_and_parent():
    assert DOMAIN.prompt(PROBLEM) == "rewrite: 2 * (3 + 4 + 5)\nanswer: "
    assert DOMAIN.prompt(PROBLEM, "grouped") == "rewrite: 2 * (3 + 4 + 5)\nform: grouped\nanswer: "
    assert DOMAIN.prompt(PROBLEM, "grouped", "2*3").splitlines()[2] == "from: 2*3"


def test_problems_are_solvable_in_every_form_and_stable():
    problems = make_problems(50, seed=3)
    assert [p.data for p in problems] == [p.data for p in make_problems(50, seed=3)] != make_problems(50, seed=4)
    assert len({p.id for p in problems}) == 50
    for problem in problems:
        a, (b, c, d) = parse(problem.data["expression"])[1], map(int, problem.data["expression"][5:-1].split("+"))
        answers = {
            "direct": problem.data["expression"],
            "commuted": f"({d} + ({b} + {c})) * {a}",
            "grouped": f"{a} * {b} + {a} * ({c} + {d})",
            "expanded": f"{a}*{b} + {a}*{c} + {a}*{d}",
        }
        for form, answer in answers.items():
            assert DOMAIN.verify(problem, answer).correct
            assert DOMAIN.cell(problem, answer).approach == form


def test_it_is_a_domain_that_travels():
    assert isinstance(DOMAIN, Domain)
    assert pickle.loads(pickle.dumps(DOMAIN)).fingerprint() == DOMAIN.fingerprint()


def test_a_broken_problem_says_so():
    with pytest.raises(ExpressionError, match="is not an expression"):
        DOMAIN.verify(Problem("p", "?", {"expression": "2 *"}), "2")
