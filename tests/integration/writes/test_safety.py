"""Whatever way a cold write takes, it is stored or it is not committed."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import uuid
from collections.abc import Iterable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fix_cluster import wait_until
from fix_tiering import World
from frostline.catalog.names import IN_USE, SERVER_NAME
from frostline.tiering import writing
from integration.writes import machine
from integration.writes.pair import Pair

FIVE = "SELECT i, t FROM tiered WHERE id = 5"


@pytest.fixture
def client(pair: Pair) -> psycopg.Connection[Any]:
    return pair.world.connect()


@pytest.mark.parametrize("statement", ["UPDATE tiered SET i = 500 WHERE id = 5", "DELETE FROM tiered WHERE id = 5"])
def test_without_its_trigger_a_write_cannot_be_committed(
    pair: Pair, client: psycopg.Connection[Any], statement: str
) -> None:
    before = pair.world.run(FIVE)
    client.execute('ALTER TABLE tiered DISABLE TRIGGER "!frostline"')
    try:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored") as error:
            client.execute(statement)
        assert "nothing was changed" in (error.value.diag.message_hint or "")
        assert client.execute("UPDATE tiered SET i = 5 WHERE id = 123456").rowcount == 0
    finally:
        client.execute('ALTER TABLE tiered ENABLE ALWAYS TRIGGER "!frostline"')
    assert pair.world.run(FIVE) == before


_CHANGES = (
    "UPDATE {} SET i = 500 WHERE id = 5",
    "DELETE FROM {} WHERE id = 5",
    "INSERT INTO {} (id, ts, i) VALUES (9100, '2026-01-05Z', 1)",
)
_ALSO_NEW = "SELECT id, i, t FROM tiered WHERE id IN (5, 9100)"


@pytest.mark.parametrize("triggers", ['"!frostline"', "ALL"])
def test_without_its_own_trigger_a_partition_is_not_written_by_its_name(
    pair: Pair, client: psycopg.Connection[Any], triggers: str
) -> None:
    before = pair.world.run(_ALSO_NEW)
    client.execute(f"ALTER TABLE tiered_2026_01 DISABLE TRIGGER {triggers}")
    try:
        for change in _CHANGES:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored"):
                client.execute(change.format("tiered_2026_01"))
            assert pair.world.run(_ALSO_NEW) == before
        with client.transaction(force_rollback=True):  # what is held by then is stored with what comes to other rows
            client.execute(_CHANGES[0].format("tiered_2026_01"))
            client.execute("UPDATE tiered SET i = 501 WHERE id = 206 AND ts >= '2026-02-01Z'")
            found = client.execute("SELECT id, i FROM tiered WHERE id IN (5, 206) ORDER BY id").fetchall()
            assert found == [(5, 500), (206, 501)]
    finally:
        for trigger in ("!frostline", "!frostline.before"):
            client.execute(f'ALTER TABLE tiered_2026_01 ENABLE ALWAYS TRIGGER "{trigger}"')


_ON = ("moving", "moving_01", "moving_02")
_ENABLE = tuple(
    f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "!frostline{end}"' for table in _ON for end in ("", ".before")
)
_OFF = (
    ("ALTER TABLE moving_01 DISABLE TRIGGER ALL",),
    ("ALTER TABLE moving_01 DISABLE TRIGGER ALL", "ALTER TABLE moving DISABLE TRIGGER ALL"),
    ('ALTER TABLE moving DISABLE TRIGGER "!frostline.before"',),
    ('ALTER TABLE moving_01 ENABLE TRIGGER "!frostline"', "SET session_replication_role = replica"),
)
_TWICE = (  # of the partition, and then what stores
    ["UPDATE {t}_01 SET i = 500 WHERE id = 5", "DELETE FROM {t}_01 WHERE id = 5", "UPDATE {t} SET i = 1 WHERE id = 6"],
    [
        "INSERT INTO {t}_01 VALUES (90, '2026-01-10Z')",
        "UPDATE {t}_01 SET i = 8 WHERE i = 7",
        "DELETE FROM {t} WHERE id = 6",
    ],
    ["DELETE FROM {t}_01 WHERE id = 5", "INSERT INTO {t} SELECT id + 90, ts FROM {t} WHERE id = 5"],
    ["SELECT nested('INSERT INTO {t}_01 VALUES (90, ''2026-01-10Z'')')", "DELETE FROM {t} WHERE id = 90"],
    [
        "UPDATE {t}_01 SET i = 500 WHERE id = 5",
        "SAVEPOINT s",
        "UPDATE {t}_01 SET i = i + 1",
        "ROLLBACK TO s",
        "UPDATE {t} SET i = i + 1 WHERE id = 5",
    ],
)


@pytest.mark.parametrize("again", [False, True], ids=["stays", "enabled again"])
def test_without_triggers_rows_are_as_in_any_table_or_nothing_is_changed(moving: World, again: bool) -> None:
    """What nobody stored when its statement ended is not taken for a part of the next one."""
    client, reader, seen = moving.connect(), moving.connect(), set[str]()
    reader.execute("CREATE FUNCTION nested(text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE $1; END'")
    try:
        for off, script in itertools.product(_OFF[:1] if again else _OFF, _TWICE):
            machine.reset(reader)
            before = reader.execute(machine.ROWS.format("moving")).fetchall()
            more = _ENABLE if again else ()
            statements = ["BEGIN", "SELECT FROM moving", *off, *script[:-1], *more, script[-1], "COMMIT"]
            ended = _ended(client, [statement.replace("{t}", "moving") for statement in statements])
            _ended(client, ["RESET session_replication_role", *_ENABLE])
            if ended != "COMMIT":
                assert reader.execute(machine.ROWS.format("moving")).fetchall() == before
            else:
                _ended(client, ["BEGIN", *(statement.replace("{t}", "moving_twin") for statement in script), "COMMIT"])
                machine.same_rows(reader)
            seen.add(ended)
    finally:
        _ended(client, ["RESET session_replication_role", *_ENABLE, "DROP FUNCTION nested"])
    assert seen <= {"COMMIT", "55000", "40001"}
    assert "55000" in seen


def _ended(client: psycopg.Connection[Any], statements: Iterable[str]) -> str:
    """The last one's tag, or what went wrong."""
    tag = ""
    try:
        for statement in statements:
            tag = client.execute(statement).statusmessage or ""
    except psycopg.Error as error:
        client.execute("ROLLBACK")
        return error.sqlstate or ""
    return tag


