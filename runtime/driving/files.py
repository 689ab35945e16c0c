"""Files on their way between the log and a model: their bytes are artifacts, and events hold only their digests."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from ...eventlog.parts import FilePart
from ...eventlog.ports import Log
from ..journal.outages import through_outages
from ..ports.json_values import sound
from ..ports.models import FileDelta, InvalidRequest, ModelRequest


def with_artifacts(request: ModelRequest, log: Log) -> ModelRequest:
    """Return the request with a way to read the bytes of its files from this log."""
    return msgspec.structs.replace(request, read_artifact=functools.partial(_read, log))


async def _read(log: Log, file: FilePart) -> bytes:
    try:
        return await through_outages(log.clock, log.artifacts.get, file.artifact or "")
    except KeyError:
        raise InvalidRequest(f"the log no longer has the bytes of {file}: artifact {file.artifact}") from None


async def made_files(made: Sequence[FileDelta], log: Log) -> tuple[FilePart, ...]:
    """Store the files that a model made, and return them as parts."""
    return tuple([await _stored(file, log) for file in made])


async def _stored(file: FileDelta, log: Log) -> FilePart:
    data = bytes(file.data)
    return FilePart(
        media_type=sound(file.media_type),
        name=sound(file.name),
        artifact=await through_outages(log.clock, log.artifacts.put, data),
        bytes=len(data),
    )
