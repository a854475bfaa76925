"""What explain says is what happens: partitions, files, who evaluates what; and nothing is run."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fix_commands import Run
from frostline.gateway.server import Gateway
from integration.gateway.pair import Pair
from integration.gateway.world import DENSE_FILES, FIRST_EDGE, World, rows

JANUARY = "ts >= '2026-01-01' AND ts < '2026-02-01'"


def explain(connection: psycopg.Connection[Any], statement: str) -> dict[str, dict[str, Any]]:
    """One line per relation."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM frostline.explain(%s)", [statement]).fetchall()
    return {f"{line['relation'].removeprefix('public.')} {line['tier']}": line for line in found}


def test_hot_cold_and_pruned_partitions_are_told(connection: psycopg.Connection[Any]) -> None:
    assert set(explain(connection, "SELECT * FROM events")) == {
        *(f"events_{number} cold" for number in range(3)),
        "events_hot hot",
    }
    assert set(explain(connection, f"SELECT * FROM events WHERE {JANUARY}")) == {"events_1 cold", "events pruned"}
    # now() is known when the statement starts.
    found = explain(connection, "SELECT * FROM events e JOIN copy c USING (id) WHERE e.ts > now() - interval '1 s'")
    assert set(found) == {"events_hot hot", "copy plain", "events pruned"}
    assert found["events pruned"]["why"] == "3 of 4 partitions are not read"
    assert found["events_hot hot"]["engine"] == "Postgres"


def test_a_statement_for_duckdb(world: World, connection: psycopg.Connection[Any]) -> None:
    found = explain(connection, f"SELECT id FROM events WHERE i4 = 5 AND {JANUARY}")["events_1 cold"]
    file = next(iter(world.lake.scan().plan_files())).file
    assert found["engine"] == "DuckDB"
    assert found["snapshot"] == world.lake.current_snapshot().snapshot_id
    assert (found["files"], found["of_files"]) == (1, 1)
    assert (found["bytes"], found["of_bytes"]) == (file.file_size_in_bytes, file.file_size_in_bytes)
    assert found["pushed"].endswith("i4 = 5")
    assert (found["kept"], found["why"], found["delta_rows"]) == ("", None, 0)
    assert found["remote"].startswith('SELECT id FROM "table')


def test_files_and_bytes_after_pruning_out_of_how_many(pair: Pair) -> None:
    """By what the files' statistics say of the rows' ids."""
    files = [task.file for task in pair.world.lake.scan().plan_files()]
    least = min(_bound(file.lower_bounds) for file in files)
    counts = set()
    for low, high in ((least, least + 3), (7, 7), (700, 790), (FIRST_EDGE + 390, FIRST_EDGE + 500), (-(2**40), 2**40)):
        condition = f"id >= {low} AND id <= {high} AND {JANUARY}"
        line = explain(pair.connection, f"SELECT t FROM events WHERE {condition}")["events_1 cold"]
        read = [file for file in files if _bound(file.lower_bounds) <= high and _bound(file.upper_bounds) >= low]
        assert (line["files"], line["of_files"]) == (len(read), DENSE_FILES), condition
        assert line["bytes"] == sum(file.file_size_in_bytes for file in read), condition
        assert line["of_bytes"] == sum(file.file_size_in_bytes for file in files)
        counts.add(len(read))
    assert counts > {1, DENSE_FILES}


def _bound(bounds: dict[int, bytes]) -> int:
    """Of the ids, the first field."""
    return int.from_bytes(bounds[1], "little", signed=True)


def test_what_postgres_evaluates_and_why(connection: psycopg.Connection[Any]) -> None:
    found = explain(connection, f"SELECT id FROM events WHERE i4 = 5 AND repeat(t, 2) ~ 'x' AND {JANUARY}")
    line = found["events_1 cold"]
    assert line["engine"] == "Postgres, over rows from DuckDB"
    assert line["pushed"].endswith("i4 = 5")
    assert line["kept"] == "repeat(t, 2) ~ 'x'::text"
    assert line["why"]
    # What is not even sent: postgres_fdw keeps it.
    local = explain(connection, f"SELECT id FROM events WHERE random() < id AND {JANUARY}")["events_1 cold"]
    assert (local["engine"], local["why"]) == ("DuckDB", None)
    assert "random()" in local["kept"]


