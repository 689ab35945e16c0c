"""The SQLite file of `foldlog knowledge`: pieces of text by namespace, with an FTS5 index.

Several processes may use it at once (WAL). Each call opens the file in a thread of its own and closes it again, so that
waiting for another process' write never blocks an event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import anyio.to_thread
import platformdirs

from ...eventlog.errors import ConfigError
from ...runtime.ports.knowledge import KnowledgeItem, KnowledgeUnavailable
from .pieces import pieces_of
from .words import match_of, spaced

APPLICATION_ID = 0x666F6C64
"""SQLite application id of our files: "fold"."""
LAYOUT = 2
LAYOUT_BEFORE = 1
"""The previous layout: the same pieces, with an index that did not separate words in scripts without spaces."""
LOCK_WAIT_S = 5.0
ID_DIGITS = 16

_SCHEMA = """
CREATE TABLE pieces (
    number INTEGER PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL,
    UNIQUE (namespace, id)
);
CREATE INDEX pieces_by_source ON pieces (namespace, source);
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'pieces', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
_TRIGGERS = """
CREATE TRIGGER piece_added AFTER INSERT ON pieces BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, spaced(new.text));
END;
CREATE TRIGGER piece_removed AFTER DELETE ON pieces BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, spaced(old.text));
END;
"""
_REBUILD_INDEX = """
DROP TRIGGER piece_added;
DROP TRIGGER piece_removed;
INSERT INTO words (words) VALUES ('delete-all');
INSERT INTO words (rowid, text) SELECT number, spaced(text) FROM pieces;
"""
# A lower bm25 is better; pieces with the same score come in the order of their ids.
_SEARCH = """
SELECT p.id, p.text, p.source, -bm25(words) AS score FROM words JOIN pieces AS p ON p.number = words.rowid
WHERE words MATCH ? AND p.namespace = ? ORDER BY score DESC, p.id LIMIT ?
"""
_NOT_OURS = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
Mode = Literal["DEFERRED", "IMMEDIATE"]
T = TypeVar("T")