@pytest.mark.parametrize("forget", ["RESET ALL", "SELECT set_config('frostline.inside_{}', '', true)"])
def test_a_reset_setting_does_not_hide_what_a_function_has_written(direct: Pair, forget: str) -> None:
    """Or it is an error: by that setting a statement knows whether others ran before it."""
    client = direct.world.connect()
    ((id_,),) = client.execute("SELECT id FROM frostline.tables WHERE relation = 'direct'::regclass").fetchall()
    insert = "INSERT INTO public.direct (id, ts) VALUES ({}, ''2026-01-05Z'')"
    client.execute("CREATE FUNCTION nested(text) RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE $1; RETURN 1; END'")
    try:
        for change in (
            "DELETE FROM direct WHERE id = 9100",
            "DELETE FROM direct WHERE id = 9100 RETURNING id",
            "DELETE FROM direct USING other WHERE id = 9100 AND other.k = 1",
            f"UPDATE direct SET i = (SELECT public.nested('{insert.format(9101)}')) WHERE id IN (9100, 9101)",
        ):
            with client.transaction(force_rollback=True):
                client.execute("SELECT FROM direct WHERE id = 5")
                client.execute(f"SELECT nested('{insert.format(9100)}')")
                client.execute(forget.format(id_))
                with contextlib.suppress(psycopg.errors.ObjectNotInPrerequisiteState):
                    assert client.execute(change).rowcount == 1
    finally:
        client.execute("DROP FUNCTION nested")


