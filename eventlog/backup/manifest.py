"""The manifest of a backup, and the directory that it is in.

A place (`TARGET`) is a directory of backups. A backup is a directory of its own, `<namespace>-<UTC time>`, with a file
for each stream and `manifest.json`, which is written last: a directory without it is not a backup. Each file is the
server's snapshot of a stream, a tar archive in the S2 format, exactly as the server sent it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..embedded.layout import write_private
from ..errors import BackupDamaged, ConfigError, FoldlogError

FORMAT = 1
MANIFEST = "manifest.json"
PARTIAL = ".partial"
"""The end of the name of a directory whose backup is not complete."""
_STAMP = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
_BLOCK_BYTES = 1024 * 1024


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in a backup. `config` and `state` are the server's, and needed to restore it.

    `shard` is None for the stream of the artifacts. `consumers` are the durable ones that existed when it was saved.
    """

    name: str
    shard: int | None
    file: str
    size_bytes: int
    sha256: str
    config: dict[str, Any]
    state: dict[str, Any]
    consumers: tuple[str, ...] = ()

    @property
    def last_position(self) -> int:
        """The last position that is in the snapshot."""
        return int(self.state.get("last_seq", 0))

    @property
    def messages(self) -> int:
        """The number of messages in the snapshot."""
        return int(self.state.get("messages", 0))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a backup. `began_at` and `ended_at` are Unix seconds; the streams are in the order of saving.

    `digest` is the SHA-256 (hex) of the manifest without it.
    """

    format: int
    namespace: str
    shards: int
    began_at: float
    ended_at: float
    foldlog: str
    server: str
    streams: tuple[SavedStream, ...]
    digest: str = ""

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(stream.size_bytes for stream in self.streams)

    @property
    def messages(self) -> int:
        """The number of messages in all streams."""
        return sum(stream.messages for stream in self.streams)

    def stream(self, shard: int | None) -> SavedStream:
        """Return the stream of a shard, of the artifacts for None. Raises `KeyError`."""
        for stream in self.streams:
            if stream.shard == shard:
                return stream
        raise KeyError(shard)


class _Format(msgspec.Struct):
    format: int


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a backup, and return it with its digest. Raises OSError."""
    sealed = msgspec.structs.replace(manifest, digest=_digest(manifest))
    write_private(directory / MANIFEST, msgspec.json.format(msgspec.json.encode(sealed), indent=1))
    return sealed


def open_backup(target: Path) -> tuple[Path, Manifest]:
    """Return the backup at `target`: its directory, or a place, whose newest backup counts.

    Raises `ConfigError` (there is none, or it is of a newer release), `BackupDamaged`; also if a backup that cannot be
    read may be the newest.
    """
    if not target.is_dir():
        raise ConfigError(
            f"{target} is not a directory: name one that `foldlog backup create` has written to"
        )
    unreadable: dict[Path, FoldlogError] = {}
    found = list(backups_in(target, unreadable))
    newest = max(found, key=lambda each: each[1].began_at, default=None)
    for directory, error in unreadable.items():
        if newest is None or _stamp(directory) >= _stamp(newest[0]):
            raise error
    if newest is None:
        raise ConfigError(f"{target} has no backup: `foldlog backup create {target}` makes one")
    return newest


def _stamp(directory: Path) -> str:
    """Return the time in the name of a backup's directory; that of another name is later than any."""
    stamp = directory.name.rpartition("-")[2]
    return stamp if _STAMP.fullmatch(stamp) else "~"


def backups_in(place: Path, unreadable: dict[Path, FoldlogError]) -> Iterator[tuple[Path, Manifest]]:
    """Yield the complete backups of a place, by name, or the one that it is; what is wrong with others is `unreadable`.

    Raises `ConfigError`.
    """
    if not place.is_dir():
        raise ConfigError(f"{place} is not a directory")
    for directory in [place] if (place / MANIFEST).exists() else sorted(place.iterdir()):
        if not directory.name.endswith(PARTIAL) and (directory / MANIFEST).exists():
            try:
                yield directory, _read(directory)
            except (BackupDamaged, ConfigError) as error:
                unreadable[directory] = error


def check_files(directory: Path, manifest: Manifest) -> None:
    """Check every file against its digest in the manifest. Raises `BackupDamaged`."""
    for stream in manifest.streams:
        path = _inside(directory, stream.file)
        try:
            size_bytes, sha256 = path.stat().st_size, _digest_of(path)
        except OSError as error:
            raise BackupDamaged(path, error.strerror or str(error)) from None
        if size_bytes != stream.size_bytes:
            raise BackupDamaged(path, f"it has {size_bytes} bytes, and had {stream.size_bytes}")
        if sha256 != stream.sha256:
            raise BackupDamaged(path, "its content was altered: the digest is another one")


def _read(directory: Path) -> Manifest:
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
        written_by = msgspec.json.decode(data, type=_Format).format
        if written_by != FORMAT:
            raise ConfigError(f"{path} has format {written_by}; this release reads format {FORMAT}")
        manifest = msgspec.json.decode(data, type=Manifest)
    except OSError as error:
        raise BackupDamaged(path, error.strerror or str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupDamaged(path, f"it is not a manifest ({error})") from None
    if manifest.digest != _digest(manifest):
        raise BackupDamaged(path, "it was altered: the digest is another one")
    shards = {stream.shard for stream in manifest.streams}
    if shards != {None, *range(manifest.shards)}:
        raise BackupDamaged(path, "it does not list every shard and the artifacts")
    for stream in manifest.streams:
        _inside(directory, stream.file)
    return manifest


def _inside(directory: Path, file: str) -> Path:
    """Return the path of a file of a backup. Raises `BackupDamaged` for one that is not in its directory."""
    if Path(file).name != file:
        raise BackupDamaged(directory / MANIFEST, f"it names a file outside of the backup: {file!r:.80}")
    return directory / file


def _digest(manifest: Manifest) -> str:
    unsealed = msgspec.structs.replace(manifest, digest="")
    return hashlib.sha256(msgspec.json.encode(unsealed, order="deterministic")).hexdigest()


def _digest_of(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            sha.update(block)
    return sha.hexdigest()
