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
    ASKED = "asked"
    WHOLE = "whole"
    ROW = "row"


MEANING = {
    Way.BATCH: "rows arrive in batches of up to 1,000; keys are looked up in lake and delta when the statement ends",
    Way.ASKED: "sent whole; a few rows: their new values are one question to Postgres",
    Way.WHOLE: "sent whole; the rows concerned go into a temporary table and the statement runs there, word for word",
    Way.ROW: "rows are read first, then changed one by one",
}
HOT = "heap"


@dataclass(frozen=True)
class Operation:
    """One row of the table; `{t}` is the table, `{hot}` its hot partition, an error is a SQLSTATE."""

    what: str
    recent: str  # an example for rows of November 2026
    old: str  # and for rows of January 2026
    way: Way | str
    both: str | None  # None: as for each
    note: str = ""


_LAST = "ts >= '2026-11-01Z'"
_FIRST = "ts < '2026-02-01Z'"

OPERATIONS = (
    Operation(
        "`INSERT ... VALUES`, `SELECT`, `COPY FROM`",
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-11-09Z')",
        "INSERT INTO {t} (id, ts) SELECT 9000 + x, '2026-01-09Z' FROM generate_series(1, 3) x",
        Way.BATCH,
        None,
        "each row goes to its tier",
    ),
    Operation(
        "`UPDATE` of a few rows by any condition",
        f"UPDATE {{t}} SET i = i + 1 WHERE id = 405 AND {_LAST}",
        f"UPDATE {{t}} SET i = i + 1 WHERE id = 5 AND {_FIRST}",
        Way.ASKED,
        None,
    ),
    Operation(
        "`DELETE` of a few rows by any condition",
        f"DELETE FROM {{t}} WHERE id = 405 AND {_LAST}",
        f"DELETE FROM {{t}} WHERE id = 5 AND {_FIRST}",
        Way.ASKED,
        None,
    ),
    Operation(
        "`UPDATE`, `DELETE` of many rows",
        f"UPDATE {{t}} SET i = i + 1 WHERE {_LAST}",
        f"UPDATE {{t}} SET i = i + 1 WHERE {_FIRST}",
        Way.WHOLE,
        None,
    ),
    Operation(
        "`UPDATE ... RETURNING`, `DELETE ... RETURNING`",
        f"UPDATE {{t}} SET i = 1 WHERE id = 405 AND {_LAST} RETURNING id, i",
        f"DELETE FROM {{t}} WHERE id = 5 AND {_FIRST} RETURNING *",
        Way.WHOLE,
        None,
    ),
    Operation(
        "`UPDATE ... FROM`, `DELETE ... USING`, self-joins, sub-selects",
        f"UPDATE {{t}} SET i = o.i FROM {{t}} o WHERE o.id = {{t}}.id + 1 AND {{t}}.{_LAST} AND o.id < 405",
        f"DELETE FROM {{t}} USING {{t}} o WHERE o.id = {{t}}.id + 1 AND {{t}}.{_FIRST} AND o.id < 5",
        Way.ROW,
        None,
    ),
    Operation(
        "data-modifying CTEs",
        f"WITH d AS (DELETE FROM {{t}} WHERE id = 405 AND {_LAST} RETURNING *) SELECT count(*) FROM d",
        f"WITH d AS (DELETE FROM {{t}} WHERE id = 5 AND {_FIRST} RETURNING *) SELECT count(*) FROM d",
        Way.WHOLE,
        None,
    ),
    Operation(
        "a new partition key, old row to recent or to another old period",
        f"UPDATE {{t}} SET ts = ts + interval '1 hour' WHERE id = 405 AND {_LAST}",
        f"UPDATE {{t}} SET ts = '2026-11-09Z' WHERE id = 5 AND {_FIRST}",
        Way.WHOLE,
        None,
        "see the limits below",
    ),
    Operation(
        "a new partition key, recent row to old",
        "INSERT INTO {t} (id, ts) VALUES (9001, '2026-11-09Z')",
        f"UPDATE {{t}} SET ts = '2026-01-09Z' WHERE id = 405 AND {_LAST}",
        Way.BATCH,
        None,
        "see the limits below",
    ),
    Operation(
        "`INSERT ... ON CONFLICT DO NOTHING`",
        "INSERT INTO {t} (id, ts) VALUES (405, '2026-11-09Z') ON CONFLICT DO NOTHING",
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-09Z') ON CONFLICT DO NOTHING",
        Way.BATCH,
        None,
    ),
    Operation(
        "`INSERT ... ON CONFLICT (key) DO UPDATE`",
        "INSERT INTO {hot} (id, ts) VALUES (405, '2026-11-09Z') ON CONFLICT (id, ts) DO UPDATE SET i = 1",
        "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-09Z') ON CONFLICT (id, ts) DO UPDATE SET i = 1",
        "42P10",
        "42P10",
        "on `events_hot`; old rows: `frostline.upsert()`",
    ),
    Operation(
        "`MERGE`",
        "MERGE INTO {hot} t USING (VALUES (405)) v (id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET i = 1",
        "MERGE INTO {t} t USING (VALUES (5)) v (id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET i = 1",
        "0A000",
        "0A000",
        "on `events_hot`; Postgres does not merge into foreign tables",
    ),
    Operation("`TRUNCATE`", "TRUNCATE {hot}", "TRUNCATE {t}", "55000", "55000", "on `events_hot`; old rows: `DELETE`"),
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
