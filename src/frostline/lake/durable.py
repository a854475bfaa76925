"""Making a commit survive a power cut: Postgres forgets the heap for good, so the files must be on the disk first."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table as IcebergTable

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import storage
from frostline.lake.catalog import opened, table_of


def flush(settings: Settings, managed: Managed, snapshot: int | None = None) -> None:
    """Flush every file a snapshot (else the head) added, its metadata, and the directories that name them."""
    with opened(settings) as catalog:
        storage.of(settings).flush(_locations(table_of(catalog, managed), snapshot))


def _locations(table: IcebergTable, snapshot: int | None) -> Iterator[str]:
    head = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
    yield table.metadata_location
    if head is None:
        return
    yield head.manifest_list
    for manifest in head.manifests(table.io):
        if manifest.added_snapshot_id == head.snapshot_id:
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
