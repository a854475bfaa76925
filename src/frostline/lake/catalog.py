"""The Iceberg catalog, JDBC tables in the same Postgres or REST: by PyIceberg here and by Spark in the pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.update import SetDefaultSpecUpdate
from pyiceberg.typedef import Record
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from frostline.catalog.database import READ_ONLY, connect
from frostline.catalog.names import LAKE_SCHEMA
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import DatabaseError, LakeError
from frostline.lake import layout, lineage, owner, rest
from frostline.lake import storage as storages
from frostline.lake.staged import StagedFile
from frostline.lake.storage import Storage
from frostline.lake.writer import Written

# A database may end idle sessions and long statements; a catalog's connection is idle while files are written.
_NO_TIMEOUTS = " ".join(
    f"-c{name}=0" for name in ("statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout")
)
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
_JDBC_TABLES = ("iceberg_tables", "iceberg_namespace_properties")
# What to do when Postgres does not give the JDBC catalog what it asks for.
_JDBC_HINTS: tuple[tuple[tuple[type[psycopg.Error], ...], str], ...] = (
    (
        (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName),
        f"{' and '.join(_JDBC_TABLES)} belong in the schema {LAKE_SCHEMA}, as `frostline init` made them: if somebody"
        " has renamed or moved them, undo that, else restore the database: docs/backup.md",
    ),
    (
        (psycopg.errors.InsufficientPrivilege,),
        "work as the role that owns the registry, or a member of it: `frostline doctor` has the GRANT",
    ),
    ((psycopg.errors.ReadOnlySqlTransaction,), READ_ONLY),
)


@dataclass(frozen=True)
class Address:
    """A DSN taken apart for drivers that want it in pieces."""

    host: str
    port: int
    database: str
    user: str
    password: str
    tls: Mapping[str, str]  # how Postgres is believed, as libpq spells it

    @property
    def jdbc(self) -> str:
        # Java's driver looks for a file of that name, and asks the system only by way of this class.
        system = {"sslrootcert": "system"}.items() <= self.tls.items()
        trusted = {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"} if system else {}
        tls = {name: value for name, value in self.tls.items() if not (system and name == "sslrootcert")} | trusted
        given = {"currentSchema": LAKE_SCHEMA, **tls, "options": _NO_TIMEOUTS}
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"jdbc:postgresql://{host}:{self.port}/{quote(self.database, safe='')}?{asked}"


def address(dsn: str) -> Address:
    """Where Spark and SQLAlchemy find Postgres; both need TCP."""
    parts = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    host = parts.get("host", "127.0.0.1")
    if host.startswith("/") or "," in host:
        raise DatabaseError(
            f"Spark cannot reach Postgres at host {host}",
            hint="give a DSN with one TCP host: postgresql://user@host:5432/db",
        )
    user = parts.get("user", "postgres")
    return Address(
        host=host,
        port=int(parts.get("port", "5432")),
        database=parts.get("dbname", user),
        user=user,
        password=parts.get("password", ""),
        tls={name: parts[name] for name in _TLS if name in parts},
    )


@contextmanager
def opened(settings: Settings) -> Iterator[Catalog]:
    """The catalog, closed afterwards; its errors, and those of the files it names, as ours."""
    storage = storages.of(settings)
    try:
        catalog = _rest(settings, storage) if settings.lake.catalog == "rest" else _jdbc(settings, storage)
        with closing(catalog):
            yield catalog
    except rest.ERRORS as error:
        raise rest.failed(error, settings.rest) from error
    except SQLAlchemyError as error:
        # Its own words repeat the statement and its values; those of the driver do not.
        raise _unanswered((isinstance(error, DBAPIError) and error.orig) or error) from error
    except (OSError, ValueError) as error:
        raise storage.failed(error) from error


def check(settings: Settings, *, postgres: bool = True) -> None:
    """Whether the lake can be used at all: its files can be written, read and deleted, its catalog answers.

    Without `postgres`, which is known to be out of reach then, a catalog in it is not asked.
    """
    storages.of(settings).probe()
    if settings.lake.catalog == "rest":
        with opened(settings) as catalog:
            catalog.list_namespaces()
    elif postgres:
        _ask_jdbc(settings.dsn.get_secret_value())


def _ask_jdbc(dsn: str) -> None:
    """Whether its tables are there and ours to read. Not by PyIceberg: `frostline init` may come by a socket."""
    with connect(dsn, application="frostline catalog") as connection:
        try:
            if connection.execute("SELECT to_regclass('frostline.migrations')").fetchone() == (None,):
                return  # `frostline init` is yet to make them
            for name in _JDBC_TABLES:
                connection.execute(SQL("SELECT FROM {} LIMIT 0").format(Identifier(LAKE_SCHEMA, name)))
        except psycopg.Error as error:
            raise _unanswered(error) from error


def _unanswered(error: Exception) -> LakeError:
    """What Postgres said of the JDBC catalog, for a person."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    hints = (hint for kinds, hint in _JDBC_HINTS if isinstance(error, kinds))
    return LakeError(
        "the Iceberg catalog in Postgres does not answer; the tables are as they were",
        detail=said or " ".join(str(error).split()) or type(error).__name__,
        hint=next(hints, "is Postgres running, does its log say more? try again when it answers"),
        sqlstate="08006",
    )


