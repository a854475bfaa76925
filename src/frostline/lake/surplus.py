"""Rows of the lake that nobody reads: at or above the seam, because their period came back, or not kept any more.

Whole files of them go by a commit that changes metadata only. A file that has other rows too has to be rewritten.
"""

from __future__ import annotations

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import files as lake
from frostline.lake import inspect, layout, lineage, storage
from frostline.lake.catalog import opened, table_of
from frostline.model.bounds import Bound, Range


def places(settings: Settings, managed: Managed, kept_from: Bound | None) -> tuple[list[str], list[str]]:
    """Paths of the files that hold such rows: those that hold nothing else, and the others."""
    if managed.snapshot_id is None or managed.metadata_location is None:
        return [], []
    snapshot = lake.snapshot(storage.of(settings), managed.metadata_location, managed.snapshot_id)
    key, type_ = managed.field_ids[managed.table.key], managed.table.key_type
    unread = [Range(managed.seam, None), *([Range(None, kept_from)] if kept_from is not None else [])]
    found = {file.path: file for range_ in unread for file in inspect.files_of(snapshot, key, type_, range_)}
    whole = [path for path, file in found.items() if any(inspect.inside(file, key, type_, range_) for range_ in unread)]
    return whole, [path for path in found if path not in whole]


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
