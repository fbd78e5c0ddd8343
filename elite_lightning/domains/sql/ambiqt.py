"""AmbiQT's own rule for which of a question's two interpretations a query answers.

Source: Bhaskar 2023, "Benchmarking and Improving Text-to-SQL Generation under Ambiguity" (arXiv 2310.13659), and the
behaviour of `benchmark/*/evaluate.py` in testzer0/AmbiQT at commit 2dd908bd. AmbiQT changes schemas on paper only,
and rows cannot tell two synonyms apart. So a query is not run on a changed database: its tokens are rewritten to the
original schema, once for each interpretation, and the result has to give the rows of the original query on the
original database.

| kind | first interpretation | second interpretation |
|---|---|---|
| `col-synonyms` (C), `tbl-synonyms` (T) | rewritten from the first synonym | rewritten from the second synonym |
| `tbl-split` (J), `tbl-agg` (P) | as it is | rewritten, if it is not right as it is |

Rewriting from a synonym also exchanges the original name for the synonym, so that a query with the original name
fails.

Peculiarities of the official rule that are kept, because scores would differ without them: words are exchanged within
literals too; an alias is two characters and a dot, so `singer.age` and `s.age` are not rewritten for C and J; for T a
word with one dot loses the dot and its column, so a query that qualifies a column by the table's name never matches;
the second join pattern of J has the column's name in the table's place, so only the order "table, then split table"
is known; a key in upper case is never found; and for C, J and P what stands before an `@` is cut off, e-mail
addresses in literals included.

What is not kept: the official judges count every query as right whose GOLD does not run or, for its exact-set and
Spider judges, does not parse (there is no such original query in the validation files under this judge); they fail on
an empty prediction, which is wrong here; and they run predictions on a writable connection without a limit. Of the
three official judges this is the third, "direct execution": exact equality of rows, as lists where ` order by `
occurs in the original query, else as sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elite_lightning.errors import UsageError

KINDS = ("col-synonyms", "tbl-synonyms", "tbl-split", "tbl-agg")

_AGGREGATES = ("count", "avg", "sum", "min", "max")
_QUOTES = "\"'`"

Matches = Callable[[str], bool]


def ambiqt_hits(
    kind: str, ambiguity: Mapping[str, Any], original: str, prediction: str, matches: Matches
) -> tuple[bool, bool]:
    """Which of the two interpretations a prediction answers.

    Args:
        kind: One of `KINDS`.
        ambiguity: What the benchmark's entry says about the change: `extra_map` (C), `extra_table_map` (T),
            `split_map` and `primary_key` (J), or `new_table_name` (P).
        original: Spider's query, `orig_query`.
        prediction: The query to be judged.
        matches: Whether a query gives the original query's rows on the original database.

    Raises:
        UsageError: If the kind is unknown, or `ambiguity` does not hold what the kind needs.
    """
    if not prediction.strip(" ;\t\r\n"):
        return False, False
    try:
        if kind in ("col-synonyms", "tbl-synonyms"):
            first, second = (_from_synonym(kind, ambiguity, prediction, number) for number in (0, 1))
            return bool(first) and matches(first), bool(second) and matches(second)
        as_is = _after_at(prediction)
        if not as_is or matches(as_is):
            return bool(as_is), False
        return False, matches(_to_one_table(kind, ambiguity, original, as_is))
    except KeyError as error:
        raise UsageError(f"an AmbiQT problem of kind {kind!r} has no {error}: read it with AmbiqtSource") from error


def ambiqt_outputs(outputs: Sequence[str] | Sequence[Sequence[str]], k: int) -> list[str]:
    """The k predictions that the official evaluation looks at.

    A list of queries is cut off after k. Of a list of lists (templates, and fillings of each) it takes different
    queries in the order of 3 * i + 2 * j, where j is the place in list i.

    Args:
        outputs: A model's outputs for one question.
        k: How many.
    """
    if not outputs or isinstance(outputs[0], str):
        return [str(output) for output in outputs[:k]]
    ranked = [(3 * i + 2 * j, query) for i, queries in enumerate(outputs) for j, query in enumerate(queries)]
    return list(dict.fromkeys(query for _, query in sorted(ranked, key=lambda pair: pair[0])))[:k]


def same_rows_as_ambiqt(original: str, wanted: Sequence[tuple[Any, ...]], got: Sequence[tuple[Any, ...]]) -> bool:
    """AmbiQT's direct execution match: lists where ` order by ` occurs in the normalised original query, else sets."""
    if " order by " in normalised(original):
        return list(wanted) == list(got)
    return set(wanted) == set(got)


def normalised(sql: str) -> str:
    """Lower case outside quotes, single spaces, none before commas and within parentheses, one last `;` less."""
    letters, quote = [], ""
    for letter in sql.removesuffix(";").replace("``", "`"):
        letters.append(letter if quote else letter.lower())
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
    return _tight(" ".join("".join(letters).split()))


