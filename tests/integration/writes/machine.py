"""Random transactions of several sessions on a small tiered table and on its plain twin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
from hypothesis import strategies as st

from fix_tiering import World
from integration.writes.pair import Outcome, outcome

TIERED, PLAIN = "moving", "moving_twin"
ROWS = "SELECT id, ts, i, t FROM {} ORDER BY id, ts"
# Ids of one class are written by one session at a time: nobody waits for a lock, and the order of commits does not
# matter.
CLASSES = 2
COLD = ("2025-06-01", "2026-01-10", "2026-01-20", "2026-02-10")
HOT = ("2026-11-10", "2026-12-10")
SEAM = "2026-03-01"
_FILL = """
INSERT INTO {} SELECT x, (ARRAY['2026-01-10Z', '2026-01-20Z', '2026-02-10Z', '2026-11-10Z', '2026-12-10Z'])[1 + x % 5]
    ::timestamptz, x, 'row ' || x FROM generate_series(1, 15) x
"""


def build(world: World) -> None:
    for table in (TIERED, PLAIN):
        world.run(
            f"CREATE TABLE {table} (id int, ts timestamptz, i int DEFAULT 7 CHECK (i < 1000), t text,"
            " PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)"
        )
        for name, lower, upper in (("01", 1, 2), ("02", 2, 3), ("11", 11, 12), ("12", 12, 13)):
            bounds = (f"'2026-{lower:02}-01Z'", f"'2026-{upper:02}-01Z'" if upper < 13 else "'2027-01-01Z'")
            world.run(
                f"CREATE TABLE {table}_{name} PARTITION OF {table} FOR VALUES FROM ({bounds[0]}) TO ({bounds[1]})"
            )
        world.run(_FILL.format(table))
    world.run(f"CREATE TABLE {PLAIN}_old PARTITION OF {PLAIN} FOR VALUES FROM (MINVALUE) TO ('2026-01-01Z')")
    world.register(f"public.{TIERED}")
    assert len(world.archive(f"public.{TIERED}", f"{SEAM}Z")) == 2


def reset(reader: psycopg.Connection[Any]) -> None:
    """Back to the first rows: nobody has a transaction open."""
    query = "SELECT delta::text FROM frostline.tables WHERE relation = %s::regclass"
    (delta,) = reader.execute(query, [TIERED]).fetchone() or ("",)
    reader.execute(f"DELETE FROM {delta}; DELETE FROM {TIERED}_hot; DELETE FROM {PLAIN}; {_FILL.format(PLAIN)}")
    reader.execute(f"INSERT INTO {TIERED}_hot SELECT * FROM {PLAIN} WHERE ts >= '{SEAM}'")


def same_rows(reader: psycopg.Connection[Any]) -> None:
    """What anyone sees who comes now."""
    tiered, plain = (reader.execute(ROWS.format(table)).fetchall() for table in (TIERED, PLAIN))
    assert tiered == plain


@dataclass
class Session:
    """One client, once for each table."""

    world: World
    connections: tuple[psycopg.Connection[Any], ...] = ()
    began: int | None = None  # when its transaction did; None: it has none
    classes: set[int] = field(default_factory=set)  # that its transaction may write and read
    savepoints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connections = tuple(self.world.connect() for _ in (TIERED, PLAIN))
        for connection in self.connections:
            connection.execute("SET timezone = 'UTC'; SET lock_timeout = '5s'")

    def run(self, statement: str) -> Outcome:
        """The same on both, with the same outcome."""
        tiered, plain = (
            outcome_of(connection, statement.replace("{t}", table))
            for connection, table in zip(self.connections, (TIERED, PLAIN), strict=True)
        )
        assert tiered == plain, f"{statement}: {tiered}, not {plain}"
        return tiered

    @property
    def failed(self) -> bool:
        return self.connections[0].info.transaction_status == psycopg.pq.TransactionStatus.INERROR

    def reset(self) -> None:
        for connection in self.connections:
            connection.rollback()
        self.forget()

    def forget(self) -> None:
        """Its transaction is over."""
        self.began = None
        self.classes.clear()
        self.savepoints.clear()


def outcome_of(connection: psycopg.Connection[Any], statement: str) -> Outcome:
    """Without a savepoint around it: whether there is one is the machine's choice.

    A statement that violates two constraints is told of one: cold rows are checked a batch at a time.
    """
    tag, rows = outcome(connection, statement, alone=False)
    return "23505 or 23514" if tag in ("23505", "23514") else tag, rows


def _times(*times: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"'{time}Z'" for time in times])


IDS = st.integers(0, 7)  # the rows there are at first have ids up to 15
FRESH = st.integers(10, 12)
VALUES = st.integers(-5, 50)
LEVELS = st.sampled_from(["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ"])
_PREDICATES = st.one_of(
    st.builds("x.id = {{k}}{})".format, IDS),
    st.builds("x.id IN ({{k}}{}), {{k}}{}), {{k}}{}))".format, IDS, IDS, FRESH),
    st.builds("x.id BETWEEN {} AND {}".format, IDS, st.integers(5, 50)),
    st.builds("x.ts {} {}".format, st.sampled_from(["<", ">=", "="]), _times(*COLD, *HOT, SEAM)),
    st.builds("x.i % 3 = {}".format, st.integers(0, 2)),
    st.builds("x.t ~ '{}'".format, st.integers(0, 9)),
    st.just("x.t LIKE 'n%'"),
    st.just("x.i IS NOT NULL"),
)
_SETS = st.sampled_from(
    ["i = i + 1", "i = 5", "t = x.t || '.'", "i = DEFAULT, t = NULL", "i = id, t = 'n' || i", "i = i * 40"]
)
_RETURNING = st.sampled_from(["", "", " RETURNING *", " RETURNING x.id, x.i + 1, x.t"])


# `{c}` is the condition that keeps a statement in its class, `{k}` makes an id of it.
_WHERE = st.builds(
    lambda found: " AND ".join([*found, "{c}"]), st.lists(_PREDICATES, max_size=1) | st.lists(_PREDICATES, max_size=2)
)
_ROW = st.builds(
    "({{k}}{}), {}, {}, {})".format,
    IDS | FRESH,
    _times(*COLD, *HOT),
    VALUES.map(str) | st.sampled_from(["DEFAULT", "NULL", "5000"]),
    st.sampled_from(["NULL", "'new'", "'n1'", "DEFAULT"]),
)
_ROWS = st.lists(_ROW, min_size=1, max_size=5).map(", ".join)
_INSERT = st.builds(
    "INSERT INTO {{t}} AS x (id, ts, i, t) VALUES {}{}{}".format,
    _ROWS,
    st.sampled_from(["", " ON CONFLICT DO NOTHING"]),
    _RETURNING,
)
_COPIED = st.builds(
    "INSERT INTO {{t}} AS x (id, ts, i, t) SELECT id + {}, {}, i, t FROM {{t}} x WHERE {}{}{}".format,
    st.sampled_from([0, 16, 32]),
    _times(*COLD, *HOT) | st.just("ts"),
    _WHERE,
    st.sampled_from(["", " ON CONFLICT DO NOTHING"]),
    _RETURNING,
)
_UPDATE = st.builds("UPDATE {{t}} x SET {} WHERE {}{}".format, _SETS, _WHERE, _RETURNING)
_JOINED = st.builds(
    "UPDATE {{t}} x SET i = y.i + 1, t = y.t FROM {{t}} y WHERE y.id = {{k}}{}) AND y.ts = {} AND {}{}".format,
    IDS,
    _times(*COLD, *HOT),
    _WHERE,
    _RETURNING,
)
_KEYS = st.builds(
    "UPDATE {{t}} x SET id = id + {}{} WHERE x.id = {{k}}{}) AND x.ts {} '2026-03-01Z'{}".format,
    st.sampled_from([0, 2, 16]),
    st.sampled_from(["", ", i = i + 1"]),
    IDS,
    st.sampled_from(["<", ">="]),
    _RETURNING,
)
_NEW_KEYS = st.builds("UPDATE {{t}} x SET id = id + {} WHERE {}{}".format, st.just(400), _WHERE, _RETURNING)
# Postgres routes no row into a partition that it also scans: the old rows are all cold or all hot.
_MOVE = st.builds(
    "UPDATE {{t}} x SET ts = {}{} WHERE x.ts {} '2026-03-01Z' AND x.id = {{k}}{}){}{}".format,
    _times(*COLD, *HOT),
    st.sampled_from(["", ", i = i + 1", ", id = id + 2"]),
    st.sampled_from(["<", ">="]),
    IDS,
    st.just("") | _PREDICATES.map(" AND {}".format),
    _RETURNING,
)
_DELETE = st.builds("DELETE FROM {{t}} x WHERE {}{}".format, _WHERE, _RETURNING)
_USING = st.builds("DELETE FROM {{t}} x USING {{t}} y WHERE y.id = x.id + 2 AND y.i > {} AND {}".format, VALUES, _WHERE)
_CTE = st.one_of(
    st.builds(
        "WITH d AS (DELETE FROM {{t}} x WHERE {} RETURNING *)"
        " INSERT INTO {{t}} AS x SELECT id + {}, ts, i, 'again' FROM d{}".format,
        _WHERE,
        st.sampled_from([0, 0, 16]),
        _RETURNING,
    ),
    st.builds(
        "WITH a AS (UPDATE {{t}} x SET i = x.i + 1 WHERE {} RETURNING id, ts)"
        " UPDATE {{t}} x SET i = x.i + 10, t = 'twice' FROM a WHERE a.id = x.id AND a.ts = x.ts AND {{c}}{}".format,
        _WHERE,
        _RETURNING,
    ),
    st.builds(
        "WITH a AS (INSERT INTO {{t}} AS x VALUES {} RETURNING id), b AS (DELETE FROM {{t}} x WHERE {} RETURNING id)"
        " SELECT (SELECT count(*) FROM a), (SELECT sum(id) FROM b), (SELECT sum(i) FROM {{t}} x WHERE {{c}})".format,
        _ROW,
        _WHERE,
    ),
)
READS = st.one_of(
    st.builds("SELECT id, ts, i, t FROM {{t}} x WHERE {}".format, _WHERE),
    st.builds("SELECT count(*), sum(i), max(t) FROM {{t}} x WHERE {}".format, _WHERE),
    st.builds("SELECT x.id, x.ts, y.ts FROM {{t}} x JOIN {{t}} y ON y.id = x.id + 2 WHERE {}".format, _WHERE),
    st.builds("SELECT id, i FROM {{t}} x WHERE {} FOR UPDATE".format, _WHERE),
)
WRITES = st.one_of(_INSERT, _COPIED, _UPDATE, _UPDATE, _JOINED, _KEYS, _NEW_KEYS, _MOVE, _MOVE, _DELETE, _USING, _CTE)
_BARE = st.one_of(_INSERT, _UPDATE, _MOVE, _DELETE, _KEYS).map(lambda text: text.split(" RETURNING")[0])
BLOCKS = st.builds(
    lambda first, inner, more, handler, last: (
        f"DO $$ BEGIN {first}; BEGIN {inner}; {more} EXCEPTION WHEN OTHERS THEN {handler}; END; {last}; END $$"
    ),
    _BARE,
    _BARE,
    st.sampled_from(["", "", "RAISE EXCEPTION 'no';"]),
    _BARE | st.just("NULL"),
    _BARE,
)


def in_class(statement: str, number: int) -> str:
    """Kept to the ids of one class."""
    return statement.replace("{c}", f"x.id % {CLASSES} = {number}").replace("{k}", f"({number} + {CLASSES} * ")
