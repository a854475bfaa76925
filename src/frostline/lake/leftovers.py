"""What dead runs left in the lake: snapshots nobody will read, and files that nothing refers to.

A snapshot that is no ancestor of the registry's was made by an operation that never got to show it. Its files are known
by name, so they go with it. A file that no snapshot names may still be in the hands of a writer that outlived its run,
so it goes by age.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import layout, lineage, storage
from frostline.lake.catalog import identifier, opened


@dataclass(frozen=True)
class File:
    """A file that nothing refers to."""

    path: str
    name: str  # below the table's directory
    bytes: int
    age: float  # seconds


@dataclass(frozen=True)
class Abandoned:
    """A snapshot that no reader will see."""

    id: int
    operation: str
    files: frozenset[str]  # what it alone brought


def abandoned(settings: Settings, managed: Managed, ours: set[str]) -> list[Abandoned]:
    """Snapshots of our own operations beside or above the registry's; somebody may still read one."""
    with opened(settings) as catalog:
        try:
            table = catalog.load_table(identifier(managed))
        except NoSuchTableError:
            return []
        history = _ancestors(table, managed.snapshot_id)
        return [
            Abandoned(snapshot.snapshot_id, made_by, frozenset(_added(table, snapshot)))
            for snapshot in table.snapshots()
            if snapshot.snapshot_id not in history and (made_by := _operation(snapshot)) in ours
        ]


def expire(settings: Settings, managed: Managed, snapshots: Iterable[Abandoned]) -> list[Abandoned]:
    """Forget snapshots and remove what they alone brought; the head goes back to the registry's snapshot first.

    Without one (nothing was archived yet) the head stays until the next export begins the table anew.
    """
    with opened(settings) as catalog:
        table = catalog.load_table(identifier(managed))
        wanted = {snapshot.id: snapshot for snapshot in snapshots if table.snapshot_by_id(snapshot.id) is not None}
        if table.metadata.current_snapshot_id in wanted:
            if managed.snapshot_id is None:
                wanted.pop(table.metadata.current_snapshot_id)
            else:
                operations = {snapshot.operation for snapshot in wanted.values()}
                lineage.set_back(table, managed, operations, storage.of(settings).python())
        if not wanted:
            return []
        # A catalog without history has forgotten them already.
        if known := [id_ for id_ in wanted if table.snapshot_by_id(id_) is not None]:
            table.maintenance.expire_snapshots().by_ids(known).commit()
        kept = referenced(table)
        for path in {path for snapshot in wanted.values() for path in snapshot.files} - kept:
            _delete(table, path)
        return list(wanted.values())


def orphans(settings: Settings, managed: Managed, known: set[str]) -> list[File]:
    """Files below the table's directory that neither a snapshot nor its metadata nor `known` names."""
    with opened(settings) as catalog:
        try:
            # Listed before the references are read: a file that is committed in between is found referenced.
            found = _listed(catalog.load_table(identifier(managed)))
        except NoSuchTableError:
            return []
        table = catalog.load_table(identifier(managed))
        kept = {_bare(path) for path in referenced(table) | known | _forgotten(settings, table, known)}
        now = time.time()
        return [
            File(info.path, _below(info.path, table.location()), info.size, now - info.mtime.timestamp())
            for info in found
            if info.type == FileType.File and _bare(info.path) not in kept
        ]


def remove(settings: Settings, managed: Managed, files: Iterable[File]) -> None:
    with opened(settings) as catalog:
        table = catalog.load_table(identifier(managed))
        scheme, netloc, _ = PyArrowFileIO.parse_location(table.location())
        for file in files:
            with suppress(FileNotFoundError):  # its writer may have removed it
                _io(table).fs_by_scheme(scheme, netloc).delete_file(file.path)


def _ancestors(table: IcebergTable, snapshot: int | None) -> set[int]:
    found: set[int] = set()
    while snapshot is not None:
        found.add(snapshot)
        known = table.snapshot_by_id(snapshot)
        snapshot = known.parent_snapshot_id if known is not None else None
    return found


def _operation(snapshot: IcebergSnapshot) -> str:
    return (snapshot.summary.get(layout.OPERATION) if snapshot.summary is not None else None) or ""


def _added(table: IcebergTable, snapshot: IcebergSnapshot) -> Iterator[str]:
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def referenced(table: IcebergTable) -> set[str]:
    """Every file that the table's metadata leads to, whichever snapshot it is of."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {statistics.statistics_path for statistics in metadata.statistics}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    found |= set(manifests)
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        found |= {entry.data_file.file_path for entry in entries}
    return found


def _forgotten(settings: Settings, table: IcebergTable, known: set[str]) -> set[str]:
    """What metadata files in use lead to that the table itself does not know any more: it may be read still.

    Catalogs without history keep the current snapshot alone.
    """
    own = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    found: set[str] = set()
    for location in known - own:
        with suppress(FileNotFoundError):  # of an operation long ago
            found |= referenced(StaticTable.from_metadata(location, storage.of(settings).python()))
    return found


def _listed(table: IcebergTable) -> list[FileInfo]:
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location())
    filesystem = _io(table).fs_by_scheme(scheme, netloc)
    listed: list[FileInfo] = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return listed


def _io(table: IcebergTable) -> PyArrowFileIO:
    return table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)


def _delete(table: IcebergTable, path: str) -> None:
    with suppress(FileNotFoundError):
        table.io.delete(path)


def _below(path: str, directory: str) -> str:
    return _bare(path).removeprefix(_bare(directory)).lstrip("/")


def _bare(path: str) -> str:
    """The same file has several names: file:/a, file:///a, /a; s3://b/a, s3a://b/a, b/a."""
    return path.split(":", 1)[-1].lstrip("/")