def test_a_session_that_has_a_name_of_its_own_writes_while_it_keeps_it(
    pair: Pair, client: psycopg.Connection[Any]
) -> None:
    """By the name that postgres_fdw sends the gateway knows for whom it works, and the triggers that it does."""
    rows = "SELECT id, i FROM tiered WHERE id IN (5, 6, 206) ORDER BY id"
    before = pair.world.run(rows)
    client.execute("SET postgres_fdw.application_name = 'mine'")
    client.execute("UPDATE tiered SET i = 41 WHERE id = 5")
    with client.transaction():
        client.execute("UPDATE tiered SET i = 42 WHERE id IN (6, 206)")
        assert client.execute("UPDATE tiered SET i = i + 1 WHERE id IN (5, 206)").rowcount == 2
    assert pair.world.run(rows) == [(5, 42), (6, 42), (206, 43)]
    client.execute("RESET postgres_fdw.application_name")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored") as error:
        client.execute("UPDATE tiered SET i = 50 WHERE id = 5")
    assert "nothing was changed; retry" in (error.value.diag.message_hint or "")
    assert pair.world.run(rows) == [(5, 42), (6, 42), (206, 43)]
    for id_, i in before:
        client.execute("UPDATE tiered SET i = %s WHERE id = %s", (i, id_))
    assert pair.world.run(rows) == before


def test_another_name_in_the_server_entry_is_told_with_the_way_out(pair: Pair, client: psycopg.Connection[Any]) -> None:
    before = pair.world.run(FIVE)
    pair.world.run(f"ALTER SERVER \"{SERVER_NAME}\" OPTIONS (SET application_name 'mine')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored") as error:
        client.execute("UPDATE tiered SET i = 50 WHERE id = 5")
    pair.world.run((error.value.diag.message_hint or "").rpartition("if that does not do: ")[2])
    assert pair.world.run(FIVE) == before
    with client.transaction(force_rollback=True):
        assert client.execute("UPDATE tiered SET i = 50 WHERE id = 5").rowcount == 1


def test_recent_rows_are_written_without_asking_postgres_fdw(client: psycopg.Connection[Any]) -> None:
    """Not even in a session that has come to old rows: that took longer than all else the triggers do."""
    client.execute("SELECT FROM tiered WHERE id = 5")
    client.execute("SET track_functions = 'all'")
    # The gateway ends its own transaction when it has answered the COMMIT of one that only read.
    held = f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = {IN_USE} AND objid = pg_backend_pid()"
    wait_until(lambda: not client.execute(held).fetchall(), 10, "the gateway lets go of its lock")
    calls = "SELECT pg_stat_get_xact_function_calls('postgres_fdw_get_connections'::regproc)"
    with client.transaction(force_rollback=True):
        client.execute("UPDATE tiered SET i = 1 WHERE id = 999 AND ts >= '9000-01-01Z'")
        assert client.execute(calls).fetchone() == (None,)
        client.execute("UPDATE tiered SET i = 1 WHERE id = 5")
        assert client.execute(calls).fetchone() != (None,)


def test_a_foreign_table_of_somebodys_own_is_not_written(pair: Pair, client: psycopg.Connection[Any]) -> None:
    before = pair.world.run(_ALSO_NEW)
    options = "SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'tiered_2026_01'::regclass"
    schema, table = (option.split("=", 1)[1] for option in pair.world.run(options)[0][0])
    client.execute(
        f'CREATE FOREIGN TABLE mine (id bigint, ts timestamptz, i int, t text) SERVER "{SERVER_NAME}"'
        f" OPTIONS (schema_name '{schema}', table_name '{table}')"
    )
    try:
        for change in _CHANGES:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored"):
                client.execute(change.format("mine"))
        client.execute("ALTER FOREIGN TABLE mine OPTIONS (SET schema_name 'public', SET table_name 'tiered')")
        for change in _CHANGES:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="only answers about cold tables"):
                client.execute(change.format("mine"))
    finally:
        client.execute("DROP FOREIGN TABLE mine")
    assert pair.world.run(_ALSO_NEW) == before


