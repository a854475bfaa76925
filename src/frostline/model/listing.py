"""The map of types as a page for readers: `python -m frostline.model.listing` writes docs/types.md."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from frostline.model import types

_HEAD = """\
<!-- Written by `make docs` from src/frostline/model/types.py: change that. -->
# Types

Every value reads back from the lake exactly as it was in the heap: the tests take every type Postgres 15 and 18 have,
alone and in arrays, many under domains too, with its edge values through heap, Spark, Iceberg, DuckDB and the gateway
and back.

A type is native in Iceberg where Iceberg, Spark and DuckDB all hold every finite value of it exactly:

| Postgres | Iceberg | what stops a partition |
|---|---|---|
"""
_TEXT = """
A domain is kept as the type under it. **Everything else is kept as the text Postgres prints for it**, in a string
column, and Postgres reads it back: arrays, enums, composites, ranges and multiranges of your own, types of extensions,
`numeric` without a scale or of more than 38 digits, `bpchar` without a length, and
{others}
The Postgres type stands in the Iceberg column's comment.

Two that might be expected among the native ones:

- `time` holds 24:00:00, which Iceberg's time does not.
- An array column may hold arrays of any number of dimensions that begin at any index; an Iceberg list has one dimension
  and begins at one. Kept as lists, some values of a column would stop its partition.

## Values that stop a partition

Iceberg has no form for them. `frostline archive` looks for them before it changes anything, names the first row that
holds one and leaves the partition where it is:

{cannot}
## Types a table cannot have

`frostline register` refuses a table with a column of these types, or of an array, domain, composite or range of them:

| Postgres | because |
|---|---|
{refused}
The reg* types are kept by number in columns of their own (a table that was renamed is still that table). Inside arrays,
composites and ranges they would be kept by name, so they are refused there.

## What depends on the session that reads

Text is read back by the session that asks, as `postgres_fdw` does it. `array_nulls = off` makes the word NULL in an
array a text, and `xmloption = document` refuses XML that is no document, in cold rows as in any text that is read.
"""
_DESCRIBED = {
    "date": "infinity, -infinity",
    "timestamp": "infinity, -infinity, the year 294247 and later",
    "timestamptz": "infinity, -infinity, the year 294247 and later",
    "numeric(p, s)": "NaN",
    '"char"': "a byte above 127",
}


def page() -> str:
    native = {**types.NATIVE, "numeric(p, s)": types.storage("numeric", ((10 << 16) | 2) + 4)}
    rows = [
        (f"`{name}`{_NOTES.get(name, '')}", f"`{_iceberg(name, kept)}`", _DESCRIBED.get(name, ""))
        for name, kept in native.items()
        if name not in types.REFERENCES
    ]
    rows.append((", ".join(f"`{name}`" for name in types.REFERENCES), "`long`", ""))
    cannot = "".join(f"- `{name}`: {values}\n" for name, values in _DESCRIBED.items())
    reasons: dict[str, list[str]] = {}
    for name, why in types.REFUSED.items():
        reasons.setdefault(why, []).append(f"`{name}`")
    refused = _rows((", ".join(names), why) for why, names in reasons.items())
    return _HEAD + _rows(rows) + _TEXT.format(others=_filled(types.AS_TEXT), cannot=cannot, refused=refused)


_NOTES = {"numeric(p, s)": " up to 38 digits, 0 <= s <= p", "bpchar": ", that is `char(n)`"}


def _iceberg(name: str, kept: types.Storage) -> str:
    return "decimal(p, s)" if name.startswith("numeric") else kept.iceberg


def _filled(names: Iterable[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(text + ".", 120, break_long_words=False)


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
