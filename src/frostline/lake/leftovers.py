"""What dead runs left in the lake: snapshots nobody will read, and files that nothing refers to.

A snapshot that is no ancestor of the registry's was made by an operation that never got to show it. Its files are known
by name, so they go with it. A file that no snapshot names may still be in the hands of a writer that outlived its run,
so it goes by age.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import LakeError
from frostline.faults import reached
from frostline.lake import layout, lineage, owner, storage
from frostline.lake.catalog import opened, table_of


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
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return []
        history = _ancestors(table, managed.snapshot_id)
        return [
            Abandoned(snapshot.snapshot_id, made_by, frozenset(_added(table, snapshot)))
            for snapshot in table.snapshots()
            if snapshot.snapshot_id not in history and (made_by := _operation(snapshot)) in ours
        ]


def outlived(settings: Settings, managed: Managed, ages: Mapping[str, float], window: float) -> list[Abandoned]:
    """Ancestors of the registry's snapshot that were superseded longer ago than the backup window.

    `ages`: seconds since each operation was done, that is, since what it made took its predecessor's place. All below
    the first that is outlived are too, so those that stay are one line of descent.
    """
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return []
        line = list(_line(table, managed.snapshot_id))
        age, first = -1.0, len(line)
        for place, child in enumerate(line[:-1]):
            age = ages.get(_operation(child), age)
            if age >= window:
                first = place + 1
                break
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}  # tags and branches of others
        manifests: dict[str, set[str]] = {}
        return [
            Abandoned(snapshot.snapshot_id, _operation(snapshot), frozenset(_reached(table, snapshot, manifests)))
            for snapshot in line[first:]
            if snapshot.snapshot_id not in named
        ]


def _line(table: IcebergTable, snapshot: int | None) -> Iterator[IcebergSnapshot]:
    """A snapshot and its ancestors, the newest first."""
    while snapshot is not None and (known := table.snapshot_by_id(snapshot)) is not None:
        yield known
        snapshot = known.parent_snapshot_id


def _reached(table: IcebergTable, snapshot: IcebergSnapshot, manifests: dict[str, set[str]]) -> Iterator[str]:
    """Every file a snapshot leads to; what a manifest names is kept in `manifests`."""
    yield snapshot.manifest_list
    # A catalog in Postgres that was restored with it knows snapshots that were expired since.
    with suppress(FileNotFoundError):
        for manifest in snapshot.manifests(table.io):
            path = manifest.manifest_path
            if path not in manifests:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                manifests[path] = {path, *(entry.data_file.file_path for entry in entries)}
            yield from manifests[path]


def stamps(settings: Settings, managed: Managed) -> set[str]:
    """Operations of this installation that have committed, those of a lost future included."""
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return set()
        return {made_by for snapshot in table.snapshots() if (made_by := _operation(snapshot))}


def expire(settings: Settings, managed: Managed, snapshots: Iterable[Abandoned], staged: set[str]) -> list[Abandoned]:
    """Forget snapshots and remove what they alone brought; the head goes back to the registry's snapshot first.

    What is `staged` stays: it is read though the snapshot that was to have it is not.
    """
    with opened(settings) as catalog:
        table = table_of(catalog, managed)
        forgotten = _forget(settings, table, managed, snapshots)
        if not forgotten:
            return []
        reached("clean.expired")
        kept = {_bare(path) for path in _in_use(table, managed) | staged}
        for path in {path for snapshot in forgotten for path in snapshot.files}:
            if _bare(path) not in kept:
                _delete(table, path)
        return forgotten


def forget(settings: Settings, managed: Managed, snapshots: Iterable[Abandoned]) -> list[Abandoned]:
    """The same, and their files stay until they are old: another database may be the one that reads them."""
    with opened(settings) as catalog:
        return _forget(settings, table_of(catalog, managed), managed, snapshots)


def _forget(
    settings: Settings, table: IcebergTable, managed: Managed, snapshots: Iterable[Abandoned]
) -> list[Abandoned]:
    """Without a snapshot of the registry's (nothing was archived yet) the head stays until the next export."""
    wanted = {snapshot.id: snapshot for snapshot in snapshots if table.snapshot_by_id(snapshot.id) is not None}
    if table.metadata.current_snapshot_id in wanted:
        if managed.snapshot_id is None:
            wanted.pop(table.metadata.current_snapshot_id)
        else:
            operations = {snapshot.operation for snapshot in wanted.values()}
            lineage.set_back(table, managed, operations, storage.of(settings).python())
    # A catalog without history has forgotten them already.
    if known := [id_ for id_ in wanted if table.snapshot_by_id(id_) is not None]:
        table.maintenance.expire_snapshots().by_ids(known).commit()
    return list(wanted.values())


