"""What the gateway would do with a statement, told by the same code that does it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from frostline.catalog.cold import ColdTable
from frostline.gateway import lexer, pruning, writes
from frostline.gateway.constants import Unknown
from frostline.gateway.names import Reference, Source, references
from frostline.gateway.parsed import parsed
from frostline.gateway.translate import translate
from frostline.gateway.view import View
from frostline.lake import files
from frostline.lake.pruning import Condition, chosen

DUCKDB, POSTGRES = "DuckDB", "Postgres, over rows from DuckDB"


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
        write = writes.pushed(text, tokens)
        return json.dumps({**_reading(view, write.count if write else text), "engine": f"a cold {verb}"})
    if verb == "INSERT":
        return json.dumps({"engine": "a cold INSERT"})
    return json.dumps(_reading(view, text))


def _reading(view: View, text: str) -> dict[str, Any]:
    found = references(lexer.tokens(text))
    tables = view.pin([reference.source for reference in found], may_restart=False)
    split = _split(text, found[0], tables[found[0].source]) if len(found) == 1 else Split(why="a join")
    sizes = [_sizes(view, source, table, split.prunes) for source, table in tables.items()]
    return {
        "engine": DUCKDB if split.why is None else POSTGRES,
        "snapshot": tables[found[0].source].snapshot_id if len(tables) == 1 else None,
        **{name: sum(size[name] for size in sizes) for name in sizes[0]},
        "pushed": " AND ".join(split.pushed) or None,
        "kept": " AND ".join(split.kept) or None,
        "why": split.why,
    }


def _split(text: str, reference: Reference, table: ColdTable) -> Split:
    try:
        tree = parsed(text, reference)
    except Unknown as unknown:
        return Split(why=str(unknown))
    parts = [(part.sql(dialect="postgres"), _alone(tree, part), part) for part in _conjuncts(tree)]
    reasons = {sql: _unknown(select, table) for sql, select, _ in parts}
    # Of a parameter no value is known yet.
    fixed = [select for _, select, part in parts if part.find(exp.Parameter) is None]
    return Split(
        pushed=tuple(sql for sql, reason in reasons.items() if reason is None),
        kept=tuple(sql for sql, reason in reasons.items() if reason is not None),
        why="; ".join(dict.fromkeys(filter(None, [*reasons.values(), _unknown(tree, table)]))) or None,
        prunes=tuple(condition for select in fixed for condition in pruning.conditions(select, table)),
    )


def _unknown(tree: exp.Expression, table: ColdTable) -> str | None:
    """Why DuckDB is not asked; None: it is."""
    numbers = [int(node.name) for node in tree.find_all(exp.Parameter) if node.name.isdecimal()]
    try:
        translate(tree, table, (None,) * max(numbers, default=0))
    except Unknown as unknown:
        return str(unknown)
    return None


def _conjuncts(tree: exp.Expression) -> Iterator[exp.Expression]:
    where = tree.args.get("where")
    waiting = [where.this] if where is not None else []
    while waiting:
        node = waiting.pop(0).unnest()
        if isinstance(node, exp.And):
            waiting = [node.left, node.right, *waiting]
        else:
            yield node


def _alone(tree: exp.Expression, condition: exp.Expression) -> exp.Expression:
    """The same source with nothing but one condition."""
    return exp.Select(expressions=[exp.Null()], from_=tree.args["from_"].copy(), where=exp.Where(this=condition.copy()))


def _sizes(view: View, source: Source, table: ColdTable, conditions: Sequence[Condition]) -> dict[str, int]:
    sizes = dict.fromkeys(("files", "of_files", "bytes", "of_bytes"), 0)
    if table.snapshot_id is not None and table.metadata_location is not None:
        snapshot = files.snapshot(table.metadata_location, table.snapshot_id)
        period = pruning.in_range(table, source.range)
        for prefix, wanted in (("", [*period, *conditions]), ("of_", period)):
            read = [snapshot.files[at] for at in chosen(snapshot, wanted)]
            sizes[f"{prefix}files"] = len(read)
            sizes[f"{prefix}bytes"] = sum(file.size for file in read)
    return {**sizes, "delta_rows": view.delta_rows(source, table)}