def knowledge_file() -> Path:
    """Return the path of the knowledge file: `FOLDLOG_KNOWLEDGE`, else one in the user's data directory."""
    chosen = os.environ.get("FOLDLOG_KNOWLEDGE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_data_path("foldlog", appauthor=False) / "knowledge.sqlite3"


class SqliteKnowledge:
    """The `KnowledgeStore` (`foldlog.runtime.ports.knowledge`) of a namespace, in `file` or in `knowledge_file()`.

    Every call raises `KnowledgeUnavailable` for a file that is locked, damaged or on a full disk, and `ConfigError` for
    one that is not foldlog's. A missing file counts as empty; the first `add` creates it.
    """

    def __init__(self, namespace: str = "default", file: Path | None = None) -> None:
        self.namespace, self.file = namespace, file or knowledge_file()

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """Return pieces that contain at least one of the query's words, in any form, best match first."""
        match = match_of(query)
        if not match or limit <= 0:
            return ()
        return await self._read(
            lambda db: [
                KnowledgeItem(id=id_, text=text, source=source, score=score)
                for id_, text, source, score in db.execute(_SEARCH, (match, self.namespace, limit))
            ]
        )

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Store the text in pieces, all or none, and return the new ones."""
        items = [
            KnowledgeItem(id=_id(piece), text=piece, source=source) for piece in pieces_of(_storable(text))
        ]
        if not items:
            return ()
        return await self._write(lambda db: [item for item in items if self._insert(db, item)])

    async def items(self, source: str | None = None) -> Sequence[KnowledgeItem]:
        """Return all pieces, or those of one source, in the order in which they were added."""
        return await self._read(
            lambda db: [
                KnowledgeItem(id=id_, text=text, source=found)
                for id_, text, found in db.execute(
                    "SELECT id, text, source FROM pieces WHERE namespace = ?1 AND (?2 IS NULL OR source = ?2) "
                    "ORDER BY number",
                    (self.namespace, source),
                )
            ]
        )

    async def remove(self, ids: Sequence[str] = (), source: str | None = None) -> int:
        """Remove pieces by id, and all pieces of a source; return how many were removed."""
        if not self.file.exists():
            return 0
        return await self._write(lambda db: self._delete(db, ids, source))

    def _insert(self, db: sqlite3.Connection, item: KnowledgeItem) -> bool:
        row = self.namespace, item.id, item.source, item.text
        done = db.execute(
            "INSERT OR IGNORE INTO pieces (namespace, id, source, text) VALUES (?, ?, ?, ?)", row
        )
        return done.rowcount > 0

    def _delete(self, db: sqlite3.Connection, ids: Sequence[str], source: str | None) -> int:
        delete = "DELETE FROM pieces WHERE namespace = ? AND"
        gone = [db.execute(f"{delete} id = ?", (self.namespace, id_)).rowcount for id_ in ids]
        if source is not None:
            gone.append(db.execute(f"{delete} source = ?", (self.namespace, source)).rowcount)
        return sum(gone)

    async def _read(self, read: Callable[[sqlite3.Connection], Sequence[T]]) -> Sequence[T]:
        return await self._in_thread(read, "DEFERRED") if self.file.exists() else ()

    async def _write(self, write: Callable[[sqlite3.Connection], T]) -> T:
        return await self._in_thread(write, "IMMEDIATE")

    async def _in_thread(self, use: Callable[[sqlite3.Connection], T], mode: Mode) -> T:
        def used() -> T:
            with _told(self.file), contextlib.closing(_open(self.file)) as db, _transaction(db, mode):
                return use(db)

        return await anyio.to_thread.run_sync(used)


def _id(piece: str) -> str:
    return hashlib.sha256(piece.encode()).hexdigest()[:ID_DIGITS]


def _storable(text: str) -> str:
    """Return text without NUL, which would end it in SQLite, and with `?` for what UTF-8 cannot encode."""
    return text.encode(errors="replace").decode().replace("\0", "")


# --- the file ---------------------------------------------------------------------------------------------------------


def _open(file: Path) -> sqlite3.Connection:
    """Open the file; create it if necessary, readable by its user only.

    Raises `ConfigError` for a file that is not foldlog's, or of a later release.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(file, timeout=LOCK_WAIT_S, isolation_level=None)
    db.create_function("spaced", 1, spaced, deterministic=True)
    try:
        _lay_out(db, file)
    except BaseException:
        db.close()
        raise
    return db


def _lay_out(db: sqlite3.Connection, file: Path) -> None:
    if _marks(db) == (APPLICATION_ID, LAYOUT):
        return
    db.execute("PRAGMA journal_mode = WAL")
    with _transaction(db):
        marks = _marks(db)
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0:
            _make(db, _SCHEMA + _TRIGGERS)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        elif marks == (APPLICATION_ID, LAYOUT_BEFORE):
            _make(db, _REBUILD_INDEX + _TRIGGERS)
        elif marks[0] != APPLICATION_ID:
            raise ConfigError(
                f"{file} is a database of another program; set FOLDLOG_KNOWLEDGE to another file"
            )
        elif marks[1] != LAYOUT:
            raise ConfigError(
                f"{file} has layout {marks[1]}, this release reads {LAYOUT}: use the release that wrote it, or "
                "set FOLDLOG_KNOWLEDGE to another file"
            )


def _make(db: sqlite3.Connection, script: str) -> None:
    for statement in _statements(script):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {LAYOUT}")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one (`executescript` would commit)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _marks(db: sqlite3.Connection) -> tuple[int, int]:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (layout,) = db.execute("PRAGMA user_version").fetchone()
    return application, layout


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, mode: Mode = "IMMEDIATE") -> Iterator[None]:
    db.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """Translate SQLite's errors to those of the port."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the knowledge file {file} cannot be created: {error.strerror or error}"
        ) from error
    except sqlite3.Error as error:
        raise _translated(file, error) from error


def _translated(file: Path, error: sqlite3.Error) -> KnowledgeUnavailable | ConfigError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return KnowledgeUnavailable(f"the knowledge file {file} is locked by another process: try again")
    if code == sqlite3.SQLITE_FULL:
        return KnowledgeUnavailable(
            f"the disk of the knowledge file {file} is full: free some space, then try again"
        )
    if code in _NOT_OURS:
        return KnowledgeUnavailable(
            f"the knowledge file {file} is damaged ({error}): move it away, then add its texts again"
        )
    if "no such module" in str(error):
        return ConfigError(
            f"the SQLite of this Python ({sqlite3.sqlite_version}) lacks FTS5, which knowledge needs"
        )
    return ConfigError(f"the knowledge file {file} cannot be used: {error}")