def test_who_speaks_to_the_gateway_without_postgres_writes_nothing(pair: Pair) -> None:
    before = pair.world.run(_ALSO_NEW)
    ((database, options),) = pair.world.run(
        "SELECT i.id::text, m.umoptions FROM frostline.installation i, pg_user_mappings m WHERE m.srvname = %s",
        SERVER_NAME,
    )
    mapping = dict(option.split("=", 1) for option in options)
    gateway = pair.world.gateway
    january = '"table 1"."from 2026-01-01 00:00:00+00 to 2026-02-01 00:00:00+00"'
    with psycopg.connect(
        host=gateway.host, port=gateway.port, dbname=database, autocommit=True, prepare_threshold=None, **mapping
    ) as wire:
        for change in _CHANGES[:2]:
            with pytest.raises(psycopg.errors.NoActiveSqlTransaction, match="of postgres_fdw only"):
                wire.execute(change.format(january))
            wire.execute("START TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert wire.execute(change.format(january)).rowcount == 1
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored"):
                wire.execute("COMMIT TRANSACTION")
            wire.execute("ROLLBACK TRANSACTION")
    assert pair.world.run(_ALSO_NEW) == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO tiered (id, ts) VALUES (5, '2026-01-01 05:00Z') ON CONFLICT DO NOTHING",
        "UPDATE tiered SET i = 5 WHERE id IN (5, 6) AND t ~ 'no such'",
        "DELETE FROM tiered WHERE id IN (5, 6) AND md5(t) = 'no such'",
    ],
)
def test_what_changes_nothing_can_be_committed(client: psycopg.Connection[Any], statement: str) -> None:
    assert client.execute(statement).rowcount == 0


def test_a_swallowed_version_is_noticed(pair: Pair, client: psycopg.Connection[Any]) -> None:
    before = pair.world.run(FIVE)
    query = "SELECT delta::text FROM frostline.tables WHERE relation = 'tiered'::regclass"
    (delta,) = client.execute(query).fetchone() or ("",)
    client.execute("CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    client.execute(f"CREATE TRIGGER swallow BEFORE INSERT ON {delta} FOR EACH ROW EXECUTE FUNCTION swallow()")
    try:
        with pytest.raises(psycopg.errors.SerializationFailure):
            client.execute("UPDATE tiered SET i = 500 WHERE id = 5")
    finally:
        client.execute("DROP FUNCTION swallow CASCADE")
    assert pair.world.run(FIVE) == before


@pytest.mark.parametrize("condition", ["true", "_batch > 0", "_batch = 1"])
def test_held_versions_are_not_taken_by_anybody_else(
    pair: Pair, client: psycopg.Connection[Any], condition: str
) -> None:
    before = pair.world.run(FIVE)
    client.execute('ALTER TABLE tiered DISABLE TRIGGER "!frostline"')
    try:
        with client.transaction(force_rollback=True):
            client.execute("UPDATE tiered SET i = 500 WHERE id = 5")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="by the trigger that stores them"):
                client.execute(f"DELETE FROM frostline_delta.held_1 WHERE {condition}")
    finally:
        client.execute('ALTER TABLE tiered ENABLE ALWAYS TRIGGER "!frostline"')
    assert pair.world.run(FIVE) == before


def test_a_savepoint_after_a_cancelled_statement(pair: Pair, direct: Pair, client: psycopg.Connection[Any]) -> None:
    """What the gateway read with is lost, and it says what to do; hot rows go on, and the next transaction too."""
    cold = "SELECT count(*) FROM {} WHERE ts < '2026-03-01Z'"
    ((delta,),) = pair.world.run("SELECT delta::text FROM frostline.tables WHERE relation = 'direct'::regclass")
    with pair.world.connect(autocommit=False) as other, client.transaction():
        client.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        client.execute(cold.format("tiered"))
        other.execute(f"LOCK TABLE {delta} IN ACCESS EXCLUSIVE MODE")

        def cancel() -> None:
            waits = f"SELECT FROM pg_locks WHERE relation = '{delta}'::regclass AND NOT granted"
            try:
                wait_until(lambda: other.execute(waits).rowcount > 0, 60, "the gateway waits for the lock")
            finally:
                client.cancel_safe()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled), client.transaction():
            client.execute(cold.format(direct.tables[0]))
        thread.join()
        other.rollback()
        with pytest.raises(psycopg.errors.SerializationFailure, match="was cancelled"), client.transaction():
            client.execute(cold.format("tiered"))
        assert client.execute("UPDATE tiered SET i = i WHERE id = 405 AND ts > '2026-11-01Z'").rowcount == 1
    assert client.execute(cold.format("tiered")).fetchone() == (400,)


