"""Names that the registry, the gateway and the pipeline must agree on."""

from __future__ import annotations

# postgres_fdw prints a server's name when it can't connect, and nothing else of ours: the name says what to do.
SERVER_NAME = "frostline gateway (frostline up starts it)"
GATEWAY_USER = "frostline"
LAKE_SCHEMA = "frostline_lake"  # where Iceberg's JDBC catalog keeps its tables
# The CHECKs that let Postgres attach a leaf without scanning it.
LOWER_CHECK, UPPER_CHECK = "frostline_bound", "frostline_upper"
DEFAULT_CHECK = "!frostline default"  # the same for the DEFAULT partition, while a swap is made; with the table's id
HELD_SCHEMA = "frostline held"  # the foreign table of versions that a gateway holds; its name is the table's id
MARKER = 0  # in frostline.columns: the number of the lake's own column, which no table has
DELTA_COLUMNS = ("_op", "_seq", "_prev")
# Iceberg has these of its own in every table: Spark would not merge into one with columns of such names.
_ICEBERG_COLUMNS = (
    "_file",
    "_pos",
    "_partition",
    "_spec_id",
    "_deleted",
    "_row_id",
    "_last_updated_sequence_number",
)

# Advisory locks, each with a table's id, unless it says something else.
SHAPE = 734_621_504  # of a transaction: one at a time makes delta and functions follow the table
LAKE_WRITER = 734_621_502  # of a session: one lake writer per table at a time
WORKER = 734_621_504  # of a session, with 0: one worker per database works, others stand by
IN_USE = 734_621_505  # of a transaction, with a backend's pid: a gateway works for that backend's transaction
FENCE = 734_621_503  # of a transaction: shared by cold writers, exclusive for whoever moves the table's snapshot


def server_schema(table_id: int) -> str:
    """What foreign tables carry as schema_name; the gateway reads the id from it."""
    return f"table {table_id}"


def reserved(column: str) -> bool:
    """Whether a user's column cannot be called so."""
    return column in (*DELTA_COLUMNS, "_batch", *_ICEBERG_COLUMNS) or column.startswith("!")
