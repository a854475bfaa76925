"""Step 3, compare: the new leaf and what readers see of the period, by Postgres, at one snapshot."""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.errors import Interrupted, OperationError, RefusedError
from frostline.faults import reached
from frostline.model.tables import as_sql
from frostline.tiering.digest import differing, digest_of, exported_snapshot, first_keys, foreign_table
from frostline.tiering.untier.operation import Operation, altered, check_columns


def compare(settings: Settings, operation: Operation) -> int:
    """Count and content hash of every column must be equal; returns the number of rows."""
    managed, period = operation.managed, operation.period
    leaf = SQL("ONLY {}").format(Identifier(operation.schema, period.name))
    with connect(settings.dsn.get_secret_value(), application="frostline untier", autocommit=False) as connection:
        foreign = Identifier("frostline", f"untier_{operation.id}")
        try:
            scope = f" snapshot {exported_snapshot(connection)}"
            connection.execute(foreign_table(managed, foreign, period.range, scope))
            here = digest_of(connection, managed.table, leaf)
            reached("compare.leaf")
            there = digest_of(connection, managed.table, foreign)
            if here != there:
                _refuse_altered(settings, operation)
                _refuse_computed(operation, differing(managed.table.stored, here, there), here.rows == there.rows)
                keys = first_keys(connection, managed, leaf, foreign)
                raise OperationError(
                    f"the leaf made of {period} and the cold rows themselves differ; those stay where they are",
                    detail=f"{here.rows} rows in the leaf, {there.rows} in the cold tier; columns that differ: "
                    f"{', '.join(differing(managed.table.stored, here, there)) or 'none'}; first keys "
                    f"({', '.join(managed.table.primary_key)}): {', '.join(keys) or 'none'}",
                    hint="`frostline verify` says whether the lake is whole; if it is, report this",
                    sqlstate="XX001",
                )
        except psycopg.errors.UndefinedColumn as error:
            raise altered(managed, period) from error
        except psycopg.OperationalError as error:
            raise Interrupted(
                f"the leaf made of {period} could not be compared with the cold rows; those stay where they are",
                detail=" ".join(str(error).split()),
                hint="is the gateway running? `frostline status` shows it; the same command goes on from here",
            ) from error
        finally:
            if not connection.broken:
                connection.rollback()
    return here.rows


def _refuse_computed(operation: Operation, columns: list[str], same_rows: bool) -> None:
    """Values that cold rows were left when their column's expression was altered are no damage either."""
    table = operation.managed.table
    generated = [column.name for column in table.stored if column.generated]
    if not same_rows or not columns or not set(columns) <= set(generated):
        return
    alter, names = f"ALTER TABLE {as_sql(table.schema, table.name)}", [as_sql(name) for name in columns]
    raise RefusedError(
        f"{operation.period} stays in the lake: its rows have other values in {', '.join(columns)} than are computed"
        " when they come back",
        detail="the expression was altered when they were cold, or what it calls was",
        hint=f"to keep the values: {alter} {', '.join(f'ALTER COLUMN {name} DROP EXPRESSION' for name in names)}\n"
        "to have them computed anew: UPDATE these rows; then run the same command again",
    )


def _refuse_altered(settings: Settings, operation: Operation) -> None:
    """Looked at as the table is now: columns that have changed places since the load are no damage."""
    with connect(settings.dsn.get_secret_value(), application="frostline untier") as connection:
        check_columns(connection, operation.managed, operation.period)
