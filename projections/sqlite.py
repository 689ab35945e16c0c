"""Rows, heads and checkpoints of projections in one SQLite file, stored in the same transactions.

The file is a cache: if it is damaged, or was written by other versions of the projections, it is emptied and rebuilt
from the log. Several processes may share it; a writer takes the write lock and then reads the checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from ..eventlog.commits import ORIGIN, Head
from ..eventlog.errors import ConfigError, LogUnavailable
from ..eventlog.names import subject_token
from ..eventlog.ports import Subject
from .projection import Projection, Value

LAYOUT = 2
"""The version of the tables below; the versions of the projections are appended to it."""

LOCK_WAIT_S = 5.0
"""The longest wait for another process's write, in seconds; a write takes milliseconds."""

RowT = TypeVar("RowT", bound=msgspec.Struct)
_log = logging.getLogger("foldlog.projections")
_ENCODER = msgspec.json.Encoder()


class CacheDamaged(Exception):
    """The file was damaged and has been emptied; the operation must be repeated."""


class Checkpoint(NamedTuple):
    """The last folded commit of a shard: its head and its run."""

    head: Head = ORIGIN
    run: str = ""


class Where(NamedTuple):
    """A condition on the columns of a row (or its `key`), all of which it must meet.

    A column must equal its value in `equal` (None: it has none), be at least that in `at_least`, be less than that in
    `below`, and contain the text in `holding`, of which one column suffices. Names are those of columns, never a
    caller's text.
    """

    equal: Mapping[str, Value] = MappingProxyType({})
    at_least: Mapping[str, Value] = MappingProxyType({})
    below: Mapping[str, Value] = MappingProxyType({})
    holding: Mapping[str, str] = MappingProxyType({})

    def sql(self) -> tuple[str, tuple[Value, ...]]:
        """Return the WHERE clause, empty without a condition, and the values of its marks."""
        asked: list[tuple[str, Value]] = [
            # Most rows have no value in such a column, so that its index, which "+" excludes, finds nearly all of them.
            *((f'{"+" if value is None else ""}"{name}" IS ?', value) for name, value in self.equal.items()),
            *((f'"{name}" >= ?', value) for name, value in self.at_least.items()),
            *((f'"{name}" < ?', value) for name, value in self.below.items()),
        ]
        held = " OR ".join(f'instr("{name}", ?) > 0' for name in self.holding)
        conditions = [condition for condition, _ in asked] + ([f"({held})"] if held else [])
        values = (*(value for _, value in asked), *self.holding.values())
        return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values


