"""What the gateway would do with a statement, told by the same code that does it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from frostline.catalog.cold import ColdTable
from frostline.gateway import lexer, points, pruning, writes
from frostline.gateway.clauses import Select, clauses
from frostline.gateway.constants import Unknown
from frostline.gateway.lexer import Token
from frostline.gateway.names import Source, references
from frostline.gateway.parsed import planned
from frostline.gateway.statements import statement
from frostline.gateway.translate import translate
from frostline.gateway.view import View
from frostline.lake import files
from frostline.lake.pruning import Condition, chosen

_NOTHING = lexer.tokens("NULL")
DUCKDB, POSTGRES = "DuckDB", "Postgres, over rows from DuckDB"
_LOOK_UPS = {"file": "a look-up in the data file", "delta": "a look-up in the delta"}


@dataclass(frozen=True)
class Split:
    """Who evaluates which condition; `why` says what keeps DuckDB from doing all of it."""

    pushed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    why: str | None = None
    prunes: tuple[Condition, ...] = ()


def explain(view: View, text: str) -> str:
    """One remote statement as JSON: engine, files out of how many, conditions on each side."""
    tokens = lexer.tokens(text)
    verb = tokens[0].text.upper() if tokens else ""
    if verb in ("UPDATE", "DELETE"):
        write = writes.modify(text, tokens)
        asked = text if write.by_ctid or write.others else write.select
        return json.dumps({**_reading(view, asked), "engine": f"a cold {verb}"})
    if verb == "INSERT":
        return json.dumps({"engine": "a cold INSERT"})
    return json.dumps(_reading(view, text))


def _reading(view: View, text: str) -> dict[str, Any]:
    found = references(lexer.tokens(text))
    tables = view.pin([reference.source for reference in found], may_restart=False)
    split = _split(text, tables[found[0].source]) if len(found) == 1 else Split(why="a join")
    engine = POSTGRES if split.why is not None else DUCKDB
    if engine == DUCKDB:
        engine = _looked_up(view, text, found[0].source, tables[found[0].source]) or DUCKDB
    sizes = [_sizes(view, source, table, split.prunes) for source, table in tables.items()]
    return {
        "engine": engine,
        "snapshot": tables[found[0].source].snapshot_id if len(tables) == 1 else None,
        **{name: sum(size[name] for size in sizes) for name in sizes[0]},
        "pushed": " AND ".join(split.pushed) or None,
        "kept": " AND ".join(split.kept) or None,
        "why": split.why,
    }


def _looked_up(view: View, text: str, source: Source, table: ColdTable) -> str | None:
    """How it does without DuckDB, if it does; only a look shows that. With a parameter it is not known."""
    tokens = lexer.tokens(text)
    if any(token.kind == "parameter" for token in tokens):
        return None
    plan = planned(statement(text, tokens), table, ())
    if plan.point is None:
        return None
    found = points.answer(view, source, table, plan.point, plan.conditions, plan.keys)
    return None if found is None else _LOOK_UPS.get(found.path)


def _split(text: str, table: ColdTable) -> Split:
    try:
        select = clauses(text)
    except Unknown as unknown:
        return Split(why=str(unknown))
    parts = {_text(select, tokens): _alone(select, tokens) for tokens in select.parts()}
    reasons = {text: _unknown(part, table) for text, part in parts.items()}
    # Of a parameter no value is known yet.
    fixed = [part for part in parts.values() if not _parameters(part)]
    return Split(
        pushed=tuple(text for text, reason in reasons.items() if reason is None),
        kept=tuple(text for text, reason in reasons.items() if reason is not None),
        why="; ".join(dict.fromkeys(filter(None, [*reasons.values(), _unknown(select, table)]))) or None,
        prunes=tuple(condition for part in fixed for condition in pruning.conditions(part, table)),
    )


def _unknown(select: Select, table: ColdTable) -> str | None:
    """Why DuckDB is not asked; None: it is."""
    try:
        translate(select, table, (None,) * max(_parameters(select), default=0))
    except Unknown as unknown:
        return str(unknown)
    return None


def _parameters(select: Select) -> list[int]:
    tokens = chain.from_iterable(select.clauses.values())
    return [int(token.text[1:]) for token in tokens if token.kind == "parameter"]


def _text(select: Select, tokens: Sequence[Token]) -> str:
    """A condition as it was written, without the parentheses around all of it."""
    while len(tokens) > 2 and (tokens[0].text, tokens[-1].text) == ("(", ")") and _enclosed(tokens):
        tokens = tokens[1:-1]
    return select.text[tokens[0].start : tokens[-1].end]


def _enclosed(tokens: Sequence[Token]) -> bool:
    return all(token.depth > tokens[0].depth for token in tokens[1:-1])


def _alone(select: Select, condition: Sequence[Token]) -> Select:
    """The same source with nothing but one condition."""
    return Select(select.text, {"select": _NOTHING, "from": select.get("from"), "where": condition})


def _sizes(view: View, source: Source, table: ColdTable, conditions: Sequence[Condition]) -> dict[str, int]:
    sizes = dict.fromkeys(("files", "of_files", "bytes", "of_bytes"), 0)
    if table.snapshot_id is not None and table.metadata_location is not None:
        staged = view.staged_files(source, table)
        snapshot = files.extended(view.storage, table.metadata_location, table.snapshot_id, staged)
        period = pruning.in_range(table, source.range)
        for prefix, wanted in (("", [*period, *conditions]), ("of_", period)):
            read = [snapshot.files[at] for at in chosen(snapshot, wanted)]
            sizes[f"{prefix}files"] = len(read)
            sizes[f"{prefix}bytes"] = sum(file.size for file in read)
    return {**sizes, "delta_rows": view.delta_rows(source, table)}
