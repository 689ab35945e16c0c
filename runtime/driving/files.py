"""Files on their way between the log, models and tools: their bytes are artifacts, and events hold digests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.parts import FilePart, TextPart
from ...eventlog.ports import Log
from ..agents import capabilities
from ..agents.secrets import Veil
from ..core.content import CountTokens, Held, held
from ..journal.outages import through_outages
from ..ports.files import Content, File, parts_of
from ..ports.json_values import sound
from ..ports.models import FileDelta, InvalidRequest, ModelRequest
from ..ports.tools import ToolFailed
from .host import Outbox


def with_artifacts(request: ModelRequest, log: Log, root: str) -> ModelRequest:
    """Return the request with a way to read the bytes of its files, which are artifacts of this family."""
    return msgspec.structs.replace(request, read_artifact=functools.partial(_read, log, root))


async def _read(log: Log, root: str, file: FilePart) -> bytes:
    try:
        return await through_outages(log.clock, log.artifacts.of(root).get, file.artifact or "")
    except KeyError:
        raise InvalidRequest(f"the log no longer has the bytes of {file}: artifact {file.artifact}") from None


async def made_files(driver: Outbox, made: Sequence[FileDelta], model: str) -> tuple[FilePart, ...]:
    """Store the files that a model generated, and return them as parts."""
    if not made:
        return ()
    count = _count(driver, model)
    return tuple([await _stored(file, driver, count) for file in made])


async def _stored(file: FileDelta, driver: Outbox, count: CountTokens) -> FilePart:
    if file.stored is not None:
        return file.stored
    data, log = bytes(file.data), driver.host.log
    artifacts = log.artifacts.of(driver.journal.subject.root)
    part = FilePart(
        media_type=sound(file.media_type),
        name=sound(file.name),
        artifact=await through_outages(log.clock, artifacts.put, data),
        bytes=len(data),
    )
    return msgspec.structs.replace(part, tokens=count(part, data))


def without_secrets(content: Content, veil: Veil) -> Content:
    """Return the content without the values of secrets."""
    if isinstance(content, str):
        return veil.hide_text(content)
    return [_hidden(part, veil) for part in parts_of(content)]


def _hidden(part: TextPart | FilePart | File, veil: Veil) -> TextPart | FilePart | File:
    if isinstance(part, File):
        return _veiled(part, veil)
    return TextPart(text=veil.hide_text(part.text)) if isinstance(part, TextPart) else part


def held_result(driver: Outbox, content: Any, veil: Veil) -> Held:
    """Return a tool's result as it is stored. Raises `ToolFailed` for a file over the limit."""
    rules = driver.journal.rules
    try:
        given = [_sound(part, veil) for part in parts_of(content)]
        return held(given, rules.files, _count(driver, rules.model))
    except ConfigError as error:
        raise ToolFailed(f"the tool returned a file that cannot be stored: {error}", in_doubt=True) from None


def _sound(part: TextPart | FilePart | File, veil: Veil) -> TextPart | FilePart | File:
    """Return a part as the log can store it, without the values of secrets in a file."""
    if isinstance(part, File):
        return _veiled(part, veil)
    return TextPart(text=sound(part.text)) if isinstance(part, TextPart) else part


def _veiled(file: File, veil: Veil) -> File:
    """Return the file without the values of secrets."""
    data = None if file.data is None else veil.hide_bytes(file.data)
    if data is file.data:
        return file
    return File(media_type=file.media_type, data=data, url=file.url, name=file.name, detail=file.detail)


async def store_files(content: Held, driver: Outbox) -> None:
    """Store the bytes of its files in the log, before the commit that names them."""
    log = driver.host.log
    for data in content.data.values():
        await through_outages(log.clock, log.artifacts.of(driver.journal.subject.root).put, data)


def _count(driver: Outbox, model: str) -> CountTokens:
    return capabilities.tokens_by(driver.host.registry.provider, model)