def _tight(sql: str) -> str:
    sql = sql.replace(" ,", ",").replace("( ", "(").replace(" )", ")")
    for name in _AGGREGATES:
        sql = sql.replace(f"{name} (", f"{name}(")
    return sql.replace(") ,", "),")


def _words(sql: str, separators: str = ",()") -> list[str]:
    for separator in separators:
        sql = sql.replace(separator, f" {separator} ")
    return sql.split()


def _after_at(sql: str) -> str:
    return sql.rpartition("@")[2].strip() if "@" in sql else sql


def _from_synonym(kind: str, ambiguity: Mapping[str, Any], sql: str, number: int) -> str:
    """C and T: exchange one synonym and the original name, word by word."""
    if kind == "col-synonyms":
        pairs = [pair for columns in ambiguity["extra_map"].values() for pair in columns.items()]
    else:
        pairs = list(ambiguity["extra_table_map"].items())
    exchange = {original.lower(): synonyms[number].lower() for original, synonyms in pairs}
    exchange |= {synonyms[number].lower(): original.lower() for original, synonyms in pairs}
    exchanged = _exchanged_column if kind == "col-synonyms" else _exchanged_table
    rewritten = normalised(" ".join(exchanged(word, exchange) for word in _words(normalised(sql))))
    return _after_at(rewritten) if kind == "col-synonyms" else rewritten


def _exchanged_column(word: str, exchange: Mapping[str, str]) -> str:
    alias, name = _split_alias(word)
    return alias + exchange.get(name.lower(), name)


def _exchanged_table(word: str, exchange: Mapping[str, str]) -> str:
    if word.count(".") != 1:
        return exchange.get(word, word)
    table = word.partition(".")[0]
    return exchange[table] + table if table in exchange else word


def _split_alias(word: str) -> tuple[str, str]:
    """An alias with its dot, if there are two characters before one, and the rest."""
    return (word[:3], word[3:]) if len(word) > 3 and word[2] == "." else ("", word)


def _to_one_table(kind: str, ambiguity: Mapping[str, Any], original: str, sql: str) -> str:
    if kind == "tbl-split":
        return _without_split(ambiguity["split_map"], ambiguity["primary_key"], sql)
    if kind == "tbl-agg":
        return _without_aggregates(original, ambiguity["new_table_name"], sql)
    raise UsageError(f"AmbiQT has no kind {kind!r}: choose one of {', '.join(KINDS)}")


def _without_split(split: Mapping[str, str], primary_key: Mapping[str, str], sql: str) -> str:
    """J: the join of a table with its split-off column becomes the table, and aliases go."""
    (table, column), key = next(iter(split.items())), next(iter(primary_key.values()))
    table, column = table.lower(), column.lower()
    sql = normalised(sql)
    for sources in (f"{table} as t1 join {table}_{column} as t2", f"{table}_{column} as t1 join {column} as t2"):
        for left, right in (("t1", "t2"), ("t2", "t1")):
            sql = sql.replace(f"{sources} on {left}.{key} = {right}.{key}", table)
    return _tight(" ".join(_split_alias(word)[1] for word in _words(sql)))


def _without_aggregates(original: str, table: str, sql: str) -> str:
    """P: columns of the aggregate table become the original query's terms, its name the original sources."""
    original = normalised(original)
    terms = _terms(original, table)
    sql = normalised(" ".join(terms.get(word, word) for word in _words(normalised(sql), ",")))
    selected = sql[sql.find("select") + len("select") : sql.find("from")].strip().split(",")
    groups = [*_hidden_groups(original), *(term.strip() for term in selected if "(" not in term)]
    if groups:
        end = sql.find(" having ") if " having " in sql else len(sql)
        sql = f"{sql[:end]} group by {groups[0]}{sql[end:]}"
    return normalised(sql)


def _terms(original: str, table: str) -> dict[str, str]:
    """What each word of a query on the aggregate table stands for."""
    original = " ".join(_words(original, ","))
    terms = {"number": "count(*)"} if "count(*)" in original else {}
    clauses = (f" {clause} " for clause in ("where", "group by", "having"))
    end = next((original.find(clause) for clause in clauses if clause in original), len(original))
    terms[table] = original[original.find(" from ") + len(" from ") : end].strip()
    if " having " in original:
        terms["where"] = "having"
    for word in original.split():
        has_alias = word[:1] == "t" and word[2:3] == "."
        if "(" in word:
            name, argument = word[: word.find("(")], word[word.find("(") + 1 : word.rfind(")")]
            has_alias = len(argument) > 2 and argument[0] == "t" and argument[2] == "."
            terms[f"{name}_{argument[3:] if has_alias else argument}"] = word
        elif has_alias:
            terms[word[3:]] = word
    return terms


def _hidden_groups(original: str) -> list[str]:
    """Queries on countries' languages group by a column that they do not select."""
    grouped = "group by countrycode" in original
    selects_code = "countrycode" in original[: original.find(" from")]
    return ["countrycode"] if grouped and (not selects_code or original.startswith("select language,")) else []
