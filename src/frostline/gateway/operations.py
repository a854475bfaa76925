"""What can be done to rows, and by which way old ones are changed: the table in docs/writes.md is written from here.

The ways are those that `changes` takes and counts (`frostline_gateway_writes_total`). A test runs every example and
compares: what stands here is what happens.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

BEGIN, END = "<!-- operations -->\n", "<!-- end of operations -->\n"


class Way(StrEnum):
    """How a statement that postgres_fdw sends is worked out."""

    BATCH = "batch"
    FILES = "files"
    GIVEN = "given"
    ASKED = "asked"
    WHOLE = "whole"
    ROW = "row"


MEANING = {
    Way.BATCH: "rows arrive in batches of up to 1,000; keys are looked up in lake and delta when the statement ends",
    Way.FILES: "as a batch; when the statement ends the rows go into data files of the lake",
    Way.GIVEN: "sent whole; one row by its whole primary key, set to constants or deleted: its new values are known",
    Way.ASKED: "sent whole; a few rows: their new values are one question to Postgres",
    Way.WHOLE: "sent whole; the rows concerned go into a temporary table and the statement runs there, word for word",
    Way.ROW: "rows are read first, then changed one by one",
}
HOT = "heap"


@dataclass(frozen=True)
class Operation:
    """One row of the table, with examples for rows of November 2026, for rows of January 2026, and for both at once.

    `{t}` is the table, `{hot}` its hot partition; what follows a COPY's first line is what it copies. An error is a
    SQLSTATE.
    """

    what: str
    recent: str
    old: str
    way: Way | str
    together: str
    both: str | None = None  # None: it works
    note: str = ""


_LAST = "ts >= '2026-11-01Z'"
_FIRST = "ts < '2026-02-01Z'"
_HOT_ROW, _COLD_ROW = "(405, timestamptz '2026-11-01 05:00Z')", "(5, timestamptz '2026-01-01 05:00Z')"
_CURSOR = "DECLARE one CURSOR FOR SELECT * FROM {} WHERE id = 405; FETCH one; UPDATE {} SET i = 1 WHERE CURRENT OF one"


def _called(function: str, *rows: str, more: str = "") -> str:
    """A function of ours, of each of the rows."""
    return f"SELECT frostline.{function}('{{t}}', to_jsonb(v){more}) FROM (VALUES {', '.join(rows)}) v (id, ts)"


def _merge(table: str, rows: str, on: str, does: str) -> str:
    return f"MERGE INTO {table} t USING (VALUES {rows}) v (id, ts) ON t.id = v.id AND {on} WHEN {does}"


_SET = "MATCHED THEN UPDATE SET i = 1"
_ADD = "NOT MATCHED THEN INSERT (id, ts) VALUES (v.id, v.ts)"
_NEW_COLD = "(9001, timestamptz '2026-01-09Z')"

OPERATIONS = (
    Operation(
        "`INSERT ... VALUES`, `INSERT ... SELECT`",
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-11-09Z')",
        "INSERT INTO {t} (id, ts) SELECT 9000 + x, '2026-01-09Z' FROM generate_series(1, 3) x",
        Way.BATCH,
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-11-09Z'), (9002, '2026-01-09Z')",
        note="each row goes to its tier",
    ),
    Operation(
        "`COPY FROM`",
        "COPY {t} (id, ts) FROM STDIN\n9001\t2026-11-09Z",
        "COPY {t} (id, ts) FROM STDIN\n9001\t2026-01-09Z",
        Way.BATCH,
        "COPY {t} (id, ts) FROM STDIN\n9001\t2026-11-09Z\n9002\t2026-01-09Z",
        note="each row goes to its tier",
    ),
    Operation(
        "`INSERT`, `COPY FROM` of [many rows](#many-new-rows)",
        "INSERT INTO {t} (id, ts) SELECT 9000 + x, '2026-11-09Z' FROM generate_series(1, 60) x",
        "INSERT INTO {t} (id, ts) SELECT 9000 + x, '2026-01-09Z' FROM generate_series(1, 60) x",
        Way.FILES,
        "INSERT INTO {t} (id, ts) SELECT 9000 + x, d FROM generate_series(1, 60) x,"
        " unnest(ARRAY[timestamptz '2026-01-09Z', '2026-11-09Z']) d",
        note="each row goes to its tier",
    ),
    Operation(
        "`UPDATE` of a row by its primary key, to constants",
        "UPDATE {t} SET i = 1 WHERE id = 405 AND ts = '2026-11-01 05:00Z'",
        "UPDATE {t} SET i = 1 WHERE id = 5 AND ts = '2026-01-01 05:00Z'",
        Way.GIVEN,
        "UPDATE {t} SET i = 1 WHERE (id, ts) IN ((5, timestamptz '2026-01-01 05:00Z'), (405, '2026-11-01 05:00Z'))",
    ),
    Operation(
        "`DELETE` of a row by its primary key",
        "DELETE FROM {t} WHERE id = 405 AND ts = '2026-11-01 05:00Z'",
        "DELETE FROM {t} WHERE id = 5 AND ts = '2026-01-01 05:00Z'",
        Way.GIVEN,
        "DELETE FROM {t} WHERE (id, ts) IN ((5, timestamptz '2026-01-01 05:00Z'), (405, '2026-11-01 05:00Z'))",
    ),
    Operation(
        "`UPDATE` of a few rows by any condition",
        f"UPDATE {{t}} SET i = i + 1 WHERE id = 405 AND {_LAST}",
        f"UPDATE {{t}} SET i = i + 1 WHERE id = 5 AND {_FIRST}",
        Way.ASKED,
        "UPDATE {t} SET i = i + 1 WHERE id IN (5, 405)",
    ),
    Operation(
        "`DELETE` of a few rows by any condition",
        f"DELETE FROM {{t}} WHERE id = 405 AND {_LAST}",
        f"DELETE FROM {{t}} WHERE id = 5 AND {_FIRST}",
        Way.ASKED,
        "DELETE FROM {t} WHERE id IN (5, 405)",
    ),
    Operation(
        "`UPDATE`, `DELETE` of many rows",
        f"UPDATE {{t}} SET i = i + 1 WHERE {_LAST}",
        f"UPDATE {{t}} SET i = i + 1 WHERE {_FIRST}",
        Way.WHOLE,
        "UPDATE {t} SET i = i + 1",
    ),
    Operation(
        "`UPDATE ... RETURNING`, `DELETE ... RETURNING`",
        f"UPDATE {{t}} SET i = 1 WHERE id = 405 AND {_LAST} RETURNING id, i",
        f"DELETE FROM {{t}} WHERE id = 5 AND {_FIRST} RETURNING *",
        Way.WHOLE,
        "DELETE FROM {t} WHERE id IN (5, 405) RETURNING *",
    ),
    Operation(
        "`UPDATE ... FROM`, `DELETE ... USING`, self-joins, sub-selects",
        f"UPDATE {{t}} SET i = o.i FROM {{t}} o WHERE o.id = {{t}}.id + 1 AND {{t}}.{_LAST} AND o.id < 405",
        f"DELETE FROM {{t}} USING {{t}} o WHERE o.id = {{t}}.id + 1 AND {{t}}.{_FIRST} AND o.id < 5",
        Way.ROW,
        "DELETE FROM {t} USING {t} o WHERE o.id = {t}.id + 1 AND o.id IN (5, 405)",
    ),
    Operation(
        "data-modifying CTEs",
        f"WITH d AS (DELETE FROM {{t}} WHERE id = 405 AND {_LAST} RETURNING *) SELECT count(*) FROM d",
        f"WITH d AS (DELETE FROM {{t}} WHERE id = 5 AND {_FIRST} RETURNING *) SELECT count(*) FROM d",
        Way.WHOLE,
        "WITH d AS (DELETE FROM {t} WHERE id IN (5, 405) RETURNING *) SELECT count(*) FROM d",
    ),
    Operation(
        "a new partition key, old row to recent or to another old period",
        f"UPDATE {{t}} SET ts = ts + interval '1 hour' WHERE id = 405 AND {_LAST}",
        f"UPDATE {{t}} SET ts = '2026-11-09Z' WHERE id = 5 AND {_FIRST}",
        Way.WHOLE,
        "UPDATE {t} SET ts = '2026-11-09Z' WHERE id IN (5, 405)",
    ),
    Operation(
        "a new partition key, recent row to old",
        f"UPDATE {{t}} SET ts = ts + interval '1 hour' WHERE id = 405 AND {_LAST}",
        f"UPDATE {{t}} SET ts = '2026-01-09Z' WHERE id = 405 AND {_LAST}",
        Way.BATCH,
        "UPDATE {t} SET ts = '2026-01-09Z' WHERE id IN (5, 405)",
        "0A000",
        "with a condition that leaves only recent rows, or by `frostline.move()`: see the limits below",
    ),
    Operation(
        "`frostline.upsert()`",
        _called("upsert", _HOT_ROW),
        _called("upsert", _NEW_COLD),
        Way.BATCH,
        _called("upsert", "(9001, timestamptz '2026-11-09Z')", _NEW_COLD),
        note="a row that is there: as `UPDATE`",
    ),
    Operation(
        "`frostline.delete()`",
        _called("delete", _HOT_ROW),
        _called("delete", _COLD_ROW),
        Way.GIVEN,
        _called("delete", _HOT_ROW, _COLD_ROW),
    ),
    Operation(
        "`frostline.move()`",
        _called("move", _HOT_ROW, more=", '2026-11-09Z'"),
        _called("move", _COLD_ROW, more=", '2026-11-09Z'"),
        Way.WHOLE,
        _called("move", _HOT_ROW, _COLD_ROW, more=", '2026-01-09Z'"),
    ),
    Operation(
        "`INSERT ... ON CONFLICT DO NOTHING`",
        "INSERT INTO {t} (id, ts) VALUES (405, '2026-11-01 05:00Z'), (9001, '2026-11-09Z') ON CONFLICT DO NOTHING",
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-01 05:00Z'), (9001, '2026-01-09Z') ON CONFLICT DO NOTHING",
        Way.BATCH,
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-01 05:00Z'), (9001, '2026-01-09Z'), (9002, '2026-11-09Z')"
        " ON CONFLICT DO NOTHING",
    ),
    Operation(
        "`INSERT ... ON CONFLICT (key) DO NOTHING`",
        "INSERT INTO {hot} (id, ts) VALUES (9001, '2026-11-09Z') ON CONFLICT (id, ts) DO NOTHING",
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-01-09Z') ON CONFLICT (id, ts) DO NOTHING",
        "42P10",
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-01-09Z'), (9002, '2026-11-09Z') ON CONFLICT (id, ts) DO NOTHING",
        "42P10",
        "without naming the key",
    ),
    Operation(
        "`INSERT ... ON CONFLICT (key) DO UPDATE`",
        "INSERT INTO {hot} (id, ts) VALUES (405, '2026-11-01 05:00Z') ON CONFLICT (id, ts) DO UPDATE SET i = 1",
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-09Z') ON CONFLICT (id, ts) DO UPDATE SET i = 1",
        "42P10",
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-09Z'), (405, '2026-11-09Z')"
        " ON CONFLICT (id, ts) DO UPDATE SET i = 1",
        "42P10",
        "on `events_hot`; old rows: `frostline.upsert()`",
    ),
    Operation(
        "`MERGE` that may come to old rows, if only to insert them",
        _merge("{hot}", _HOT_ROW, "true", _SET),
        _merge("{t}", _NEW_COLD, "t.ts = v.ts", _ADD),
        "0A000",
        _merge("{t}", f"{_HOT_ROW}, {_COLD_ROW}", "true", _SET),
        "0A000",
        "on `events_hot`; Postgres does not merge into foreign tables",
    ),
    Operation(
        "`MERGE` whose `ON` leaves only recent rows to match",
        _merge("{t}", _HOT_ROW, f"t.{_LAST}", _SET),
        _merge("{t}", _NEW_COLD, f"t.{_LAST}", _ADD),
        Way.BATCH,
        _merge("{t}", f"{_HOT_ROW}, {_NEW_COLD}", f"t.{_LAST}", f"{_SET} WHEN {_ADD}"),
        note="by constants; what does not match may be inserted as an old row",
    ),
    Operation(
        "`UPDATE`, `DELETE ... WHERE CURRENT OF`",
        _CURSOR.format("{hot}", "{hot}"),
        _CURSOR.format("{t}", "{t}").replace("405", "5"),
        "0A000",
        _CURSOR.format("{t}", "{t}"),
        "0A000",
        "on `events_hot`; old rows: by their key",
    ),
    Operation(
        "`TRUNCATE`",
        "TRUNCATE {hot}",
        "TRUNCATE {t}",
        "55000",
        "TRUNCATE {t}",
        "55000",
        "on `events_hot`; old rows: `DELETE`",
    ),
)


def table() -> str:
    """In Markdown."""
    lines = ["| | recent rows | old rows | both in one statement | |", "|---|---|---|---|---|"]
    for one in OPERATIONS:
        recent = HOT if "{hot}" not in one.recent else "heap, by `events_hot`"
        old = str(one.way) if isinstance(one.way, Way) else f"refused: {one.way}"
        both = "yes" if one.both is None else f"refused: {one.both}"
        lines.append(f"| {one.what} | {recent} | {old} | {both} | {one.note} |")
    lines += ["", *(f"- *{way}*: {meaning}." for way, meaning in MEANING.items())]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    found = Path(sys.argv[1])
    found.write_text(written(found.read_text()))