def test_few_versions_and_many_in_one_transaction(client: psycopg.Connection[Any]) -> None:
    """Few are taken in one round trip; many, and rows that become hot, are read and acknowledged."""
    with client.transaction(force_rollback=True):
        client.execute("UPDATE tiered SET i = 1001 WHERE id = 5")
        client.execute("UPDATE tiered SET i = i + 1 WHERE id <= 150")
        with pytest.raises(psycopg.errors.DivisionByZero), client.transaction():
            client.execute("UPDATE tiered SET i = 2000 WHERE id = 5; SELECT 1 / 0")
        client.execute("UPDATE tiered SET ts = '2026-11-09Z' WHERE id = 6")
        client.execute("INSERT INTO tiered (id, ts, i) VALUES (3000, '2026-01-05Z', 1)")
        client.execute("DELETE FROM tiered WHERE id = 7")
        found = client.execute("SELECT id, i FROM tiered WHERE id IN (5, 6, 7, 3000) ORDER BY id").fetchall()
        assert found[0] == (5, 1002)
        assert [row[0] for row in found] == [5, 6, 3000]
        assert client.execute("SELECT count(*) FROM tiered").fetchall() == [(500,)]


def test_the_replica_role_writes_too(client: psycopg.Connection[Any]) -> None:
    with client.transaction(force_rollback=True):
        client.execute("SET LOCAL session_replication_role = replica")
        client.execute("UPDATE tiered SET i = 501 WHERE id = 5")
        assert client.execute("SELECT i FROM tiered WHERE id = 5").fetchall() == [(501,)]
        client.execute("SET LOCAL session_replication_role = origin")


def test_a_foreign_partition_is_written_by_its_own_name(client: psycopg.Connection[Any]) -> None:
    with client.transaction(force_rollback=True):
        assert client.execute("UPDATE tiered_2026_01 SET i = 502 WHERE id = 5 RETURNING i").fetchall() == [(502,)]
        client.execute("INSERT INTO tiered_2026_01 (id, ts) VALUES (1000, '2026-01-05Z')")
        client.execute("DELETE FROM tiered_2026_01 WHERE id = 6")
        found = client.execute("SELECT id, i FROM tiered WHERE id IN (5, 6, 1000) ORDER BY id").fetchall()
        assert found == [(5, 502), (1000, 7)]
        with pytest.raises(psycopg.errors.CheckViolation, match="violates partition constraint"), client.transaction():
            client.execute("INSERT INTO tiered_2026_01 (id, ts) VALUES (1001, '2026-02-05Z')")


