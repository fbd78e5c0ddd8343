"""Comparison rules by name: the benchmarks' own, and the stricter default. docs/sql_rules.md compares them."""

from elite_lightning.domains.sql.rules.ambiqt import AMBIQT_DIRECT
from elite_lightning.domains.sql.rules.base import Database, Pair, Query, Rule
from elite_lightning.domains.sql.rules.bird import BIRD_EX, SOFT_F1
from elite_lightning.domains.sql.rules.r_ves import R_VES
from elite_lightning.domains.sql.rules.spider import SPIDER_EXEC
from elite_lightning.domains.sql.rules.strict import DEFAULT
from elite_lightning.domains.sql.rules.suite import TEST_SUITE, TEST_SUITE_KEEP_DISTINCT
from elite_lightning.errors import UsageError

__all__ = ["RULES", "Database", "Pair", "Query", "Rule", "rule_named"]

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        DEFAULT,
        BIRD_EX,
        SOFT_F1,
        R_VES,
        SPIDER_EXEC,
        TEST_SUITE,
        TEST_SUITE_KEEP_DISTINCT,
        AMBIQT_DIRECT,
    )
}


def rule_named(name: str) -> Rule:
    """The rule of that name.

    Raises:
        UsageError: If there is none.
    """
    if name not in RULES:
        raise UsageError(f"no comparison rule is called {name!r}: choose one of {', '.join(RULES)}")
    return RULES[name]
