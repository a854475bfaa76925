"""Hypothesis strategies for SQL over the table that is held twice: typed expressions, constants at the edges.

Expressions are written as postgres_fdw writes them: constants labelled with their types, operands in parentheses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from integration.gateway.edges import EDGES
from integration.gateway.kinds import KINDS
from integration.gateway.world import EDGE_TYPES

INTEGERS = ("int2", "int4", "int8")
NUMERICS = ("numeric(12,4)", "numeric(20,10)", "numeric(38,6)")
FLOATS = ("float4", "float8")
TEXT_TYPES = ("text", "varchar(20)")
COMPARED = (*INTEGERS, *NUMERICS, *FLOATS, *TEXT_TYPES, "char(8)", "bool", "date", "timestamp", "timestamptz")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
TESTS = ("TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT FALSE", "NOT UNKNOWN")
LABELS = {
    **{"int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real", "float8": "double precision"},
    **{"varchar(20)": "character varying", "char(8)": "bpchar", "bool": "boolean"},
    **{"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"},
    **dict.fromkeys((*NUMERICS, "numeric"), "numeric"),
}
Sql = SearchStrategy[str]


def quoted(text: str) -> str:
    """As deparse.c writes a string."""
    plain = text.replace("'", "''")
    return f"E'{plain}'".replace("\\", "\\\\") if "\\" in text else f"'{plain}'"


def label(name: str) -> str:
    return LABELS.get(name, name)


def columns(*types: str) -> Sql:
    names = [name for name, found in EDGE_TYPES.items() if found in types]
    return st.sampled_from([name if name.islower() and name != "user" else f'"{name}"' for name in names])


def constant(name: str) -> Sql:
    """A value at an edge, or NULL, labelled."""
    edges = st.sampled_from(EDGES[name]).map(lambda text: f"{quoted(text)}::{label(name)}")
    return st.one_of(edges, edges, edges, edges, edges, st.just(f"NULL::{label(name)}"))


def array(name: str) -> Sql:
    def written(items: Sequence[str | None]) -> str:
        escaped = (
            "NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items
        )
        return f"{quoted('{' + ','.join(escaped) + '}')}::{label(name)}[]"

    return st.lists(st.one_of(st.none(), *[st.sampled_from(EDGES[name])] * 5), max_size=4).map(written)


def patterns() -> Sql:
    pieces = st.sampled_from(["%", "_", "a", "b", "ab", "\\%", "\\_", "\\\\", "\\a", "é", "😀", " ", "row 5"])
    return st.lists(pieces, max_size=4).map(lambda found: quoted("".join(found)) + "::text")


def integers(depth: int, *, risky: bool) -> Sql:
    """Integer expressions; risky ones can overflow or divide by zero."""
    leaf = st.one_of(columns(*INTEGERS), columns(*INTEGERS), *(constant(name) for name in INTEGERS))
    if depth == 0:
        return leaf
    inner = integers(depth - 1, risky=risky)
    divisor = st.sampled_from(["2", "(-2)", "7", "(-7)", "3::bigint", "100::smallint", "2147483647", "(-3)::smallint"])
    bits = st.builds("({} {} {})".format, inner, st.sampled_from("&|#"), inner)
    safe = [
        leaf,
        st.builds("({} {} {})".format, inner, st.sampled_from("/%"), divisor),
        st.builds("mod({}, {})".format, columns("int4"), st.just("7")),
        bits,
        st.builds("length({})".format, texts(depth - 1)),
        st.builds("char_length({})".format, columns("char(8)", "text")),
        st.builds("octet_length({})".format, st.one_of(texts(depth - 1), columns("bytea"))),
        st.builds("({} - {})".format, columns("date"), st.one_of(columns("date"), constant("date"))),
        st.builds("{}::{}".format, columns("int2", "int4"), st.just("bigint")),
        cases(inner),
    ]
    failing = [
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("(- {})".format, columns(*INTEGERS)),
        st.builds("abs({})".format, columns(*INTEGERS)),
        st.builds("{}::{}".format, columns("int8", *NUMERICS), st.sampled_from(["smallint", "integer", "bigint"])),
    ]
    return st.one_of(*safe, *(failing * 2 if risky else []))


def cases(inner: Sql) -> Sql:
    condition = comparisons(0)
    searched = st.builds("(CASE WHEN {} THEN {} ELSE {} END)".format, condition, inner, inner)
    return st.one_of(searched, st.builds("(CASE WHEN {} THEN {} END)".format, condition, inner))


def numerics(depth: int) -> Sql:
    leaf = st.one_of(columns(*NUMERICS), columns(*NUMERICS), constant("numeric(12,4)"), constant("numeric(20,10)"))
    if depth == 0:
        return leaf
    inner = numerics(depth - 1)
    mixed = st.one_of(inner, columns(*INTEGERS))
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), mixed),
        st.builds("({} {} {})".format, columns(*INTEGERS), st.sampled_from("+-*"), inner),
        st.builds("(- {})".format, inner),
        st.builds("abs({})".format, inner),
        st.builds("{}::numeric".format, columns(*INTEGERS)),
    )


def texts(depth: int) -> Sql:
    leaf = st.one_of(columns("text", "varchar(20)"), constant("text"))
    if depth <= 0:
        return leaf
    inner = texts(depth - 1)
    start, count = st.sampled_from(["1", "2", "3", "9"]), st.sampled_from(["0", "1", "2", "30"])
    return st.one_of(
        leaf,
        st.builds("({} || {})".format, columns("text"), inner),
        st.builds("substr({}, {}, {})".format, inner, start, count),
        st.builds('"left"({}, {})'.format, columns("text"), count),
        st.builds("{}::text".format, columns("char(8)")),
    )


def moments(depth: int, *, risky: bool) -> Sql:
    leaf = st.one_of(columns("timestamp"), columns("timestamp"), constant("timestamp"))
    if depth == 0 or not risky:
        return leaf
    spans = st.sampled_from(["1 day", "-1 days", "00:00:00.000001", "-23:59:59", "100 days 01:02:03", "1 mon"])
    return st.one_of(
        leaf,
        st.builds("({} {} '{}'::interval)".format, columns("timestamp"), st.sampled_from("+-"), spans),
        st.builds("{}::timestamp without time zone".format, columns("date")),
    )


def days(depth: int, *, risky: bool) -> Sql:
    leaf = st.one_of(columns("date"), columns("date"), constant("date"), columns("timestamp").map("{}::date".format))
    if depth == 0 or not risky:
        return leaf
    count = st.one_of(constant("int4"), columns("int2"), st.sampled_from(["1", "(-1)", "365"]))
    return st.one_of(leaf, st.builds("({} {} {})".format, columns("date"), st.sampled_from("+-"), count))


def _compared(left: Sql, right: Sql) -> Sql:
    operator = st.sampled_from([*OPERATORS, "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
    return st.builds("({} {} {})".format, left, operator, right)


def comparisons(depth: int, *, risky: bool = False) -> Sql:
    """One comparison or test of a value."""
    numbers = st.one_of(integers(depth, risky=risky), numerics(depth))
    floats = st.one_of(columns(*FLOATS), constant("float8"), constant("float4"))
    text = texts(depth)
    found = [
        _compared(integers(depth, risky=risky), integers(depth, risky=risky)),
        _compared(numbers, numbers),
        _compared(columns(*FLOATS), st.one_of(floats, columns(*INTEGERS), constant("numeric(12,4)"))),
        _compared(columns("text", "varchar(20)"), constant("text")),
        _compared(columns("char(8)"), st.one_of(constant("char(8)"), constant("text"))),
        _compared(text, constant("text")),
        *(_compared(columns(name), st.one_of(constant(name), columns(name))) for name in COMPARED[-3:]),
        *(_compared(columns(name), constant(name)) for name in ("uuid", "bytea", "bool")),
        _compared(days(depth, risky=risky), st.one_of(days(0, risky=False), moments(0, risky=False))),
        _compared(moments(depth, risky=risky), st.one_of(moments(0, risky=False), days(0, risky=False))),
        st.builds("({} {} {})".format, text, st.sampled_from(["~~", "!~~"]), patterns()),
        st.builds("starts_with({}, {})".format, columns("text"), constant("text")),
        st.builds("({} IS {}NULL)".format, columns(*EDGES), st.sampled_from(["", "NOT "])),
        *(_listed(name) for name in (*COMPARED, "uuid", "bytea")),
        columns("bool"),
    ]
    return st.one_of(*found)


def _listed(name: str) -> Sql:
    any_of = st.builds("({} {} ANY ({}))".format, columns(name), st.sampled_from(OPERATORS), array(name))
    all_of = st.builds("({} {} ALL ({}))".format, columns(name), st.sampled_from(OPERATORS), array(name))
    return st.one_of(any_of, all_of)


def predicates(depth: int = 2, *, risky: bool = False) -> Sql:
    """Boolean expressions: comparisons under AND, OR, NOT, CASE and tests of truth."""
    leaf = comparisons(max(depth - 1, 0), risky=risky)
    if depth == 0:
        return leaf
    inner = predicates(depth - 1, risky=risky)
    return st.one_of(
        leaf,
        leaf,
        st.builds("(NOT {})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("({} IS {})".format, inner, st.sampled_from(TESTS)),
        cases(inner),
    )


def values(depth: int = 2) -> Sql:
    """Expressions whose printed results are compared."""
    return st.one_of(
        predicates(depth), integers(depth, risky=False), numerics(depth), texts(depth), days(1, risky=False)
    )


def everything_else() -> Sql:
    """Predicates that Postgres evaluates: what has them is right however little DuckDB is asked."""
    return st.one_of(
        st.builds("({} ~ {})".format, columns("text"), st.sampled_from(["'^a'", "'[[:alpha:]]'", "'.'"])),
        st.builds("(lower({}) = {})".format, columns("text"), constant("text")),
        st.builds("({} < {})".format, columns("interval"), constant("interval")),
        st.builds("({} = {})".format, columns("jsonb"), constant("jsonb")),
        st.builds("({} @> {})".format, columns("int[]"), constant("int[]")),
        st.builds("({} > {})".format, columns("mood"), constant("mood")),
        st.builds("({} = {})".format, columns("numeric"), constant("numeric")),
    )


def of_any_kind() -> Sql:
    """Conditions on types that nothing else here has, whoever evaluates them."""
    return st.sampled_from(list(KINDS)).flatmap(_of_kind)


def _of_kind(name: str) -> Sql:
    kind = KINDS[name]
    constants = st.sampled_from([*map(kind.constant, kind.values), kind.constant(None)])
    found = [
        st.builds("({} IS {}NULL)".format, st.just(name), st.sampled_from(["", "NOT "])),
        st.builds("({}::text < {})".format, st.just(name), constant("text")),
        *(
            constants.map(partial(f"({test})".replace("{c}", name).replace, "{v}"))
            for test in kind.tests
            if "{v}" in test
        ),
    ]
    if kind.operators:
        operator = st.sampled_from(kind.operators)
        found += 2 * [st.builds("({} {} {})".format, st.just(name), operator, st.one_of(constants, st.just(name)))]
    if kind.listed:
        items = st.lists(constants, min_size=1, max_size=3).map(", ".join)
        found += [st.builds("({} = ANY (ARRAY[{}]))".format, st.just(name), items)]
        found += [st.builds("({} NOT IN ({}))".format, st.just(name), items)]
    return st.one_of(*found)


def failing() -> Sql:
    """Predicates some rows may fail on; never under AND, whose operands are evaluated in any order."""
    risky = comparisons(2, risky=True)
    return st.one_of(
        risky,
        risky,
        st.builds("(NOT {})".format, risky),
        st.builds("({} OR {})".format, risky, comparisons(0)),
        st.builds("(CASE WHEN {} THEN {} ELSE {} END)".format, comparisons(0), risky, comparisons(0)),
    )


def aggregations() -> Sql:
    """Whole statements with groups: as postgres_fdw pushes them, by place."""
    return st.builds(
        _aggregation,
        st.lists(_keys(), max_size=2, unique=True),
        st.lists(_aggregates(), min_size=1, max_size=3),
        st.one_of(st.none(), predicates(1)),
        st.one_of(st.none(), st.sampled_from(["count(*) > 5", "max(i4) > 100", "count(d) <> 0", "sum(i2) IS NULL"])),
        st.booleans(),
    )


def _keys() -> Sql:
    plain = columns("bool", "mood", "int2", "date", "text", "uuid", "bytea", "numeric(12,4)", "timestamptz")
    simple = st.sampled_from(["(i4 % 10)", "(i8 / 1000)", "length(t)", "tm::date", "(b IS NULL)"])
    return st.one_of(plain, plain, simple, comparisons(1), integers(1, risky=False))


def _aggregates() -> Sql:
    summed = st.one_of(columns(*INTEGERS), columns("numeric(12,4)", "numeric(20,10)"), st.just("(i4 % 7)"))
    ordered = columns(*INTEGERS, *NUMERICS, "date", "timestamp", "timestamptz", "text")
    bare = st.one_of(
        st.just("count(*)"),
        st.builds("count({})".format, columns(*EDGES)),
        st.builds("count(DISTINCT {})".format, columns(*INTEGERS, *NUMERICS, "text", "bool", "uuid", "date", "bytea")),
        st.builds("{}({})".format, st.sampled_from(["sum", "avg"]), summed),
        st.builds("{}({})".format, st.sampled_from(["min", "max"]), ordered),
        st.builds("{}({})".format, st.sampled_from(["bool_and", "bool_or", "every"]), predicates(0)),
    )
    return st.one_of(bare, bare, st.builds("{} FILTER (WHERE {})".format, bare, predicates(0)))


def _aggregation(keys: list[str], aggregates: list[str], where: str | None, having: str | None, ordered: bool) -> str:
    query = f"SELECT {', '.join([*keys, *aggregates])} FROM {{t}}"
    query += f" WHERE {where}" if where else ""
    query += f" GROUP BY {', '.join(str(place) for place, _ in enumerate(keys, 1))}" if keys else ""
    query += f" HAVING ({having})" if having else ""
    if ordered and keys and not any(key.startswith(("mood", "t", "v", "ch", '"user"')) for key in keys):
        query += f" ORDER BY {', '.join(f'{key} DESC NULLS LAST' for key in keys)}"
    return query
