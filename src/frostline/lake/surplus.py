"""Rows of the lake at or above the seam: their period came back to Postgres, and nobody reads them any more.

Whole files of them go by a commit that changes metadata only. A file that reaches over the seam has to be rewritten.
"""

from __future__ import annotations

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import files as lake
from frostline.lake import inspect, layout, lineage, storage
from frostline.lake.catalog import opened, table_of
from frostline.model.bounds import Range


def places(settings: Settings, managed: Managed) -> tuple[list[str], list[str]]:
    """Paths of the files that hold such rows: those that hold nothing else, and the others."""
    if managed.snapshot_id is None or managed.metadata_location is None:
        return [], []
    snapshot = lake.snapshot(storage.of(settings), managed.metadata_location, managed.snapshot_id)
    key, type_, above = managed.table.key_column.number, managed.table.key_type, Range(managed.seam, None)
    found = inspect.files_of(snapshot, key, type_, above)
    whole = [file.path for file in found if inspect.inside(file, key, type_, above)]
    return whole, [file.path for file in found if file.path not in whole]


def remove(settings: Settings, managed: Managed, paths: list[str], operation: int) -> None:
    """One commit without these files, on the head, which shows the registry's snapshot."""
    with opened(settings) as catalog:
        table = table_of(catalog, managed)
        gone = set(paths)
        entries = [entry.data_file for entry in lineage.entries(table) if entry.data_file.file_path in gone]
        with (
            table.transaction() as transaction,
            transaction.update_snapshot({layout.OPERATION: str(operation)}).overwrite() as update,
        ):
            for file in entries:
                update.delete_data_file(file)