def test_copy_routes_rows_to_both_tiers(client: psycopg.Connection[Any]) -> None:
    rows = [(2000 + x, f"2026-{('01', '02', '11')[x % 3]}-05 00:00:{x % 60:02}Z", f"copied\t{x}\n") for x in range(300)]
    tables = ("tiered", "plain")
    with client.transaction(force_rollback=True):
        for table in tables:
            with client.cursor().copy(f"COPY {table} (id, ts, t) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        found = [client.execute(f"SELECT * FROM {table} WHERE id >= 2000 ORDER BY id").fetchall() for table in tables]
        assert found[0] == found[1]
        assert len(found[0]) == 300


def test_a_role_with_nothing_but_table_privileges(pair: Pair, client: psycopg.Connection[Any]) -> None:
    role = f"writer_{uuid.uuid4().hex[:8]}"
    client.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'writer'")
    client.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON tiered TO {role}")
    try:
        with psycopg.connect(make_conninfo(pair.world.dsn, user=role, password="writer")) as writer:
            assert writer.execute("UPDATE tiered SET i = 503 WHERE id IN (5, 405)").rowcount == 2
            assert writer.execute("INSERT INTO tiered (id, ts) VALUES (1000, '2026-01-05Z')").rowcount == 1
            assert writer.execute("DELETE FROM tiered WHERE id IN (6, 1000)").rowcount == 2
            assert writer.execute("UPDATE tiered SET ts = '2026-11-09Z' WHERE id = 7").rowcount == 1
            assert writer.execute("SELECT count(*) FROM tiered WHERE id < 8 OR i = 503").fetchall() == [(7,)]
            writer.rollback()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                writer.execute("SELECT * FROM frostline_delta.held_1")
    finally:
        client.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_truncate_is_refused(client: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error):
        client.execute("TRUNCATE tiered")
    assert client.execute("SELECT count(*) FROM tiered").fetchall() == [(500,)]


def test_foreign_keys_do_to_cold_rows_what_they_say(client: psycopg.Connection[Any]) -> None:
    """The key of `other` has no action; a violation names the row, and a delete of both in order passes."""
    with client.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.ForeignKeyViolation), client.transaction():
            client.execute("DELETE FROM other WHERE k = 3")
        client.execute("DELETE FROM tiered WHERE k = 3; DELETE FROM plain WHERE k = 3; DELETE FROM other WHERE k = 3")
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="is not present in table"), client.transaction():
            client.execute("UPDATE tiered SET k = 3 WHERE id = 5")


def test_new_keys_replace_old_rows_where_that_is_wanted(client: psycopg.Connection[Any]) -> None:
    client.execute("UPDATE frostline.tables SET cold_duplicates = 'upsert'")
    try:
        with client.transaction(force_rollback=True):
            client.execute("INSERT INTO tiered (id, ts, i, t) VALUES (5, '2026-01-01 05:00Z', 1, 'newest')")
            client.execute("INSERT INTO tiered (id, ts, i, t) VALUES (5, '2026-01-01 05:00Z', 2, 'newest of all')")
            assert client.execute(FIVE).fetchall() == [(2, "newest of all")]
            with pytest.raises(psycopg.errors.UniqueViolation), client.transaction():
                client.execute("UPDATE tiered SET id = 5, ts = '2026-01-01 05:00Z' WHERE id = 6")
    finally:
        client.execute("UPDATE frostline.tables SET cold_duplicates = 'error'")


def test_a_value_the_lake_cannot_hold_stays_out_of_it(client: psycopg.Connection[Any]) -> None:
    for change in ("d = 'infinity'", "n = 'NaN'"):
        with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="the lake cannot hold the value"):
            client.execute(f"UPDATE tiered SET {change} WHERE id = 5")


def test_many_single_updates_in_one_transaction(client: psycopg.Connection[Any]) -> None:
    with client.transaction(force_rollback=True):
        for number in range(90):
            client.execute("UPDATE tiered SET i = %s WHERE id = %s", [number, 1 + number % 3])
        found = client.execute("SELECT id, i FROM tiered WHERE id <= 3 ORDER BY id").fetchall()
        assert found == [(1, 87), (2, 88), (3, 89)]


