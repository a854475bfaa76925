"""Making a commit survive a power cut: Postgres forgets the heap for good, so the files must be on the disk first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyiceberg.table import Table as IcebergTable

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake.catalog import identifier, opened

_SCHEME = "file:"


def flush(settings: Settings, managed: Managed) -> None:
    """Flush every file the head snapshot added, its metadata, and the directories that name them."""
    with opened(settings) as catalog:
        table = catalog.load_table(identifier(managed))
        files = [path for location in _locations(table) if (path := _local(location)) is not None]
    for path in files:
        _flush(path)
    root = Path(settings.warehouse)
    for directory in {parent for path in files for parent in path.parents if parent == root or root in parent.parents}:
        _flush(directory)


def _locations(table: IcebergTable) -> Iterator[str]:
    head = table.current_snapshot()
    yield table.metadata_location
    if head is None:
        return
    yield head.manifest_list
    for manifest in head.manifests(table.io):
        if manifest.added_snapshot_id == head.snapshot_id:
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def _local(location: str) -> Path | None:
    """Object stores are durable once they have answered."""
    return Path("/" + location.removeprefix(_SCHEME).lstrip("/")) if location.startswith(_SCHEME) else None


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