def orphans(settings: Settings, managed: Managed, known: set[str], staged: Callable[[], set[str]]) -> list[File]:
    """Files below the table's directory that neither a snapshot nor its metadata nor `known` names, nor are staged."""
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return []
        # Listed before the references are read: a file that is committed in between is found referenced.
        now, found = _listed(table)
        # Before the snapshots: what is staged may become part of one.
        waiting = staged()
        table.refresh()
        kept = {_bare(path) for path in _in_use(table, managed) | waiting | known | _forgotten(settings, table, known)}
        kept |= {_bare(owner.marker(table)), _bare(owner.turn(table.location()))}
        return [
            File(info.path, _below(info.path, table.location()), info.size, now - info.mtime.timestamp())
            for info in found
            if info.type == FileType.File and _bare(_summed(info.path)) not in kept
        ]


def remove(settings: Settings, managed: Managed, files: Sequence[File]) -> None:
    if not files:
        return  # perhaps there is no table yet: a first run may have failed before it made one
    with opened(settings) as catalog:
        filesystem, _ = _place(table_of(catalog, managed))
        for file in files:
            with suppress(FileNotFoundError):  # its writer may have removed it
                filesystem.delete_file(file.path)


def drop(settings: Settings, managed: Managed) -> None:
    """The Iceberg table goes with all its files; where an earlier run came half-way, the rest."""
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            if settings.lake.catalog != "jdbc":
                return  # only the catalog knows where the files were, and it removes them itself
            location = layout.location(managed, storage.of(settings).root)
            io = PyArrowFileIO(storage.of(settings).python())
        else:
            location = table.location()
            io = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
            catalog.purge_table((managed.lake_namespace, managed.lake_table))
        scheme, netloc, path = PyArrowFileIO.parse_location(location)
        with suppress(FileNotFoundError):
            io.fs_by_scheme(scheme, netloc).delete_dir(path)


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
    # A catalog that was restored knows snapshots whose files were removed since: nobody was to see them.
    with suppress(FileNotFoundError):
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                yield manifest.manifest_path
                yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def _in_use(table: IcebergTable, managed: Managed) -> set[str]:
    """The same of a table whose catalog may have been restored: it knows snapshots that were expired since.

    Those that are read have all their files: else it is an error, for nothing else could be told from a leftover.
    """
    try:
        return referenced(table)
    except FileNotFoundError:
        for snapshot in table.snapshots():
            if snapshot.snapshot_id in (managed.snapshot_id, table.metadata.current_snapshot_id):
                for manifest in snapshot.manifests(table.io):
                    manifest.fetch_manifest_entry(table.io)
        return referenced(table, gone=(FileNotFoundError,))


def referenced(table: IcebergTable, *, gone: tuple[type[OSError], ...] = ()) -> set[str]:
    """Every file that the metadata leads to, whichever snapshot it is of; one may be `gone` without an error."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        with suppress(*gone):
            manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    found |= set(manifests)
    for manifest in manifests.values():
        with suppress(*gone):
            # A manifest also names what its commit took out: no snapshot that has only this reads it.
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
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
            table = StaticTable.from_metadata(location, storage.of(settings).python())
            found |= referenced(table, gone=(FileNotFoundError,))
    return found


def _listed(table: IcebergTable) -> tuple[float, list[FileInfo]]:
    """What time it is to the store, whose clock may not be ours, and all files in the table's directory."""
    filesystem, path = _place(table)
    clock = f"{path}/metadata/.frostline-clock-{uuid.uuid4().hex}"
    filesystem.open_output_stream(clock).close()
    now = filesystem.get_file_info(clock).mtime.timestamp()
    filesystem.delete_file(clock)
    found: list[FileInfo] = filesystem.get_file_info(FileSelector(path, recursive=True))
    # A file that is surely there and in use: were it not found, neither would any other be known for what it is.
    inside = _bare(table.metadata_location).startswith(f"{_bare(table.location())}/")
    if inside and _bare(table.metadata_location) not in {_bare(info.path) for info in found}:
        raise LakeError(
            f"files in {table.location()} go by other names than the catalog has for them; none was removed",
            detail=f"{table.metadata_location} is not among the {len(found)} that are there",
        )
    return now, found


def _place(table: IcebergTable) -> tuple[FileSystem, str]:
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location())
    io = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def _delete(table: IcebergTable, path: str) -> None:
    with suppress(FileNotFoundError):
        table.io.delete(path)


def _summed(path: str) -> str:
    """The file itself, of a checksum that Hadoop's local files have beside them."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def _below(path: str, directory: str) -> str:
    return _bare(path).removeprefix(_bare(directory)).lstrip("/")


def _bare(path: str) -> str:
    """The same file has several names: file:/a, file:///a, /a; s3://b/a, s3a://b/a, b/a."""
    return re.sub(r"^[a-z][a-z0-9+.-]*:/", "", path).lstrip("/")