def test_routed_rows_say_where_they_went(client: psycopg.Connection[Any]) -> None:
    def ask(function: str, *values: str) -> object:
        row = client.execute(
            f"SELECT frostline.{function}('tiered', %s{', %s' * (len(values) - 1)})", values
        ).fetchone()
        return row[0] if row else None

    def rows(ids: str) -> list[tuple[Any, ...]]:
        found = client.execute(f"SELECT id, ts::date::text, i, t FROM tiered WHERE id IN ({ids}) ORDER BY id")
        return found.fetchall()

    with client.transaction(force_rollback=True):
        client.execute("SET LOCAL timezone = 'UTC'")
        odd = 'it\'s "new"'
        assert ask("upsert", json.dumps({"id": 5, "ts": "2026-01-01 05:00Z", "t": odd})) == "cold"
        assert ask("upsert", '{"id": 3000, "ts": "2026-01-05Z", "i": 1}') == "cold"
        assert ask("upsert", '{"id": 3000, "ts": "2026-01-05Z"}') == "cold"
        assert ask("upsert", '{"id": 3001, "ts": "2026-11-05Z", "t": "x"}') == "hot"
        assert ask("upsert", '{"id": 3001, "ts": "2026-11-05Z", "t": null}') == "hot"
        assert rows("5")[0][3] == odd
        assert rows("3000, 3001") == [(3000, "2026-01-05", 1, None), (3001, "2026-11-05", 7, None)]
        assert ask("move", '{"id": 3000, "ts": "2026-01-05Z"}', "2026-11-06Z") == "hot"
        assert ask("move", '{"id": 3001, "ts": "2026-11-05Z"}', "2026-02-06Z") == "cold"
        assert ask("move", '{"id": 3001, "ts": "2026-02-06Z"}', "2025-02-06Z") == "cold"
        assert ask("move", '{"id": 3001, "ts": "2026-02-06Z"}', "2025-02-06Z") is None
        assert rows("3000, 3001") == [(3000, "2026-11-06", 1, None), (3001, "2025-02-06", 7, None)]
        assert ask("delete", '{"id": 3000, "ts": "2026-11-06Z"}') == "hot"
        assert ask("delete", '{"id": 3001, "ts": "2025-02-06Z"}') == "cold"
        assert ask("delete", '{"id": 3001, "ts": "2025-02-06Z"}') is None
        assert rows("3000, 3001") == []
        for function, values, state in (
            ("upsert", ['{"id": 1}'], "23502"),
            ("upsert", ['{"id": 1, "ts": "2026-01-05Z", "zz": 1}'], "42703"),
            ("delete", ['{"ts": "2026-01-05Z"}'], "23502"),
        ):
            with pytest.raises(psycopg.Error) as error, client.transaction():
                ask(function, *values)
            assert error.value.sqlstate == state


_CALLED = (
    '\nSQL statement "UPDATE public.tiered SET i = i WHERE id = 6"\nPL/pgSQL function touch() line 1 at SQL statement'
)