def test_a_parameter_of_a_join_is_not_taken_for_null(connection: psycopg.Connection[Any]) -> None:
    for setting in ("hashjoin", "mergejoin", "material"):
        connection.execute(f"SET enable_{setting} = off")
    query = (
        "SELECT * FROM (VALUES (5), (6)) v (k), LATERAL"
        " (SELECT id FROM events WHERE id = v.k AND ts < '2026-01-01' OFFSET 0) e"
    )
    found = explain(connection, query)["events_0 cold"]
    assert "$1" in found["remote"]
    assert (found["engine"], found["files"], found["of_files"]) == ("DuckDB", 1, 1)


def test_delta_rows_are_counted(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO frostline_delta.events SELECT *, 'T', id, 0 FROM copy WHERE id IN (1, 2, 2000)")
    try:
        found = explain(connection, "SELECT * FROM events")
        assert [found[f"events_{n} cold"]["delta_rows"] for n in range(3)] == [2, 1, 0]
    finally:
        connection.execute("DELETE FROM frostline_delta.events")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET i4 = 0 WHERE id = 7000",
        "DELETE FROM events WHERE id = 7000",
        "INSERT INTO events SELECT * FROM copy WHERE id = 7000",
        "WITH gone AS (DELETE FROM events_hot WHERE id = 7000 RETURNING *) SELECT * FROM gone JOIN events USING (id)",
        "SELECT count(*) FROM events a JOIN events b USING (id) WHERE a.ts < '2026-03-01' AND b.ts < '2026-03-01'",
    ],
)
def test_any_statement_is_explained_and_none_is_run(connection: psycopg.Connection[Any], statement: str) -> None:
    before = rows(connection, "SELECT * FROM events_hot WHERE id = 7000")
    assert explain(connection, statement)
    assert rows(connection, "SELECT * FROM events_hot WHERE id = 7000") == before


@pytest.mark.parametrize(
    "statement", ["SELECT 1; DELETE FROM events_hot", "ANALYZE DELETE FROM events_hot", "(ANALYZE) DELETE FROM events"]
)
def test_nothing_can_be_smuggled_in(connection: psycopg.Connection[Any], statement: str) -> None:
    count = rows(connection, "SELECT count(*) FROM events_hot")
    with pytest.raises(psycopg.Error):
        explain(connection, statement)
    assert rows(connection, "SELECT count(*) FROM events_hot") == count


def test_who_may_not_read_learns_nothing(world: World, gateway: Gateway) -> None:
    assert gateway.port
    with world.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS curious")
        connection.execute("CREATE ROLE curious")
        remote = explain(connection, f"SELECT id FROM events WHERE {JANUARY}")["events_1 cold"]["remote"]
        try:
            connection.execute("SET ROLE curious")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                explain(connection, "SELECT id FROM events")
            forged = connection.execute("SELECT frostline.explain_remote(%s)", [remote]).fetchone()
            assert forged == ({"why": "no SELECT on the table itself: not shown"},)
            connection.execute("RESET ROLE")
            connection.execute("GRANT SELECT (id, ts) ON events TO curious")
            connection.execute("SET ROLE curious")
            assert explain(connection, f"SELECT id FROM events WHERE {JANUARY}")["events_1 cold"]["files"] == 1
        finally:
            connection.execute("RESET ROLE")
            connection.execute("DROP OWNED BY curious")
            connection.execute("DROP ROLE curious")


def test_without_a_gateway_the_partitions_are_still_told(world: World, gateway: Gateway) -> None:
    with world.connect() as connection:
        server = 'ALTER SERVER "frostline gateway (frostline up starts it)" OPTIONS'
        connection.execute(f"{server} (SET host '127.0.0.1', SET port '1')")
        try:
            found = explain(connection, f"SELECT id FROM events WHERE {JANUARY}")
        finally:
            gateway.publish()
    assert found["events_1 cold"]["engine"] == "not known"
    assert "could not connect" in found["events_1 cold"]["why"]


def test_the_command_shows_it_as_a_table(world: World, gateway: Gateway, frostline: Run) -> None:
    assert gateway.port
    done = frostline("--dsn", world.dsn, "explain", f"SELECT id FROM events WHERE t ~ 'x' AND {JANUARY}", "--remote")
    assert done.returncode == 0, done.stderr
    for word in (
        "events_1",
        "cold",
        "Postgres, over rows from DuckDB",
        "1 of 1",
        "3 of 4 partitions",
        "Iceberg snapshot",
    ):
        assert word in " ".join(done.stdout.split())
    assert 'SELECT id FROM "table' in done.stdout
    wrong = frostline("--dsn", world.dsn, "explain", "SELECT nothing FROM nowhere")
    assert wrong.returncode == 1
    assert "error: Postgres says: relation" in wrong.stderr