def spark_properties(settings: Settings) -> dict[str, str]:
    """The same catalog and the same files, for Spark."""
    storage = storages.of(settings)
    if settings.lake.catalog == "rest":
        return rest.spark(settings) | storage.spark()
    at = address(settings.dsn.get_secret_value())
    return storage.spark() | {
        "type": "jdbc",
        "uri": at.jdbc,
        "jdbc.user": at.user,
        "jdbc.password": at.password,
        "jdbc.schema-version": "V1",
        "warehouse": storage.root,
    }


def _rest(settings: Settings, storage: Storage) -> Catalog:
    try:
        return rest.client(settings, storage.python())
    except ValueError as error:  # an answer that is none
        raise rest.failed(error, settings.rest) from error


class _Jdbc(SqlCatalog):
    """One that leaves no connection behind when it cannot be opened."""

    def _init_catalog(self) -> None:
        try:
            super()._init_catalog()
        except BaseException:
            self.close()
            raise


def _jdbc(settings: Settings, storage: Storage) -> Catalog:
    at = address(settings.dsn.get_secret_value())
    query = {"options": f"-csearch_path={LAKE_SCHEMA} {_NO_TIMEOUTS}", **at.tls}
    url = URL.create(
        "postgresql+psycopg", at.user, at.password or None, at.host, at.port, at.database, query=query
    ).render_as_string(hide_password=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Jdbc(
            settings.lake.name, uri=url, warehouse=storage.root, init_catalog_tables="false", **storage.python()
        )


def identifier(managed: Managed) -> tuple[str, str]:
    return managed.lake_namespace, managed.lake_table


def table_of(catalog: Catalog, managed: Managed) -> IcebergTable:
    """The Iceberg table of a managed one; refused where another database or program made it, or has taken it over."""
    table = _made_here(catalog, managed)
    owner.check(table, managed)
    return table


def existing(catalog: Catalog, managed: Managed) -> IcebergTable:
    """The same of a table that has rows in the lake; told where somebody has dropped it from the catalog."""
    try:
        return table_of(catalog, managed)
    except NoSuchTableError:
        raise LakeError(
            f"the Iceberg table {'.'.join(identifier(managed))} of {managed.table} is gone from the catalog",
            hint=f"its last metadata file was {managed.metadata_location}: register it in the catalog again",
        ) from None


def claim(settings: Settings, managed: Managed) -> str | None:
    """Take the Iceberg table over from a database that is gone; or else the installation whose it is."""
    with opened(settings) as catalog, suppress(NoSuchTableError):
        table = catalog.load_table(identifier(managed))
        if not _is_made_here(table, managed):
            return table.properties.get(layout.INSTALLATION) or "unknown"
        owner.claim(table, managed)
    return None


def word(settings: Settings, managed: Managed) -> str | None:
    """What the last operation has left in the lake; None: nothing."""
    with opened(settings) as catalog:
        place = _place(catalog, managed, settings)
        return owner.word(*place) if place is not None else None


def leave_word(settings: Settings, managed: Managed, word: str) -> bool:
    """False: there is nothing of it yet."""
    with opened(settings) as catalog:
        place = _place(catalog, managed, settings)
        if place is not None:
            owner.leave_word(*place, word)
        return place is not None


def _place(catalog: Catalog, managed: Managed, settings: Settings) -> tuple[FileIO, str] | None:
    """Where a word is left; None: nothing of the table is in the lake.

    A catalog in Postgres was copied with it, or restored: it may not know the table whose files are in the place of
    ours by now. Where one that lives elsewhere has files is known to it alone.
    """
    with suppress(NoSuchTableError):
        table = table_of(catalog, managed)
        return table.io, table.location()
    if settings.lake.catalog != "jdbc":
        return None
    storage = storages.of(settings)
    location = layout.location(managed, storage.root)
    io = load_file_io(storage.python(), location)
    return (io, location) if owner.word(io, location) is not None else None


def _made_here(catalog: Catalog, managed: Managed) -> IcebergTable:
    table = catalog.load_table(identifier(managed))
    if not _is_made_here(table, managed):
        raise _not_ours(managed)
    return table


def _is_made_here(table: IcebergTable, managed: Managed) -> bool:
    maker = table.properties.get(layout.INSTALLATION)
    # What was archived before that was recorded is ours: the registry names a snapshot of it.
    return maker == managed.installation or (maker is None and managed.snapshot_id is not None)


def owned(settings: Settings, managed: Managed) -> bool:
    """Whether there is an Iceberg table of ours: a copy of a database reads that of the original.

    So does one that was dropped from the catalog: it is read by its files, and cannot be changed.
    """
    return _found_made_here(settings, managed) is True


def anothers(settings: Settings, managed: Managed) -> bool:
    """Whether it is the Iceberg table of the database that this is a copy of: it is read here, and changed there."""
    return _found_made_here(settings, managed) is False


def _found_made_here(settings: Settings, managed: Managed) -> bool | None:
    """None: nothing of the table is in the lake, or not in the catalog."""
    if managed.snapshot_id is None:
        return None
    with opened(settings) as catalog, suppress(NoSuchTableError):
        return _is_made_here(catalog.load_table(identifier(managed)), managed)
    return None


def ensure_table(settings: Settings, managed: Managed, operations: set[str]) -> bool:
    """The Iceberg table of a managed one, made on first use, its head on the registry's snapshot; True: it is new.

    Whatever stands above that snapshot was never shown to a reader: an archive run died between its Iceberg commit
    and the swap. Appending on top of it would double its rows, so the head goes back first.
    """
    with opened(settings) as catalog:
        try:
            table = (table_of if managed.snapshot_id is None else existing)(catalog, managed)
        except NoSuchTableError:
            _create(catalog, managed, settings)
            return True
        _in_this_lake(table, managed, settings)
        head = table.current_snapshot()
        if head is None or head.snapshot_id == managed.snapshot_id:
            return False
        if managed.snapshot_id is None:
            _only_ours(table, managed, operations)
            catalog.purge_table(identifier(managed))
            _create(catalog, managed, settings)
            return True
        lineage.set_back(table, managed, operations, storages.of(settings).python())
        return False


def load(settings: Settings, managed: Managed) -> IcebergTable:
    """The Iceberg table as it is now; good for reading after the catalog is closed."""
    with opened(settings) as catalog:
        return existing(catalog, managed)


def append(
    settings: Settings, managed: Managed, spec: PartitionSpec, files: Sequence[Written], properties: Mapping[str, str]
) -> None:
    """One commit that adds these files, unless the head is no longer the registry's snapshot: then none.

    Nor where the table is cut otherwise by now: a file of one partition would be taken for another's.
    """
    with opened(settings) as catalog:
        table = existing(catalog, managed)
        if table.spec() != spec or not lineage.shows(table, managed, storages.of(settings).python()):
            return
        with (
            suppress(CommitFailedException),  # somebody else was faster by a moment
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=dict(properties)).fast_append() as added,
        ):
            for file in files:
                added.append_data_file(_data_file(file, table.spec().spec_id))