def test_row_level_security_is_not_passed_by(pair: Pair, client: psycopg.Connection[Any]) -> None:
    """Postgres itself would check no new row of a foreign partition."""
    before, role = pair.world.run(FIVE), f"subject_{uuid.uuid4().hex[:8]}"
    client.execute(f"CREATE ROLE {role}; GRANT ALL ON tiered TO {role}")
    client.execute("CREATE POLICY part ON tiered USING (id < 6 OR id > 400) WITH CHECK (i < 100)")
    client.execute("ALTER TABLE tiered ENABLE ROW LEVEL SECURITY")
    try:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="row-level security") as error:
            client.execute("UPDATE tiered SET i = 500 WHERE id = 5")
        assert "run frostline init" in (error.value.diag.message_hint or "")
        assert writing.equip(client) == ["what writes cold rows of public.tiered"]
        assert writing.equip(client) == []
        ((id_,),) = client.execute("SELECT id FROM frostline.tables WHERE relation = 'tiered'::regclass").fetchall()
        store, inside = f"frostline.store_{id_}(0, false)", f"frostline.inside_{id_}"
        client.execute(
            "CREATE FUNCTION touch() RETURNS int LANGUAGE plpgsql SECURITY DEFINER"
            " AS 'BEGIN UPDATE public.tiered SET i = i WHERE id = 6; RETURN 1; END'"
        )
        client.execute(f"SET ROLE {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute(f"INSERT INTO tiered (id, ts, i) VALUES (1000, '2026-01-05Z', 500) RETURNING {store}")
        for statement in (
            "UPDATE tiered SET i = 500 WHERE id = 5",
            "INSERT INTO tiered (id, ts, i) VALUES (1000, '2026-01-05Z', 500)",
            "UPDATE tiered SET ts = '2026-11-20Z', i = 500 WHERE id = 5",
            "UPDATE tiered SET i = 500 WHERE id = 5 RETURNING touch()",  # by somebody who is not subject to it
            "INSERT INTO tiered (id, ts, i) VALUES (1000, '2026-01-05Z', 500) RETURNING touch()",
        ):
            for said in (_CALLED, "yes", ""):  # anybody may set what we remember of a transaction
                client.execute("SELECT set_config(%s, %s, false)", (inside, said))
                with pytest.raises(psycopg.errors.FeatureNotSupported, match="row-level security"):
                    client.execute(statement)
        with client.transaction(force_rollback=True):
            assert client.execute("SELECT count(*) FROM tiered").fetchall() == [(105,)]
            assert client.execute("UPDATE tiered SET i = 50 WHERE id = 405").rowcount == 1
            assert client.execute("DELETE FROM tiered WHERE id IN (5, 6)").rowcount == 1
            assert client.execute("SELECT touch()").fetchall() == [(1,)]
        client.execute("RESET ROLE")
        with client.transaction(force_rollback=True):
            assert client.execute("UPDATE tiered SET i = 500 WHERE id = 5").rowcount == 1
    finally:
        client.execute("RESET ROLE; ALTER TABLE tiered DISABLE ROW LEVEL SECURITY; DROP POLICY part ON tiered")
        client.execute("DROP FUNCTION IF EXISTS touch")
        client.execute('DROP TRIGGER IF EXISTS "! frostline policies" ON tiered')
        client.execute('DROP TRIGGER IF EXISTS "! frostline policies.before" ON tiered')
        client.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert pair.world.run(FIVE) == before


def test_a_parallel_worker_does_not_miss_its_own_transactions_changes(
    pair: Pair, client: psycopg.Connection[Any]
) -> None:
    client.execute(
        "CREATE FUNCTION changed(int) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE"
        " AS 'BEGIN RETURN (SELECT count(*) FROM tiered WHERE i = 504); END'"
    )
    client.execute("CREATE TABLE many AS SELECT x FROM generate_series(1, 50000) x; ANALYZE many")
    try:
        client.execute("SET parallel_leader_participation = off; SET parallel_setup_cost = 0")
        client.execute("SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0")
        query = "SELECT DISTINCT changed(x) FROM many WHERE x < 50"
        assert client.execute(query).fetchall() == [(0,)]
        with client.transaction(force_rollback=True):
            client.execute("UPDATE tiered SET i = 504 WHERE id IN (5, 6, 405)")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="parallel worker"), client.transaction():
                client.execute(query)
            client.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            assert client.execute(query).fetchall() == [(3,)]
        client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT frostline.pin()")
        ((was,),) = pair.world.run("SELECT i FROM tiered WHERE id = 5")
        try:
            pair.world.run("UPDATE tiered SET i = 504 WHERE id = 5")
            assert client.execute(query).fetchall() == [(0,)]  # a worker reads what its leader does
            client.execute("COMMIT")
            assert client.execute(query).fetchall() == [(1,)]
        finally:
            pair.world.run("UPDATE tiered SET i = %s WHERE id = 5", was)
    finally:
        client.execute("DROP FUNCTION changed; DROP TABLE many")


def test_who_holds_the_lock_that_marks_a_session_keeps_it_from_nothing_but_writes(
    pair: Pair, client: psycopg.Connection[Any]
) -> None:
    """Any role can take any advisory lock."""
    before = pair.world.run(FIVE)
    stranger = pair.world.connect()
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", (IN_USE, client.info.backend_pid))
    client.execute("SET statement_timeout = '5s'")
    assert client.execute(FIVE).fetchall() == before
    with client.transaction(force_rollback=True):
        client.execute(FIVE)
        stranger.execute("SELECT pg_advisory_unlock_all()")
        assert client.execute("UPDATE tiered SET i = 41 WHERE id = 5").rowcount == 1
        assert client.execute("SELECT i FROM tiered WHERE id = 5").fetchall() == [(41,)]
    client.execute("UPDATE tiered SET i = 42 WHERE id = 5")
    assert client.execute("SELECT i FROM tiered WHERE id = 5").fetchall() == [(42,)]
    client.execute("UPDATE tiered SET i = %s WHERE id = 5", (before[0][0],))
    assert pair.world.run(FIVE) == before
