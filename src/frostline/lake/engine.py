"""DuckDB as the reader of the lake: opened once per process, bounded, in UTC, extensions from installed packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from frostline.errors import LakeError
from frostline.lake.duck import load, quote
from frostline.lake.storage import Storage, duckdb_name, duckdb_pattern

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType, NestedField

# Iceberg needs Avro loaded before it.
EXTENSIONS = ("avro", "iceberg")
_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
    "binary": "BLOB",
    "string": "VARCHAR",
}


def open_engine(
    *, memory: str, threads: int, directory: Path, storage: Storage | None = None
) -> duckdb.DuckDBPyConnection:
    """A database in memory that reads one lake, spills under `directory` and never downloads anything."""
    try:
        engine = duckdb.connect(
            config={
                "memory_limit": memory,
                "threads": threads,
                "temp_directory": str(directory),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_persistent_secrets": False,
                # Rows have no order unless asked for; keeping one would buffer whole scans.
                "preserve_insertion_order": False,
            }
        )
        # For every session, not only this one. The lake's files never change.
        engine.execute(
            "SET GLOBAL timezone = 'UTC'; SET GLOBAL parquet_metadata_cache = true;"
            " SET GLOBAL validate_external_file_cache = 'NO_VALIDATION'"
        )
        for name in EXTENSIONS:
            load(engine, name)
        if storage is not None:
            storage.prepare(engine)
    except duckdb.Error as error:
        raise LakeError(f"DuckDB cannot be opened: {error}") from None
    return engine


def iceberg_scan(metadata_location: str, snapshot_id: int) -> str:
    """The table function that reads one snapshot of an Iceberg table."""
    return f"iceberg_scan({duckdb_name(metadata_location)}, snapshot_from_id => {int(snapshot_id)})"


def parquet_scan(locations: Sequence[str], columns: Mapping[str, NestedField]) -> str:
    """The table function that reads columns of Iceberg data files, found by field id, under names of our choice.

    A file from before a column was added has none with that id: its rows get the default.
    """
    fields = ", ".join(
        f"{column.field_id}: {{name: {quote(name)}, type: {quote(duckdb_type(column.field_type))},"
        f" default_value: {_default(column)}}}"
        for name, column in columns.items()
    )
    return parquet_files(locations, options=f", schema => MAP {{{fields}}}")


def parquet_files(locations: Sequence[str], function: str = "read_parquet", options: str = "") -> str:
    """A table function over exactly these files; directories called `a=b` mean nothing."""
    paths = ", ".join(duckdb_pattern(location) for location in locations)
    if function == "read_parquet":
        options += ", hive_partitioning => false"
    return f"{function}([{paths}]{options})"


def duckdb_type(type_: IcebergType) -> str:
    """The DuckDB type that holds exactly the values of an Iceberg one."""
    text = str(type_)
    return text.upper() if text.startswith("decimal") else _TYPES[text]


def _default(column: NestedField) -> str:
    return "NULL" if column.initial_default is None else quote(str(column.initial_default))
