"""What a fold stands on in the lake: the registry's snapshot, or commits that other engines have made on top of it.

Rows that another engine appended, changed or deleted become part of what Postgres reads with the next fold. They can if
nothing of ours is hidden below them, their columns are the table's, none of their files reaches into the hot range, and
no key stands there twice; the last is asked of the rows themselves (`pipeline.keys`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation as Kind
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import LakeError
from frostline.lake import layout, lineage
from frostline.lake import storage as storages
from frostline.lake.catalog import existing, opened

_DAY = 86_400_000_000  # microseconds: a date's bound counts days


@dataclass(frozen=True)
class Others:
    """Commits of other engines between the registry's snapshot and a later one."""

    snapshots: frozenset[int] = frozenset()
    added: tuple[tuple[int, int], ...] = ()  # least and greatest partition key of each file they brought, as it counts


@dataclass(frozen=True)
class Merged:
    """The snapshot a fold made."""

    id: int
    metadata_location: str
    summary: Mapping[str, str]
    others: Others

    def count(self, name: str) -> int:
        return int(self.summary.get(name) or 0)


def spec(settings: Settings, managed: Managed) -> PartitionSpec:
    """How the Iceberg table is cut into partitions."""
    with opened(settings) as catalog:
        return existing(catalog, managed).spec()


def ready(
    settings: Settings, managed: Managed, ours: set[str], properties: Mapping[str, str], noted: Set[int] = frozenset()
) -> Others:
    """Make the head what a fold can stand on, with the properties it needs; refused where that cannot be."""
    files = storages.of(settings).python()
    with opened(settings) as catalog:
        table = existing(catalog, managed)
        others = Others()
        if not lineage.shows(table, managed, files):
            above = [] if lineage.undoable(table, managed, ours, files, noted) else _above(table, managed)
            if above is None:
                raise _strange(managed)
            theirs = _without_ours_on_top(above, ours)
            if not theirs:
                lineage.set_back(table, managed, ours, files)
            else:
                others = _examined(table, managed, theirs, ours)
                if theirs != above:
                    table.manage_snapshots().set_current_snapshot(snapshot_id=theirs[-1].snapshot_id).commit()
        missing = {name: value for name, value in properties.items() if table.properties.get(name) != value}
        if missing:
            with table.transaction() as transaction:
                transaction.set_properties(missing)
        return others


def on_the_way(settings: Settings, managed: Managed, operation: int) -> int | None:
    """The head, if it is the operation's and the catalog has forgotten what it stands on."""
    with opened(settings) as catalog:
        table = existing(catalog, managed)
        head = table.current_snapshot()
        if head is None or managed.snapshot_id is None or table.snapshot_by_id(managed.snapshot_id) is not None:
            return None
        return head.snapshot_id if lineage.made_by(head) == str(operation) else None


def found(
    settings: Settings,
    managed: Managed,
    operation: int,
    ours: set[str],
    noted: Set[int] = frozenset(),
    *,
    alone: bool = False,
) -> Merged | None:
    """The last snapshot an operation made on top of the registry's; None when there is none.

    With `alone`, also when it stands on commits of somebody else, whatever they are, or when a later run has put it
    aside, so that the head does not stand on it: it is not to be shown then.
    """
    files = storages.of(settings).python()
    with opened(settings) as catalog:
        table = existing(catalog, managed)
        made = [snapshot for snapshot in table.snapshots() if lineage.made_by(snapshot) == str(operation)]
        if alone:
            head = table.current_snapshot()
            below = set(_ancestors(table, head.snapshot_id if head is not None else None))
            made = [snapshot for snapshot in made if snapshot.snapshot_id in below]
        for snapshot in reversed(made):
            between = _between(table, snapshot, managed)
            if between is None and not _forgotten(table, snapshot, managed, files, noted):
                continue
            theirs = [one for one in between or () if lineage.made_by(one) != str(operation)]
            if theirs and alone:
                return None
            others = _examined(table, managed, theirs, ours) if theirs else Others()
            assert snapshot.summary is not None  # it carries the operation's id
            summary = {key: str(value) for key, value in snapshot.summary.additional_properties.items()}
            return Merged(snapshot.snapshot_id, table.metadata_location, summary, others)
        return None


def _above(table: IcebergTable, managed: Managed) -> list[Snapshot] | None:
    """All that stands on the registry's snapshot up to the head; None: the head stands elsewhere."""
    head = table.current_snapshot()
    if head is None:
        return None
    if head.snapshot_id in _ancestors(table, managed.snapshot_id):
        return []  # somebody has set the head back; nothing is there that is not in the registry's snapshot
    between = _between(table, head, managed)
    return None if between is None else [*between, head]


