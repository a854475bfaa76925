"""DuckDB as the reader of the lake: opened once per process, bounded, in UTC, extensions from installed packages."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from frostline.errors import LakeError

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


def open_engine(*, memory: str, threads: int, directory: Path) -> duckdb.DuckDBPyConnection:
    """A database in memory that spills under `directory` and never downloads anything."""
    try:
        engine = duckdb.connect(
            config={
                "memory_limit": memory,
                "threads": threads,
                "temp_directory": str(directory),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
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
            engine.execute(f"LOAD {quote(str(_extension(name)))}")
    except duckdb.Error as error:
        raise LakeError(f"DuckDB cannot be opened: {error}") from None
    return engine


def iceberg_scan(metadata_location: str, snapshot_id: int) -> str:
    """The table function that reads one snapshot of an Iceberg table."""
    return f"iceberg_scan({quote(_path(metadata_location))}, snapshot_from_id => {int(snapshot_id)})"


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
    # Names are patterns to DuckDB: a warehouse may stand under a directory with a bracket in its name.
    paths = ", ".join(quote(re.sub(r"[*?\[]", r"[\g<0>]", _path(location))) for location in locations)
    if function == "read_parquet":
        options += ", hive_partitioning => false"
    return f"{function}([{paths}]{options})"


def duckdb_type(type_: IcebergType) -> str:
    """The DuckDB type that holds exactly the values of an Iceberg one."""
    text = str(type_)
    return text.upper() if text.startswith("decimal") else _TYPES[text]


def _default(column: NestedField) -> str:
    return "NULL" if column.initial_default is None else quote(str(column.initial_default))


def quote(value: str) -> str:
    """A string as a DuckDB literal: backslashes mean nothing in it."""
    return "'" + value.replace("'", "''") + "'"


def _path(location: str) -> str:
    """Spark and PyIceberg write file URIs with one, two or three slashes; DuckDB reads paths."""
    if not location.startswith("file:"):
        return location
    return "/" + location.removeprefix("file:").lstrip("/")


def _extension(name: str) -> Path:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        raise LakeError(
            f"the DuckDB extension {name} is not installed",
            hint=f"install duckdb-extension-{name}=={duckdb.__version__}",
        )
    path = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.exists():
        raise LakeError(
            f"the DuckDB extension {name} is not the one of DuckDB {duckdb.__version__}",
            hint=f"install duckdb-extension-{name}=={duckdb.__version__}",
        )
    return path