def add(settings: Settings, managed: Managed, files: Sequence[StagedFile], properties: Mapping[str, str]) -> None:
    """One commit that adds files staged under one spec, on whatever is the head; that is looked at afterwards."""
    (spec,) = {file.spec_id for file in files}
    with opened(settings) as catalog:
        table = existing(catalog, managed)
        today = table.metadata.default_spec_id
        with suppress(CommitFailedException), table.transaction() as transaction:  # somebody else may be faster
            # PyIceberg adds files under the spec that the table has.
            _use(transaction, spec)
            with transaction.update_snapshot(snapshot_properties=dict(properties)).fast_append() as added:
                for file in files:
                    added.append_data_file(_data_file(file.written, spec))
            _use(transaction, today)


def _use(transaction: Transaction, spec: int) -> None:
    if transaction.table_metadata.default_spec_id != spec:
        transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": spec}),))


def _data_file(file: Written, spec_id: int) -> DataFile:
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        split_offsets=list(file.split_offsets),
        **file.metrics,
    )
    entry.spec_id = spec_id
    return entry


@dataclass(frozen=True)
class Snapshot:
    """A snapshot an operation made, and what it added."""

    id: int
    metadata_location: str
    rows: int
    bytes: int
    files: int


def adopt(settings: Settings, managed: Managed, operation: int, ours: set[str]) -> Snapshot | None:
    """The snapshot an operation made directly on the registry's, now the head; None when there is none.

    On top of anything else it would bring in rows that somebody else committed. What stands above it is put aside, if
    it came from operations of this table only.
    """
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return None
        files = storages.of(settings).python()
        made = [
            snapshot
            for snapshot in table.snapshots()
            if lineage.made_by(snapshot) == str(operation) and lineage.stands_on(table, snapshot, managed, files)
        ]
        if not made or not _above_is_ours(table, managed, ours):
            return None
        found = made[-1]
        if table.metadata.current_snapshot_id != found.snapshot_id:
            table.manage_snapshots().set_current_snapshot(snapshot_id=found.snapshot_id).commit()
        assert found.summary is not None  # it carries the operation's id
        added = {name: int(found.summary.get(f"added-{name}") or 0) for name in ("records", "files-size", "data-files")}
        return Snapshot(
            found.snapshot_id, table.metadata_location, added["records"], added["files-size"], added["data-files"]
        )


