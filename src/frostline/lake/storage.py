"""Where the lake's files are: a local directory or S3, and how every engine is told to read and write there.

This is the one place that knows the difference. Iceberg's metadata names files by absolute location, so a location, not
the settings, says where a file is; the settings say with which keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import duckdb
from pyiceberg.io import load_file_io
from pyiceberg.table import Table as IcebergTable

from frostline.config import Settings, check_s3
from frostline.errors import LakeError
from frostline.lake import s3
from frostline.lake.duck import load, quote

_FILE = "file:"
# Also when a commit's answer was lost: what is in the lake is not shown until Postgres commits the same.
_KEPT = "the tables are as they were"


class Storage(ABC):
    """One lake's files."""

    def __init__(self, root: str) -> None:
        self.root = root  # as Iceberg writes it

    @abstractmethod
    def python(self) -> dict[str, str]:
        """Properties of PyIceberg's file access."""

    @abstractmethod
    def spark(self) -> dict[str, str]:
        """Properties of the file access of Iceberg's Java library."""

    @abstractmethod
    def prepare(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Let DuckDB read here."""

    @abstractmethod
    def flush(self, locations: Iterable[str]) -> None:
        """Make files survive a power cut."""

    @abstractmethod
    def said(self, line: str) -> tuple[str, str]:
        """What an engine's words mean, without any secret, and what to do about it."""

    def holds(self, location: str) -> bool:
        """Whether a file or directory is in this lake."""
        return f"{_plain(location)}/".startswith(f"{_plain(self.root)}/")

    def failed(self, error: BaseException) -> LakeError:
        """An error of whoever reads or writes here, for a person."""
        what, hint = self.said(_line(error))
        return LakeError(f"the lake in {self.root} cannot be used; {_KEPT}", detail=what, hint=hint)

    def unreadable(self, error: BaseException) -> LakeError:
        """The same for a query."""
        what, hint = self.said(_line(error))
        return LakeError(f"the lake cannot be read: {what}", detail="Rows in Postgres are not concerned.", hint=hint)

    def remove(self, locations: Iterable[str]) -> None:
        """As far as that is possible; what stays is found by whoever looks for leftovers."""
        for location in locations:
            with contextlib.suppress(OSError, ValueError):
                load_file_io(self.python(), location).delete(location)

    def holds_all(self, locations: Iterable[str]) -> bool:
        """Whether every one of these files is there."""
        try:
            return all(load_file_io(self.python(), location).new_input(location).exists() for location in locations)
        except (OSError, ValueError) as error:
            raise self.failed(error) from error

    def probe(self) -> None:
        """Write, read and delete a file: a missing permission is found before anything changes."""
        location = f"{self.root}/.frostline-probe-{uuid.uuid4().hex}"
        content = b"Frostline looks whether it may write, read and delete here.\n"
        io = load_file_io(self.python(), location)
        step = "writing to it"
        try:
            with io.new_output(location).create(overwrite=True) as stream:
                stream.write(content)
            step = "reading what was written"
            with io.new_input(location).open() as found:
                if found.read() != content:
                    raise OSError("it is not what was written")
            step = "deleting what was written"
            io.delete(location)
        except (OSError, ValueError) as error:
            what, hint = self.said(_line(error))
            raise LakeError(
                f"the lake in {self.root} cannot be used: {step} failed; nothing was changed", detail=what, hint=hint
            ) from error


class Local(Storage):
    """A directory of this machine."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"file://{directory}")
        self.directory = Path(directory)

    def python(self) -> dict[str, str]:
        return {}

    def spark(self) -> dict[str, str]:
        return {}

    def prepare(self, engine: duckdb.DuckDBPyConnection) -> None:
        pass

    def probe(self) -> None:
        """And what had to be made for it is gone again: a directory that is there is taken for a lake."""
        made = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        try:
            super().probe()
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()

    def flush(self, locations: Iterable[str]) -> None:
        """The files, and the directories that name them."""
        files = {Path(_plain(location)) for location in locations}
        root = self.directory
        for path in files | {parent for file in files for parent in file.parents if parent.is_relative_to(root)}:
            flush(path)

    def said(self, line: str) -> tuple[str, str]:
        return line, "is it there, is it a directory, may this user write it?"


class S3(Storage):
    """A bucket; what it has answered is durable."""

    def __init__(self, settings: Settings) -> None:
        check_s3(settings.s3)
        super().__init__(settings.warehouse)
        self._settings = settings.s3

    def python(self) -> dict[str, str]:
        return s3.python(self._settings)

    def spark(self) -> dict[str, str]:
        return s3.spark(self._settings)

    def prepare(self, engine: duckdb.DuckDBPyConnection) -> None:
        load(engine, "httpfs")
        s3.configure(engine, self._settings, self.root)

    def flush(self, locations: Iterable[str]) -> None:
        pass

    def said(self, line: str) -> tuple[str, str]:
        return s3.said(line, self._settings)


def of(settings: Settings) -> Storage:
    return S3(settings) if settings.on_s3 else Local(settings.warehouse)


def storage_properties(table: IcebergTable) -> dict[str, str]:
    """How the files of an open table are reached, without what its catalog is reached with."""
    return {name: value for name, value in table.io.properties.items() if name.startswith("s3.")}


def local_path(location: str) -> str | None:
    """Where a file of this machine is; None: it is elsewhere."""
    plain = _plain(location)
    return plain if plain.startswith("/") else None


def duckdb_name(location: str) -> str:
    """A file as DuckDB finds it when patterns mean nothing, as a literal."""
    return quote(_plain(location))


def duckdb_pattern(location: str) -> str:
    """A file as DuckDB finds it where names are patterns: a directory may have a bracket in its name.

    On S3 they are none (see s3.configure).
    """
    plain = _plain(location)
    return quote(plain if plain.startswith("s3:") else re.sub(r"[*?\[]", r"[\g<0>]", plain))


def _plain(location: str) -> str:
    """Spark and PyIceberg write file URIs with one, two or three slashes; paths have none."""
    if not location.startswith(_FILE):
        return location.rstrip("/")
    return "/" + location.removeprefix(_FILE).strip("/")


def flush(path: Path) -> None:
    """A file or directory of this machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
