"""Names and statement ends are found as Postgres would find them."""

from __future__ import annotations

import resource

import pytest

from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.names import references


def test_statements_are_split_outside_strings_only() -> None:
    text = """SELECT ';', E'\\';', "a;b" ; ROLLBACK TO SAVEPOINT s2; -- ; no
    RELEASE s2;"""
    assert lexer.split(text) == [
        """SELECT ';', E'\\';', "a;b\"""",
        "ROLLBACK TO SAVEPOINT s2",
        "-- ; no\n    RELEASE s2",
    ]


def test_a_backslash_ends_no_plain_string() -> None:
    assert [token.text for token in lexer.tokens(r"'a\' , 'b'")] == [r"'a\'", ",", "'b'"]


@pytest.mark.parametrize("text", ["E'" + "ab\\\\''" * 500_000 + "'", "'" + "abc''" * 600_000 + "'"])
def test_a_long_string_takes_little_more_than_its_length(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [token.text for token in lexer.tokens(f"SELECT {text}")] == ["select", text]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_sources_are_found_outside_strings_only() -> None:
    name = '"table 7"."from 2026-01-01 to 2026-02-01"'
    text = f"SELECT '{name}', E'\\'{name}' FROM {name} r1 JOIN {name} r2 ON (r1.x = '{name}')"
    found = references(lexer.tokens(text))
    assert [text[reference.start : reference.end] for reference in found] == [name, name]
    assert found[0].source.table == 7
    replaced = lexer.splice(text, [(reference.start, reference.end, "X") for reference in found])
    assert replaced == f"SELECT '{name}', E'\\'{name}' FROM X r1 JOIN X r2 ON (r1.x = '{name}')"


def test_an_export_names_its_operation_and_snapshot() -> None:
    name = '"table 7 operation 42 snapshot 00000004-00000012-1"."from MINVALUE to 2026-02-01"'
    source = references(lexer.tokens(name))[0].source
    assert (source.table, source.operation, source.snapshot) == (7, 42, "00000004-00000012-1")
    assert source.range.lower is None


@pytest.mark.parametrize(
    "schema", ["table 7 operation 42", "table 7 operation 42 snapshot x'; DROP", "table 0", "table 7 ", "Table 7"]
)
def test_a_schema_of_another_shape_is_none_of_ours(schema: str) -> None:
    assert references(lexer.tokens(f'"{schema}"."from MINVALUE to 2026-02-01"')) == []


@pytest.mark.parametrize("text", ["SELECT 'open", 'SELECT "open', "SELECT $$x$$", "SELECT /* x */ 1", "SELECT E'a\\'"])
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(QueryError):
        lexer.tokens(text)


def test_depth_counts_parentheses() -> None:
    found = lexer.tokens("a (b (c)) FOR")
    assert [(token.text, token.depth) for token in found if token.kind == "word"] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("for", 0),
    ]