def only_ours_above(settings: Settings, managed: Managed, ours: set[str]) -> bool:
    """Whether all that stands above the registry's snapshot was made by operations of this table."""
    with opened(settings) as catalog:
        return _above_is_ours(existing(catalog, managed), managed, ours)


def _above_is_ours(table: IcebergTable, managed: Managed, ours: set[str]) -> bool:
    snapshot = table.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id != managed.snapshot_id:
        if lineage.made_by(snapshot) not in ours:
            return False
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return True


def _only_ours(table: IcebergTable, managed: Managed, operations: set[str]) -> None:
    """What is about to be removed was written by runs of this very table that never got to show it."""
    if not all(lineage.made_by(snapshot) in operations for snapshot in table.snapshots()):
        raise _not_ours(managed)


def _not_ours(managed: Managed) -> LakeError:
    if managed.snapshot_id is not None:
        return LakeError(
            f"the Iceberg table of {managed.table} belongs to the database that this is a copy of; nothing was touched",
            hint="its rows can be read and changed here, and come back by `frostline unregister --keep-lake`; register"
            " the table again then, and it gets an Iceberg table of its own",
        )
    return LakeError(
        f"the lake has a table {'.'.join(identifier(managed))} already that {managed.table} did not write",
        hint="rename or remove that Iceberg table, then run the same command again; nothing was touched",
    )


def _create(catalog: Catalog, managed: Managed, settings: Settings) -> None:
    catalog.create_namespace_if_not_exists(managed.lake_namespace)
    table = catalog.create_table(
        identifier(managed),
        # A REST catalog chooses the place itself.
        location=layout.location(managed, storages.of(settings).root) if settings.lake.catalog == "jdbc" else None,
        schema=layout.schema(managed),
        partition_spec=layout.partition_spec(managed),
        sort_order=layout.sort_order(managed),
        properties=layout.properties(managed),
    )
    try:
        _in_this_lake(table, managed, settings)
    except LakeError:
        catalog.drop_table(identifier(managed))
        raise


def _in_this_lake(table: IcebergTable, managed: Managed, settings: Settings) -> None:
    """A REST catalog chooses a table's place, and an older table may be elsewhere: the gateway has keys for one."""
    storage = storages.of(settings)
    if not storage.holds(table.location()):
        raise LakeError(
            f"the files of {managed.table} belong in {table.location()}, and lake.warehouse is {storage.root}; "
            "nothing was changed",
            hint="set lake.warehouse, for the gateway too, to the place that holds them",
        )
