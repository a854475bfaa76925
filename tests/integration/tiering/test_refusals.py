"""Everything that forbids registration, with its reason and a way out; each in a transaction that is rolled back."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fix_cluster import wait_until
from fix_commands import Run, failed_clearly
from frostline.catalog import describe, registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.install import install
from frostline.errors import ConfigError, RefusedError
from frostline.tiering import cautions, premake, refusals, register

KEY = "PRIMARY KEY (id, ts)"
PARTITION = "CREATE TABLE public.t_1 PARTITION OF public.t FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');"
PLAIN = f"CREATE TABLE public.t (id int, ts timestamptz, v int, {KEY}) PARTITION BY RANGE (ts); {PARTITION}"
TRIGGER = "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
TOP = (
    "CREATE TABLE public.top (id int, ts timestamptz, v int{}) PARTITION BY LIST (v);"
    "CREATE TABLE public.t PARTITION OF public.top FOR VALUES IN (1) PARTITION BY RANGE (ts);" + PARTITION
)
SUBSCRIPTION = (
    "CREATE SUBSCRIPTION pull CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false);"
    "SET LOCAL allow_system_table_mods = on;"
    "INSERT INTO pg_subscription_rel SELECT oid, 'public.{}'::regclass, 'r', NULL FROM pg_subscription"
)

# What was done, and words of the reason.
REFUSED = {
    "by a number with partitions that are files without end": (
        "CREATE TABLE public.t (id int8 PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE public.t_1 PARTITION OF public.t FOR VALUES FROM (0) TO (4294967294001)",
        "each would become 2,000 files or more in the lake",
    ),
    "a plain table": ("CREATE TABLE public.t (id int PRIMARY KEY)", "not a partitioned table"),
    "a view": ("CREATE VIEW public.t AS SELECT 1 AS id", "not a partitioned table"),
    "by list": (
        "CREATE TABLE public.t (id int) PARTITION BY LIST (id)",
        "not partitioned by RANGE of one plain column",
    ),
    "by hash": (
        "CREATE TABLE public.t (id int) PARTITION BY HASH (id)",
        "not partitioned by RANGE of one plain column",
    ),
    "by two columns": (
        "CREATE TABLE public.t (a int, b int) PARTITION BY RANGE (a, b)",
        "not partitioned by RANGE of one plain column",
    ),
    "by an expression": (
        "CREATE TABLE public.t (a int) PARTITION BY RANGE ((a + 1))",
        "not partitioned by RANGE of one plain column",
    ),
    "by text": ("CREATE TABLE public.t (a text) PARTITION BY RANGE (a)", "partition key a is of type text"),
    "by a domain that sounds right": (
        "CREATE DOMAIN public.date AS pg_catalog.date; CREATE TABLE public.t (a public.date) PARTITION BY RANGE (a)",
        "partition key a is of type public.date",
    ),
    "in another order": (
        "CREATE FUNCTION public.back(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($2, $1)';"
        "CREATE OPERATOR CLASS public.backwards FOR TYPE int USING btree AS"
        " OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 public.back(int, int);"
        "CREATE TABLE public.t (a int) PARTITION BY RANGE (a public.backwards)",
        "ordered by an operator class of its own",
    ),
    "no primary key": (
        f"CREATE TABLE public.t (id int, ts timestamptz) PARTITION BY RANGE (ts); {PARTITION}",
        "no primary key",
    ),
    "no partitions": (
        f"CREATE TABLE public.t (id int, ts timestamptz, {KEY}) PARTITION BY RANGE (ts)",
        "no partitions",
    ),
    "a float in the key": (
        f"CREATE TABLE public.t (id float8, ts timestamptz, {KEY}) PARTITION BY RANGE (ts); {PARTITION}",
        "primary key column id is of type double precision",
    ),
    "a collation that folds": (
        "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        f"CREATE TABLE public.t (id text COLLATE public.ci, ts timestamptz, {KEY}) PARTITION BY RANGE (ts);"
        + PARTITION,
        "primary key column id is of type text",
    ),
    "our own column names": (
        f"CREATE TABLE public.t (id int, ts timestamptz, _seq int, {KEY}) PARTITION BY RANGE (ts); {PARTITION}",
        "a column is called _seq",
    ),
    "two levels": (
        f"CREATE TABLE public.t (id int, ts timestamptz, {KEY}) PARTITION BY RANGE (ts);"
        "CREATE TABLE public.t_1 PARTITION OF public.t FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
        " PARTITION BY RANGE (ts);",
        "t_1 is partitioned again",
    ),
    "a foreign partition": (
        "CREATE TABLE public.t (id int, ts timestamptz, v int) PARTITION BY RANGE (ts);"
        "CREATE FOREIGN TABLE public.t_1 PARTITION OF public.t FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
        ' SERVER "frostline gateway (frostline up starts it)"',
        "t_1 is not an ordinary table",
    ),
    "a default partition with rows": (
        PLAIN + "CREATE TABLE public.t_d PARTITION OF public.t DEFAULT; INSERT INTO public.t VALUES (1, '2030-01-01')",
        "DEFAULT partition public.t_d",
    ),
    "an unlogged partition": (PLAIN + "ALTER TABLE public.t_1 SET UNLOGGED", "t_1 is UNLOGGED"),
    "a typed table": (
        "CREATE TYPE public.shape AS (id int, ts timestamptz);"
        f"CREATE TABLE public.t OF public.shape ({KEY}) PARTITION BY RANGE (ts); {PARTITION}",
        r"a typed table \(OF public.shape\)",
    ),
    "a deferrable key": (PLAIN.replace(KEY, f"{KEY} DEFERRABLE"), r"its primary key \(t_pkey\) is deferrable"),
    "a constraint that is not valid": (
        PLAIN + "ALTER TABLE public.t ADD CHECK (v > 0) NOT VALID",
        r"constraints \(t_v_check\) are not valid",
    ),
    "an index that is not valid": (
        PLAIN + "CREATE INDEX partly ON ONLY public.t (v)",
        r"indexes \(public.partly\) are invalid",
    ),
    "inbound foreign keys": (
        PLAIN + "CREATE TABLE public.other (id int, ts timestamptz, FOREIGN KEY (id, ts) REFERENCES public.t)",
        r"foreign keys of other tables point at it \(public.other.other_id_ts_fkey\)",
    ),
    "inbound foreign keys of a partitioned table": (
        PLAIN + "CREATE TABLE public.other (id int, ts timestamptz, FOREIGN KEY (id, ts) REFERENCES public.t)"
        " PARTITION BY RANGE (id); CREATE TABLE public.o1 PARTITION OF public.other DEFAULT",
        r"point at it \(public.other.other_id_ts_fkey\)",
    ),
    "a second unique": (
        PLAIN + "CREATE UNIQUE INDEX once ON public.t (v, ts)",
        r"UNIQUE besides the primary key \(public.once\)",
    ),
    "exclusion constraints": (
        PLAIN + "ALTER TABLE public.t ADD CONSTRAINT once EXCLUDE USING btree (v WITH =, ts WITH =)",
        r"exclusion constraints \(once\) cannot be kept",
    ),
    "a unique constraint": (PLAIN + "ALTER TABLE public.t ADD UNIQUE (v, ts)", r"UNIQUE besides the primary key"),
    "a view that groups by the key": (
        PLAIN + "CREATE VIEW public.grouped AS SELECT id, ts, v FROM public.t GROUP BY id, ts",
        r"public.grouped depend on its primary key",
    ),
    "a function that groups by the key": (
        PLAIN + "CREATE FUNCTION public.g() RETURNS bigint LANGUAGE sql BEGIN ATOMIC"
        " SELECT count(*) FROM (SELECT id, ts, v FROM public.t GROUP BY id, ts) x; END",
        r"function public.g\(\) depend on its primary key",
    ),
    "a rule that names the key": (
        PLAIN + "CREATE VIEW public.w AS SELECT 1 AS id; CREATE RULE r AS ON INSERT TO public.w DO INSTEAD"
        " INSERT INTO public.t VALUES (NEW.id, now()) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING",
        r"public.w depend on its primary key",
    ),
    "transition tables": (
        PLAIN + TRIGGER + "CREATE TRIGGER late AFTER INSERT ON public.t REFERENCING NEW TABLE AS n"
        " FOR EACH STATEMENT EXECUTE FUNCTION public.f()",
        r"triggers with transition tables \(late\)",
    ),
    "constraint triggers": (
        PLAIN + TRIGGER + "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON public.t"
        " FOR EACH ROW EXECUTE FUNCTION public.f()",
        r"constraint triggers \(late\)",
    ),
    "a subscription": (PLAIN + SUBSCRIPTION.format("t"), r"a subscription \(pull\) writes into it"),
    "a subscription of a partition": (PLAIN + SUBSCRIPTION.format("t_1"), r"a subscription \(pull\) writes into it"),
    "updates published under its name": (
        PLAIN + "CREATE PUBLICATION feed FOR TABLE public.t WITH (publish_via_partition_root = true)",
        r"publications \(feed\) send its updates under its own name",
    ),
    "all tables published by root": (
        PLAIN + "CREATE PUBLICATION feed FOR ALL TABLES WITH (publish_via_partition_root = true)",
        r"publications \(feed\) send its updates under its own name",
    ),
    "a branch under a common key": (
        TOP.format(", PRIMARY KEY (v, id, ts)"),
        r"keys \(t_pkey\) that it inherits keep foreign partitions",
    ),
    "a branch with a common foreign key": (
        "CREATE TABLE public.dim (k int PRIMARY KEY);"
        + TOP.format(", FOREIGN KEY (v) REFERENCES public.dim")
        + f"ALTER TABLE public.t ADD {KEY}",
        r"keys \(top_v_fkey\) that it inherits keep foreign partitions",
    ),
    "a branch that is referred to": (
        TOP.format(", PRIMARY KEY (v, id, ts)")
        + "CREATE TABLE public.other (v int, id int, ts timestamptz, FOREIGN KEY (v, id, ts) REFERENCES public.top)",
        r"point at it \(public.other.other_v_id_ts_fkey",
    ),
}


@contextmanager
def installed_on(server: str) -> Iterator[str]:
    """A database with the registry; nothing is kept in it."""
    name = "test_refusals"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        made = psycopg.conninfo.make_conninfo(server, dbname=name)
        install(made)
        yield made
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def installed(dsn: str) -> Iterator[str]:
    with installed_on(dsn) as made:
        yield made


@pytest.fixture(scope="module")
def installed15(postgres15: str) -> Iterator[str]:
    with installed_on(postgres15) as made:
        yield made


@pytest.fixture
def connection(installed: str) -> Iterator[Connection]:
    with connect(installed, autocommit=False) as opened:
        yield opened
        opened.rollback()


@pytest.fixture(params=["18", "15"])
def any_installed(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("installed" if request.param == "18" else "installed15")
    return found


@pytest.fixture
def any_connection(any_installed: str) -> Iterator[Connection]:
    with connect(any_installed, autocommit=False) as opened:
        yield opened
        opened.rollback()


def run(connection: Connection, statements: str) -> None:
    """As somebody with an ordinary search_path."""
    connection.execute("SET LOCAL search_path = public")
    connection.execute(statements)
    connection.execute("SET LOCAL search_path = pg_catalog")


@pytest.mark.parametrize("case", REFUSED)
def test_what_stands_in_the_way_is_refused_with_a_way_out(connection: Connection, case: str) -> None:
    setup, reason = REFUSED[case]
    run(connection, setup)
    shape = (
        "SELECT relname, relkind::text, relchecks FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    before = connection.execute(shape).fetchall()
    with pytest.raises(RefusedError, match="nothing was changed") as error:
        register.register(connection, "public.t", "3 months")
    assert error.match(reason)
    reasons, remedies = (error.value.detail or "").splitlines(), (error.value.hint or "").splitlines()
    assert len(reasons) == len(remedies)
    assert all(len(remedy) > len("  -> ") for remedy in remedies)
    assert connection.execute(shape).fetchall() == before


# What a person does who follows the hint.
WAYS_OUT = {
    "no primary key": "ALTER TABLE public.t ADD PRIMARY KEY (id, ts)",
    "no partitions": PARTITION,
    "our own column names": "ALTER TABLE public.t RENAME COLUMN _seq TO seq",
    "a default partition with rows": "CREATE TABLE public.t_2 (LIKE public.t INCLUDING ALL);"
    "WITH moved AS (DELETE FROM public.t_d RETURNING *) INSERT INTO public.t_2 SELECT * FROM moved;"
    "ALTER TABLE public.t ATTACH PARTITION public.t_2 FOR VALUES FROM ('2030-01-01') TO ('2030-02-01')",
    "an unlogged partition": "ALTER TABLE public.t_1 SET LOGGED",
    "a typed table": "ALTER TABLE public.t NOT OF",
    "a deferrable key": f"ALTER TABLE public.t DROP CONSTRAINT t_pkey, ADD {KEY}",
    "a constraint that is not valid": "ALTER TABLE public.t VALIDATE CONSTRAINT t_v_check",
    "an index that is not valid": "CREATE INDEX part ON public.t_1 (v);"
    "ALTER INDEX public.partly ATTACH PARTITION public.part",
    "inbound foreign keys": "ALTER TABLE public.other DROP CONSTRAINT other_id_ts_fkey",
    "a unique constraint": "ALTER TABLE public.t DROP CONSTRAINT t_v_ts_key; CREATE INDEX ON public.t (v, ts)",
    "exclusion constraints": "ALTER TABLE public.t DROP CONSTRAINT once",
    "a view that groups by the key": "CREATE OR REPLACE VIEW public.grouped AS"
    " SELECT id, ts, v FROM public.t GROUP BY id, ts, v",
    "transition tables": "DROP TRIGGER late ON public.t;"
    "CREATE TRIGGER late AFTER INSERT ON public.t FOR EACH STATEMENT EXECUTE FUNCTION public.f()",
    "constraint triggers": "DROP TRIGGER late ON public.t;"
    "CREATE TRIGGER late AFTER INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.f()",
    "updates published under its name": "ALTER PUBLICATION feed SET (publish_via_partition_root = false)",
    "all tables published by root": "ALTER TABLE public.t REPLICA IDENTITY FULL;"
    "ALTER TABLE public.t_1 REPLICA IDENTITY FULL",
    "a branch under a common key": f"ALTER TABLE public.top DROP CONSTRAINT top_pkey; ALTER TABLE public.t ADD {KEY}",
}


@pytest.mark.parametrize("case", WAYS_OUT)
def test_the_way_out_leads_out(any_connection: Connection, case: str) -> None:
    if case == "exclusion constraints" and any_connection.info.server_version < 170000:
        pytest.skip("partitioned tables have none before 17")
    run(any_connection, REFUSED[case][0])
    with pytest.raises(RefusedError, match=REFUSED[case][1]):
        register.plan(any_connection, "public.t", "3 months")
    run(any_connection, WAYS_OUT[case])
    assert isinstance(register.register(any_connection, "public.t", "3 months"), register.Plan)


def test_a_detach_that_was_not_finished_is_refused_until_it_is(any_installed: str) -> None:
    """Of a partition without rows that is detached while somebody reads: the wait for him is cancelled."""
    with (
        psycopg.connect(any_installed, autocommit=True) as owner,
        psycopg.connect(any_installed) as reader,
        connect(any_installed) as ours,
    ):
        owner.execute(PLAIN + PARTITION.replace("t_1", "t_2").replace("-02-", "-03-").replace("-01-", "-02-"))
        try:
            reader.execute("SELECT FROM public.t")
            _half_detached(owner, reader)
            with pytest.raises(RefusedError, match=r"partitions \(public.t_2\) are half detached") as error:
                register.plan(ours, "public.t", "3 months")
            assert "ALTER TABLE ... DETACH PARTITION ... FINALIZE" in (error.value.hint or "")
            reader.rollback()
            owner.execute("ALTER TABLE public.t DETACH PARTITION public.t_2 FINALIZE")
            plan = register.plan(ours, "public.t", "3 months")
            assert isinstance(plan, register.Plan)
            assert [leaf.name for leaf in plan.table.leaves] == ["t_1"]
        finally:
            reader.rollback()
            owner.execute("DROP TABLE public.t; DROP TABLE IF EXISTS public.t_2")


def _half_detached(owner: psycopg.Connection[Any], reader: psycopg.Connection[Any]) -> None:
    """Its first transaction is committed, and in its second it waits for the reader."""

    def cancel() -> None:
        pending = "SELECT FROM pg_inherits WHERE inhrelid = 'public.t_2'::regclass AND inhdetachpending"
        waits = f"SELECT FROM pg_locks WHERE pid = {owner.info.backend_pid} AND NOT granted"
        try:
            wait_until(lambda: all(reader.execute(one).rowcount == 1 for one in (pending, waits)), 60, "it waits")
        finally:
            owner.cancel_safe()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        owner.execute("ALTER TABLE public.t DETACH PARTITION public.t_2 CONCURRENTLY")
    thread.join()


def test_a_temporary_table_is_nobody_elses(connection: Connection) -> None:
    run(
        connection,
        f"CREATE TEMPORARY TABLE t (id int, ts timestamptz, {KEY}) PARTITION BY RANGE (ts);"
        "CREATE TEMPORARY TABLE t_1 PARTITION OF t FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    )
    row = connection.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchone()
    assert row is not None
    with pytest.raises(RefusedError, match=r"it \(\S*t\) is temporary") as error:
        register.plan(connection, f"{row[0]}.t", "3 months")
    assert error.value.hint == "  -> make it an ordinary table"


DECLARED = PLAIN.replace("CREATE TABLE public.t (id int,", "CREATE UNLOGGED TABLE public.t (id int, n serial,")


@pytest.fixture
def before_18(installed15: str) -> Iterator[Connection]:
    """Only there can a partitioned table be declared UNLOGGED, and it stays so whatever it is told."""
    with connect(installed15, autocommit=False) as opened:
        yield opened
        opened.rollback()


def test_what_a_partitioned_table_was_declared_as_decides_nothing(before_18: Connection) -> None:
    run(before_18, DECLARED + "CREATE INDEX ON public.t (v); ALTER TABLE public.t SET LOGGED")
    plan = register.register(before_18, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    assert plan.warnings[:2] == [
        "public.t was declared UNLOGGED: its partitions are not, but Postgres reads it on no standby",
        "sequences (public.t_n_seq) are UNLOGGED and begin anew after a crash: ALTER SEQUENCE ... SET LOGGED",
    ]
    assert list(premake.premake(before_18, registry.get(before_18, "public.t"))) != []
    persistence = "SELECT relname FROM pg_class WHERE relpersistence = 'u' ORDER BY 1"
    # Its own, which hold nothing: neither the hot partition nor a new one, nor their indexes.
    assert before_18.execute(persistence).fetchall() == [("t",), ("t_n_seq",), ("t_v_idx",)]
    before_18.execute("ALTER SEQUENCE public.t_n_seq SET LOGGED")
    assert before_18.execute(persistence).fetchall() == [("t",), ("t_v_idx",)]


def test_partitions_of_an_unlogged_table_are_logged_one_by_one(before_18: Connection) -> None:
    run(before_18, DECLARED + "ALTER TABLE public.t_1 SET UNLOGGED")
    with pytest.raises(RefusedError, match=r"partition public.t_1 is UNLOGGED") as error:
        register.plan(before_18, "public.t", "3 months")
    assert error.value.hint == "  -> ALTER TABLE public.t_1 SET LOGGED"
    before_18.execute("ALTER TABLE public.t_1 SET LOGGED")
    assert isinstance(register.register(before_18, "public.t", "3 months"), register.Plan)


def test_foreign_keys_to_unlogged_tables_cannot_go_to_the_hot_partition(before_18: Connection) -> None:
    run(
        before_18,
        "CREATE UNLOGGED TABLE public.dim (k int PRIMARY KEY);"
        + DECLARED.replace("v int,", "v int REFERENCES public.dim,"),
    )
    with pytest.raises(RefusedError, match=r"its foreign keys refer to UNLOGGED tables \(public.dim\)"):
        register.plan(before_18, "public.t", "3 months")
    before_18.execute("ALTER TABLE public.dim SET LOGGED")
    assert isinstance(register.register(before_18, "public.t", "3 months"), register.Plan)


def test_foreign_keys_of_periods_hold_for_hot_rows(connection: Connection) -> None:
    run(
        connection,
        "CREATE TABLE public.dim (k int4range, d daterange, PRIMARY KEY (k, d WITHOUT OVERLAPS));"
        + PLAIN.replace("v int,", "v int4range, d daterange,")
        + "ALTER TABLE public.t ADD CONSTRAINT meanwhile FOREIGN KEY (v, PERIOD d) REFERENCES public.dim (k, PERIOD d)",
    )
    with pytest.raises(RefusedError, match=r"foreign keys \(meanwhile\) of periods of time"):
        register.plan(connection, "public.t", "3 months")
    plan = register.register(connection, "public.t", "3 months", {"cold_fk": "none"})
    assert isinstance(plan, register.Plan)
    run(connection, "INSERT INTO public.dim VALUES ('[1,1]', '[2026-01-01,2027-01-01)')")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        connection.execute("INSERT INTO public.t VALUES (1, '2026-01-15', '[2,2]', '[2026-02-01,2026-03-01)')")


def test_the_way_out_of_two_levels_is_the_branch(connection: Connection) -> None:
    run(connection, REFUSED["two levels"][0])
    with pytest.raises(RefusedError, match=r"frostline register public\.t_1"):
        register.plan(connection, "public.t", "3 months")


def test_what_belongs_to_others_is_named_with_the_grant_that_is_missing(connection: Connection) -> None:
    run(
        connection,
        "CREATE ROLE stranger; CREATE ROLE other; CREATE TABLE public.dim (k int PRIMARY KEY);"
        + PLAIN.replace("v int,", "v int REFERENCES public.dim,")
        + "ALTER TABLE public.t OWNER TO stranger; ALTER TABLE public.t_1 OWNER TO other;"
        "GRANT USAGE ON SCHEMA public, frostline TO stranger;"
        "GRANT SELECT ON ALL TABLES IN SCHEMA frostline TO stranger;"
        "ALTER TABLE public.t_1 ENABLE ROW LEVEL SECURITY; ALTER TABLE public.t_1 FORCE ROW LEVEL SECURITY;"
        "SET LOCAL ROLE stranger",
    )
    with pytest.raises(RefusedError) as error:
        register.plan(connection, "public.t", "3 months")
    for words in (
        r"row security is forced on partitions \(public.t_1\)",
        r"partitions \(public.t_1\) belong to others",
        "no partition can be created in its schema public",
        "this role may not refer to public.dim",
        "may not create the trigger that keeps cold rows' referents",
    ):
        assert error.match(words)
    told = error.value.hint
    with pytest.raises(RefusedError) as error:
        register.plan(connection, "public.t", "3 months", {"cold_fk": "none"})
    assert "trigger that keeps" not in str(error.value)
    statements = [line.removeprefix("  -> ").partition(";")[0] for line in (told or "").splitlines()]
    run(connection, "RESET ROLE; ALTER TABLE public.t_1 NO FORCE ROW LEVEL SECURITY")
    run(connection, "; ".join(one for one in statements if one.startswith("GRANT ")))
    connection.execute("SET LOCAL ROLE stranger")
    oid, *_ = describe.resolve(connection, "public.t")
    assert refusals.refusals(connection, oid, "p", cold_fk="check") == []


def execute(dsn: str, text: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(text)


def test_an_owner_who_may_create_nothing_in_the_schema_is_told_with_the_grant(database: str, frostline: Run) -> None:
    """What is made there is to be his, and only a superuser may give it to him all the same."""
    keeper, owner = (f"{word} {uuid.uuid4().hex[:6]}" for word in ("Keeper", "Owner"))
    execute(
        database,
        f"""CREATE ROLE "{keeper}" LOGIN PASSWORD 'pw'; CREATE ROLE "{owner}"; GRANT "{owner}" TO "{keeper}";
        CREATE EXTENSION postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO "{keeper}";
        GRANT ALL ON DATABASE {conninfo_to_dict(database)["dbname"]} TO "{keeper}";
        CREATE SCHEMA "Odd.one"; GRANT CREATE, USAGE ON SCHEMA "Odd.one" TO "{keeper}";
        CREATE TABLE "Odd.one".t (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
        CREATE TABLE "Odd.one".t_1 PARTITION OF "Odd.one".t FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
        CREATE TABLE "Odd.one".p (id int, ts date, PRIMARY KEY (id, ts));
        ALTER TABLE "Odd.one".t OWNER TO "{owner}"; ALTER TABLE "Odd.one".t_1 OWNER TO "{owner}";
        ALTER TABLE "Odd.one".p OWNER TO "{owner}";""",
    )
    base = ("--dsn", make_conninfo(database, user=keeper, password="pw"))
    assert frostline(*base, "init").returncode == 0
    commands = (("register", '"Odd.one".t'), ("partition", '"Odd.one".p', "--by", "ts"))
    try:
        for command in commands:
            told = frostline(*base, *command)
            failed_clearly(told, "as it is")
            assert 'its owner may create nothing in its schema "Odd.one"' in told.stderr
            (statement,) = re.findall(r"-> (GRANT .*)", told.stderr)
        execute(database, statement)
        for command in commands:
            assert frostline(*base, *command).returncode == 0
    finally:
        execute(database, f'DROP OWNED BY "{keeper}", "{owner}" CASCADE; DROP ROLE "{keeper}", "{owner}"')


def test_a_table_of_somebody_else(connection: Connection) -> None:
    run(connection, "CREATE ROLE stranger; GRANT USAGE ON SCHEMA frostline TO stranger;" + PLAIN)
    connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA frostline TO stranger; SET LOCAL ROLE stranger")
    with pytest.raises(RefusedError, match=r"it belongs to \w+"):
        register.plan(connection, "public.t", "3 months")


def test_the_hot_partition_and_other_relatives_of_a_registered_table(connection: Connection) -> None:
    run(connection, PLAIN)
    register.register(connection, "public.t", "3 months")
    with pytest.raises(RefusedError, match=r"belongs together with public\.t, which is registered"):
        register.plan(connection, "public.t_hot", "3 months")


# What was done, and how the caution begins.
CAUTIONS = {
    "row triggers": (
        PLAIN + TRIGGER + "CREATE TRIGGER stamp BEFORE INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.f()",
        "row triggers (stamp)",
    ),
    "rules": (PLAIN + "CREATE RULE quiet AS ON DELETE TO public.t DO ALSO NOTHING", "rules (quiet)"),
    "a publication": (PLAIN + "CREATE PUBLICATION feed FOR TABLE public.t", "publications (feed)"),
    "a publication of a partition": (PLAIN + "CREATE PUBLICATION feed FOR TABLE public.t_1", "publications (feed)"),
    "a publication of the schema": (
        PLAIN + "CREATE PUBLICATION feed FOR TABLES IN SCHEMA public",
        "publications (feed)",
    ),
    "a replica identity": (
        PLAIN + "ALTER TABLE public.t REPLICA IDENTITY USING INDEX t_pkey",
        "its replica identity (public.t_pkey)",
    ),
    "a foreign key": (
        "CREATE TABLE public.dim (k int PRIMARY KEY);" + PLAIN.replace("v int,", "v int REFERENCES public.dim,"),
        "foreign keys (t_v_fkey to public.dim): a trigger on the referenced table",
    ),
    "a foreign key that cascades": (
        "CREATE TABLE public.dim (k int PRIMARY KEY);"
        + PLAIN.replace("v int,", "v int REFERENCES public.dim ON DELETE CASCADE ON UPDATE SET NULL,"),
        "t_v_fkey ON DELETE CASCADE, t_v_fkey ON UPDATE SET NULL: cold rows that refer to a row are changed along",
    ),
    "a trigger of one partition": (
        PLAIN + TRIGGER + "CREATE TRIGGER own AFTER INSERT ON public.t_1 EXECUTE FUNCTION public.f()",
        "what stands on single partitions goes when they are archived: public.t_1: trigger own",
    ),
    "more on one partition": (
        PLAIN + "CREATE UNIQUE INDEX once ON public.t_1 (v); ALTER TABLE public.t_1 ADD CHECK (v > 0);"
        "ALTER TABLE public.t_1 ADD CONSTRAINT apart EXCLUDE USING btree (v WITH =); CREATE POLICY mine ON public.t_1",
        "what stands on single partitions goes when they are archived: "
        "public.t_1: constraint apart, public.t_1: constraint t_1_v_check, "
        "public.t_1: policy mine, public.t_1: unique index once",
    ),
    "a view on a partition": (
        PLAIN + "CREATE VIEW public.january AS SELECT * FROM public.t_1",
        "public.t_1 stays in Postgres as long as public.january depend on that partition itself",
    ),
    "no end": (
        PLAIN.replace("('2026-02-01')", "(MAXVALUE)"),
        "public.t_1 reaches to MAXVALUE: it can never be archived",
    ),
}
ALWAYS = "a plan in which `ts > now() - ...` decides at run time which partitions are read is not parallel"


@pytest.mark.parametrize("case", CAUTIONS)
def test_what_a_person_should_know_is_said_and_forbids_nothing(connection: Connection, case: str) -> None:
    setup, words = CAUTIONS[case]
    run(connection, setup)
    plan = register.plan(connection, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    assert [warning for warning in plan.warnings if warning.startswith(words)], plan.warnings
    assert plan.warnings[-1] == ALWAYS


# Its list of tables, and its entry among the extensions: all that is looked at.
PARTMAN = (
    "CREATE SCHEMA partman; CREATE TABLE partman.part_config (parent_table text PRIMARY KEY, control text);"
    "SET LOCAL allow_system_table_mods = on;"
    "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)"
    " SELECT 99999, 'pg_partman', 10, 'partman'::regnamespace, false, '5.2.4';"
)


def test_a_table_of_pg_partman_is_taken_over_by_deleting_it_from_its_list(any_connection: Connection) -> None:
    run(
        any_connection,
        PLAIN.replace("t_1", "t_p20260101")
        + "CREATE TABLE public.t_default PARTITION OF public.t DEFAULT;"
        + PARTMAN
        + "INSERT INTO partman.part_config VALUES ('public.t', 'ts'), ('public.other', 'ts')",
    )
    plan = register.plan(any_connection, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    words = "pg_partman would go on creating partitions under public.t: let Frostline create them, and "
    [warning] = [warning for warning in plan.warnings if warning.startswith(words)]
    run(any_connection, warning.removeprefix(words))
    assert any_connection.execute("SELECT parent_table FROM partman.part_config").fetchall() == [("public.other",)]
    plan = register.plan(any_connection, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    assert [warning for warning in plan.warnings if "pg_partman" in warning] == []


def test_a_plain_table_gets_no_other_warning(connection: Connection) -> None:
    run(connection, PLAIN)
    plan = register.plan(connection, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    assert plan.warnings == [ALWAYS]


def test_a_server_that_generic_plans_crash_is_named(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cautions, "MISCOUNTING", range(180000, 190000))
    run(connection, PLAIN)
    plan = register.plan(connection, "public.t", "3 months")
    assert isinstance(plan, register.Plan)
    assert "crashes when a prepared UPDATE or DELETE" in plan.warnings[0]


@pytest.mark.parametrize(
    "choice",
    [{"cold_fk": "maybe"}, {"premake": "-1"}, {"coalesce": "year"}, {"coalesce": "week after 1 year"}],
)
def test_an_option_that_is_none(connection: Connection, choice: dict[str, str]) -> None:
    run(connection, PLAIN)
    with pytest.raises(ConfigError):
        register.plan(connection, "public.t", "3 months", choice)


@pytest.mark.parametrize(
    ("key", "text", "stored"),
    [
        ("timestamptz", "", ("year", "2 years")),
        ("timestamptz", "none", None),
        ("timestamptz", "month after 90 days", ("month", "90 days")),
        ("int8", "", None),
        ("int8", "1000 after 5000", ("1000", "5000")),
    ],
)
def test_the_coalescing_policy_is_kept(
    connection: Connection, key: str, text: str, stored: tuple[str, str] | None
) -> None:
    bounds = "('1') TO ('2')" if key == "int8" else "('2026-01-01') TO ('2026-02-01')"
    run(
        connection,
        f"CREATE TABLE public.t (id int, ts {key}, {KEY}) PARTITION BY RANGE (ts);"
        f"CREATE TABLE public.t_1 PARTITION OF public.t FOR VALUES FROM {bounds}",
    )
    register.register(connection, "public.t", "100" if key == "int8" else "3 months", {"coalesce": text})
    found = connection.execute("SELECT coalesce_to, coalesce_after FROM frostline.tables").fetchone()
    assert found == (stored or (None, None))
