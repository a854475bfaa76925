"""What everything that talks to DuckDB needs: literals, and extensions from installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from frostline.errors import LakeError


def quote(value: str) -> str:
    """A string as a DuckDB literal: backslashes mean nothing in it."""
    return "'" + value.replace("'", "''") + "'"


def load(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension; nothing is ever downloaded."""
    try:
        engine.execute(f"LOAD {quote(str(_extension(name)))}")
    except duckdb.Error as error:
        raise LakeError(
            f"the DuckDB extension {name} cannot be loaded",
            detail=str(error).splitlines()[0],
            hint="install it once more, for this machine: pip install --force-reinstall"
            f" duckdb-extension-{name}=={duckdb.__version__}",
        ) from error


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