def _without_ours_on_top(above: list[Snapshot], ours: set[str]) -> list[Snapshot]:
    """What runs that died have left on top is put aside."""
    last = max((at for at, snapshot in enumerate(above) if lineage.made_by(snapshot) not in ours), default=-1)
    return above[: last + 1]


def _between(table: IcebergTable, snapshot: Snapshot, managed: Managed) -> list[Snapshot] | None:
    """What stands between the registry's snapshot and this one, oldest first; None: it does not come from it."""
    found, at = [], snapshot.parent_snapshot_id
    while at is not None and at != managed.snapshot_id:
        known = table.snapshot_by_id(at)
        if known is None:
            return None
        found.append(known)
        at = known.parent_snapshot_id
    return None if at is None else found[::-1]


def _ancestors(table: IcebergTable, snapshot: int | None) -> Iterator[int]:
    while snapshot is not None:
        yield snapshot
        known = table.snapshot_by_id(snapshot)
        snapshot = known.parent_snapshot_id if known is not None else None


def _forgotten(
    table: IcebergTable, head: Snapshot, managed: Managed, files: Mapping[str, str], noted: Set[int]
) -> bool:
    """Where the catalog keeps no history: whether the head consists of the registry's files and its own."""
    if managed.snapshot_id is None or table.snapshot_by_id(managed.snapshot_id) is not None:
        return False
    return lineage.only_changes(table, head, managed, files, noted)


def _examined(table: IcebergTable, managed: Managed, snapshots: Sequence[Snapshot], ours: set[str]) -> Others:
    """Commits of others that can be merged, or one sentence why not."""
    hidden = [lineage.made_by(snapshot) for snapshot in snapshots if lineage.made_by(snapshot) in ours]
    if hidden:
        raise _refused(managed, f"it stands on operation {hidden[0]}, which no reader has seen")
    wanted = {(f.name, f.field_type) for f in layout.schema(managed).fields}
    found = {(f.name, f.field_type) for f in table.schema().fields if f.name != managed.marker}
    ids = {f.field_id for f in table.schema().fields if f.name != managed.marker}
    if found != wanted or ids != set(managed.field_ids.values()):
        raise _refused(managed, "it has changed the table's columns")
    key = managed.field_ids[managed.table.key]
    unit = _DAY if managed.table.key_type == "date" else 1
    assert managed.seam is not None
    added: list[tuple[int, int]] = []
    for snapshot in snapshots:
        if snapshot.summary is not None and snapshot.summary.operation == Kind.REPLACE:
            continue  # the same rows in other files
        for file in _added(table, snapshot):
            ends = [side.get(key) for side in (file.lower_bounds or {}, file.upper_bounds or {})]
            if file.file_format != FileFormat.PARQUET or ends[0] is None or ends[1] is None:
                raise _refused(managed, f"what {file.file_path} holds is not known")
            least, greatest = (int.from_bytes(end, "little", signed=True) for end in ends if end is not None)
            if greatest * unit >= managed.seam.order:
                raise _refused(managed, f"{file.file_path} reaches beyond {managed.seam}, where rows are in Postgres")
            added.append((least, greatest))
    return Others(frozenset(snapshot.snapshot_id for snapshot in snapshots), tuple(added))


def _added(table: IcebergTable, snapshot: Snapshot) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.DATA:
                    yield entry.data_file


def _refused(managed: Managed, why: str) -> LakeError:
    return LakeError(
        f"another program has committed to the Iceberg table of {managed.table} what cannot be merged; "
        "nothing was folded",
        detail=why,
        hint=f"Postgres goes on reading snapshot {managed.snapshot_id}; put the Iceberg table back to it "
        f"(rollback_to_snapshot), then run the same command again",
    )


def doubled(managed: Managed, keys: Sequence[str]) -> LakeError:
    """The same for keys that stand there twice."""
    return _refused(managed, f"keys ({', '.join(managed.table.primary_key)}) that stand there twice: {', '.join(keys)}")


def _strange(managed: Managed) -> LakeError:
    return LakeError(
        f"the Iceberg table of {managed.table} does not come from snapshot {managed.snapshot_id}, "
        "which Postgres reads; nothing was folded",
        hint=f"put it back to that snapshot, or to {managed.metadata_location}, then run the same command again",
    )
