"""A second domain, small enough to check by hand: rewrite an expression without changing its value.

A problem shows an expression such as `2 * (3 + 4 + 5)`. Right is any expression of the same value that is made of the
same numbers with `+`, `-`, `*` and parentheses. There are four forms to write it in, and they are the approaches. The
solution is parsed and its tree is computed by hand; nothing is ever executed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator

from elite_lightning.seeds import derive_seed
from elite_lightning.types import Cell, Problem, Reason, Verdict

FORMS = ("direct", "commuted", "grouped", "expanded")
MAX_CHARACTERS = 200
MAX_OPERANDS = 32
MAX_DEPTH = 12
MAX_MAGNITUDE = 10**12
_VERSION = 1
_ALPHABET = re.compile(r"[0-9+\-* ()]*")
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}

# A number, or (operator, left, right).
Tree = int | tuple[str, "Tree", "Tree"]


class ArithmeticDomain:
    """Expressions over small integers; `Problem.data` is `{"expression": "2 * (3 + 4 + 5)"}`.

    The approaches compare a solution's tree to the problem's:

    - `direct`: the same tree, whatever the spaces and superfluous parentheses.
    - `commuted`: the same tree after exchanging the operands of some `+` and `*`.
    - `expanded`: another tree in which no product has a sum or difference as a factor.
    - `grouped`: any other tree, such as `2 * (3 + 4) + 2 * 5`.
    """

    name = "arithmetic"
    approaches = FORMS

    def fingerprint(self) -> str:
        """Hash of the rules' version, the limits and the form of the prompt."""
        probe = self.prompt(Problem("", "", {"expression": "1"}), "direct", "1")
        limits = (MAX_CHARACTERS, MAX_OPERANDS, MAX_DEPTH, MAX_MAGNITUDE)
        return hashlib.sha256(json.dumps([self.name, _VERSION, FORMS, limits, probe]).encode()).hexdigest()

    def prompt(self, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """The expression, and a line each for the form that is asked for and for a parent to start from."""
        lines = [f"rewrite: {problem.data['expression']}"]
        if target is not None:
            lines.append(f"form: {target}")
        if parent is not None:
            lines.append(f"from: {parent}")
        return "\n".join([*lines, "answer: "])

    def extract(self, response: str) -> str | None:
        """The first line that is not blank, or None."""
        return next((line.strip() for line in response.splitlines() if line.strip()), None)

    def verify(self, problem: Problem, solution: str) -> Verdict:
        """Right if the value is the problem's and the numbers are the problem's, each as often as wanted."""
        given = parse(problem.data["expression"])
        try:
            tree = parse(solution)
            if _depth(tree) > MAX_DEPTH or len(list(_numbers(tree))) > MAX_OPERANDS:
                raise ExpressionError(Reason.TOO_LARGE, f"more than {MAX_OPERANDS} numbers or {MAX_DEPTH} levels")
            if set(_numbers(tree)) != set(_numbers(given)):
                raise ExpressionError(Reason.NOT_ALLOWED, "made of other numbers than the problem's")
            value = _value(tree)
        except ExpressionError as error:
            return Verdict(False, 0.0, error.reason, str(error))
        if value != _value(given):
            return Verdict(False, 0.0, Reason.WRONG_RESULT, f"is {value}, not {_value(given)}")
        return Verdict(True, 1.0)

    def cell(self, problem: Problem, solution: str) -> Cell:
        """The form, and the numbers of operands and levels in the tree, each up to a limit."""
        tree = parse(solution)
        operands, depth = min(len(list(_numbers(tree))), 8), min(_depth(tree), 5)
        return Cell(_form(parse(problem.data["expression"]), tree), f"operands={operands} depth={depth}")

    def strategy(self, problem: Problem, solution: str) -> str:  # noqa: ARG002 - the key is the same for any problem
        """The expression's tree with the operands of `+` and `*` in a fixed order."""
        return _canonical(parse(solution))

    def tree_features(self, solution: str) -> dict[str, int] | None:
        """How often each edge occurs in the expression's tree; see `elite_lightning.types.TreeDomain`.

        An edge to a number counts as one to any number and as one to this number: here numbers are what names are in
        other languages. The operands of `+` and `*` have no order.
        """
        try:
            return dict(Counter(_edges("", parse(solution))))
        except ExpressionError:
            return None


class ExpressionError(ValueError):
    """An expression that is not taken.

    Args:
        reason: Which of the closed list of reasons it is.
        detail: One line for people.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def make_problems(count: int, seed: int = 0) -> list[Problem]:
    """Problems of the kind `a * (b + c + d)` with different numbers from 2 to 9.

    Args:
        count: How many.
        seed: Decides the numbers.

    Returns:
        Problems `arithmetic-0` and so on; expressions may repeat once there are thousands.
    """
    draws = random.Random(derive_seed(seed, "arithmetic"))
    problems = []
    for index in range(count):
        a, b, c, d = draws.sample(range(2, 10), 4)
        expression = f"{a} * ({b} + {c} + {d})"
        problems.append(Problem(f"arithmetic-{index}", f"Rewrite {expression}", {"expression": expression}))
    return problems


def parse(text: str) -> Tree:
    """Read an expression into a tree.

    Args:
        text: Numbers, `+`, `-`, `*` and parentheses.

    Returns:
        A number, or (operator, left, right).

    Raises:
        ExpressionError: If there is anything else in it, or it is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(Reason.TOO_LARGE, f"longer than {MAX_CHARACTERS} characters")
    # Checked before parsing: names, powers of names, strings and comments never reach the parser.
    if not _ALPHABET.fullmatch(text):
        raise ExpressionError(Reason.NOT_ALLOWED, "holds something other than numbers, + - * and parentheses")
    try:
        root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ExpressionError(Reason.ERROR, f"is not an expression: {error}") from None
    return _tree(root)


def _tree(node: ast.expr) -> Tree:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return (_OPERATORS[type(node.op)], _tree(node.left), _tree(node.right))
    raise ExpressionError(Reason.NOT_ALLOWED, f"holds a {type(node).__name__}")


def _value(tree: Tree) -> int:
    if isinstance(tree, int):
        value = tree
    else:
        operator, left, right = tree[0], _value(tree[1]), _value(tree[2])
        value = left + right if operator == "+" else left - right if operator == "-" else left * right
    if abs(value) > MAX_MAGNITUDE:
        raise ExpressionError(Reason.TOO_LARGE, f"passes {MAX_MAGNITUDE} on the way")
    return value


def _numbers(tree: Tree) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        yield from _numbers(tree[1])
        yield from _numbers(tree[2])


def _edges(place: str, tree: Tree) -> Iterator[str]:
    """The edges of a tree that hangs from a place, such as the left of a difference."""
    if isinstance(tree, int):
        yield from (f"{place}>number", f"{place}>{tree}")
        return
    operator, left, right = tree
    yield f"{place}>{operator}"
    for side, child in (("left", left), ("right", right)):
        yield from _edges(f"- {side}" if operator == "-" else operator, child)


def _depth(tree: Tree) -> int:
    return 0 if isinstance(tree, int) else 1 + max(_depth(tree[1]), _depth(tree[2]))


def _canonical(tree: Tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    operands = [_canonical(tree[1]), _canonical(tree[2])]
    if tree[0] != "-":
        operands.sort()
    return f"({tree[0]} {' '.join(operands)})"


def _form(given: Tree, tree: Tree) -> str:
    if tree == given:
        return "direct"
    if _canonical(tree) == _canonical(given):
        return "commuted"
    return "expanded" if _is_expanded(tree) else "grouped"


def _is_expanded(tree: Tree) -> bool:
    """Whether no product has a sum or a difference as a factor."""
    if isinstance(tree, int):
        return True
    children = tree[1:]
    if tree[0] == "*" and any(not isinstance(child, int) and child[0] != "*" for child in children):
        return False
    return all(map(_is_expanded, children))