class RowStore:
    """The tables of some projections over one namespace. All calls are synchronous and take milliseconds.

    `path` None keeps everything in memory. Raises `ConfigError` for a file that cannot be used, `LogUnavailable` if
    another process holds the write lock for too long, and `CacheDamaged` if the file was found to be damaged.
    """

    def __init__(self, path: Path | None, namespace: str, projections: Sequence[Projection[Any]]) -> None:
        self._path, self._namespace, self._projections = path, namespace, tuple(projections)
        self._db = self._connect()
        try:
            with contextlib.suppress(CacheDamaged), self._guarded():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _connect(self) -> sqlite3.Connection:
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path or ":memory:", timeout=LOCK_WAIT_S, isolation_level=None)
            db.execute("PRAGMA secure_delete = ON")  # what is erased must not stay in free pages
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"the projections' file {self._path} cannot be opened: {error}") from error
        return db

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise LogUnavailable(
                    f"the projections' file {self._path} is locked by another process"
                ) from error
            raise ConfigError(f"the projections' file {self._path} cannot be used: {error}") from error
        except (sqlite3.DatabaseError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._start_over(error)
            raise CacheDamaged from error

    def _start_over(self, error: Exception) -> None:
        _log.warning(
            "the projections' file %s is damaged (%s): it is rebuilt from the log", self._path, error
        )
        self._db.close()
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._db = self._connect()
        self._prepare()

    # --- layout -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the tables; drop those of another layout or version first."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        with self._written():
            self._db.execute("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            found = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
            self._check_namespace(found.get("namespace"))
            if found.get("versions") != self._versions:
                self._make_tables()

    def _check_namespace(self, found: str | None) -> None:
        if found not in {None, self._namespace}:
            raise ConfigError(
                f"the projections' file {self._path} belongs to the namespace {found!r}, not to "
                f"{self._namespace!r}: use a different file for each namespace"
            )

    @property
    def _versions(self) -> str:
        return _ENCODER.encode([LAYOUT, *([p.name, p.version] for p in self._projections)]).decode()

    def _make_tables(self) -> None:
        tables = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'meta'"
        ).fetchall()
        for (name,) in tables:
            self._db.execute(f'DROP TABLE "{name}"')
        self._db.execute(
            "CREATE TABLE checkpoints (shard INTEGER PRIMARY KEY, position INTEGER, rev INTEGER, digest TEXT, run TEXT)"
        )
        self._db.execute(
            "CREATE TABLE heads (shard INTEGER, subject TEXT, position INTEGER, rev INTEGER, digest TEXT, "
            "PRIMARY KEY (shard, subject)) WITHOUT ROWID"
        )
        for projection in self._projections:
            own = "".join(f', "{column}"' for column in projection.columns)
            self._db.execute(
                f"CREATE TABLE {_table(projection)} (key TEXT PRIMARY KEY, row BLOB NOT NULL{own})"
            )
            for columns in projection.indexes:
                name = f"{projection.name}_by_{'_'.join(columns)}"
                indexed = ", ".join(f'"{column}"' for column in dict.fromkeys((*columns, "key")))
                self._db.execute(f'CREATE INDEX "{name}" ON {_table(projection)} ({indexed})')
        meta = [("namespace", self._namespace), ("versions", self._versions)]
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

    # --- writing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Store everything within, or nothing; other writers wait meanwhile."""
        with self._guarded(), self._written():
            yield

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def clear(self, ends: Sequence[int] = ()) -> None:
        """Delete everything; the next read of the log starts at its beginning.

        `ends` are the positions, shard by shard, at which the rows are there again (`is_cut_short`).
        """
        with self._guarded(), self._written():
            self._make_tables()
            meta = ("ends", _ENCODER.encode(ends).decode())
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

    def is_cut_short(self) -> bool:
        """Return whether the rows were cleared and do not reach up to the ends that were given then."""
        with self._guarded():
            found = self._db.execute("SELECT value FROM meta WHERE name = 'ends'").fetchone()
            ends = msgspec.json.decode(found[0], type=list[int]) if found is not None else []
        return any(self.checkpoint(shard).head.position < end for shard, end in enumerate(ends))

    def put(self, projection: Projection[RowT], key: str, row: RowT) -> None:
        """Store a row; within a transaction."""
        values = (key, _ENCODER.encode(row), *projection.index(row))
        marks = ", ".join("?" * len(values))
        self._db.execute(f"INSERT OR REPLACE INTO {_table(projection)} VALUES ({marks})", values)  # noqa: S608

    def remove(self, projection: Projection[Any], key: str) -> None:
        """Delete a row, and overwrite its bytes in the file; within a transaction."""
        self._db.execute(f"DELETE FROM {_table(projection)} WHERE key = ?", (key,))  # noqa: S608

    def forget(self) -> None:
        """Take what was overwritten out of the write-ahead log, too; readers of other processes may delay it."""
        with self._guarded():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def put_head(self, subject: Subject, head: Head) -> None:
        """Store the last folded commit of a subject; within a transaction."""
        values = (subject.shard, subject_token(subject), head.position, head.rev, head.digest)
        self._db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?)", values)

    def put_checkpoint(self, subject: Subject, head: Head) -> None:
        """Store the last folded commit of the subject's shard; within a transaction."""
        values = (subject.shard, head.position, head.rev, head.digest, subject.id)
        self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)", values)

    # --- reading ------------------------------------------------------------------------------------------------------

    def checkpoint(self, shard: int) -> Checkpoint:
        """Return the last folded commit of a shard."""
        with self._guarded():
            query = "SELECT position, rev, digest, run FROM checkpoints WHERE shard = ?"
            found = self._db.execute(query, (shard,)).fetchone()
            return Checkpoint(Head(*found[:3]), found[3]) if found is not None else Checkpoint()

    def head(self, subject: Subject) -> Head:
        """Return the last folded commit of a subject."""
        with self._guarded():
            query = "SELECT position, rev, digest FROM heads WHERE shard = ? AND subject = ?"
            found = self._db.execute(query, (subject.shard, subject_token(subject))).fetchone()
            return Head(*found) if found is not None else ORIGIN

    def get(self, projection: Projection[RowT], key: str) -> RowT | None:
        """Return one row, None if there is none."""
        with self._guarded():
            query = f"SELECT row FROM {_table(projection)} WHERE key = ?"  # noqa: S608
            found = self._db.execute(query, (key,)).fetchone()
            return None if found is None else self._decode(projection, found[0])

    def select(
        self,
        projection: Projection[RowT],
        where: Where,
        *,
        newest_by: str | None = None,
        before: tuple[Value, str] | None = None,
        limit: int = -1,
    ) -> list[RowT]:
        """Return rows in order of key, or with `newest_by` in descending order of that column and then of key.

        `before` is the column's value and the key of a row: only rows that come after it in that order are returned.
        """
        clause, values = where.sql()
        if newest_by is not None and before is not None:
            clause += f' {"AND" if clause else "WHERE"} ("{newest_by}", key) < (?, ?)'
            values = (*values, *before)
        order = f'"{newest_by}" DESC, key DESC' if newest_by else "key"
        query = f"SELECT row FROM {_table(projection)} {clause} ORDER BY {order} LIMIT ?"  # noqa: S608
        with self._guarded():
            found = self._db.execute(query, (*values, limit)).fetchall()
            return [self._decode(projection, row) for (row,) in found]

    def count(self, projection: Projection[Any], where: Where, limit: int) -> int:
        """Return the number of rows, or `limit` if there are at least as many."""
        clause, values = where.sql()
        query = f"SELECT count(*) FROM (SELECT 1 FROM {_table(projection)} {clause} LIMIT ?)"  # noqa: S608
        with self._guarded():
            return int(self._db.execute(query, (*values, limit)).fetchone()[0])

    def tally(self, projection: Projection[Any], column: str, where: Where) -> dict[Value, int]:
        """Return the number of rows for each value of a column."""
        clause, values = where.sql()
        query = f'SELECT "{column}", count(*) FROM {_table(projection)} {clause} GROUP BY 1'  # noqa: S608
        with self._guarded():
            return dict(self._db.execute(query, values).fetchall())

    def least(self, projection: Projection[Any], column: str, where: Where) -> Value:
        """Return the smallest value of a column, None without rows."""
        clause, values = where.sql()
        query = f'SELECT min("{column}") FROM {_table(projection)} {clause}'  # noqa: S608
        with self._guarded():
            least: Value = self._db.execute(query, values).fetchone()[0]
            return least

    def beside(self, projection: Projection[Any], column: str, value: Value) -> list[Value]:
        """Return the nearest smaller and greater values of a column, as far as there are any."""
        found: list[Value] = []
        with self._guarded():
            for nearest, sign in (("max", "<"), ("min", ">")):
                query = f'SELECT {nearest}("{column}") FROM {_table(projection)} WHERE "{column}" {sign} ?'  # noqa: S608
                found += [each for (each,) in self._db.execute(query, (value,)) if each is not None]
        return found

    def _decode(self, projection: Projection[RowT], data: bytes) -> RowT:
        row: RowT = _decoder(projection.row).decode(data)
        return row


@cache
def _decoder(row: type[Any]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of the rows of a type, which takes longer to make than a file to open."""
    return msgspec.json.Decoder(row)


def _table(projection: Projection[Any]) -> str:
    """Return the table's name, quoted. Names in queries are those of projections and columns, never a caller's."""
    return f'"rows_{projection.name}"'
