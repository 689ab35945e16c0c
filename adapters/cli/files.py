"""List the files of a run, and write them into a directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ...eventlog.commits import decode
from ...eventlog.errors import ConfigError
from ...eventlog.events import Event, FileMade, MessageQueued, Submitted, ToolResult
from ...eventlog.offload import restore
from ...eventlog.parts import FilePart
from ...projections.content_files import files_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from ...runtime import Runtime
    from ...runtime.ports.files import Content

Source = Literal["input", "tool", "model"]
_ADDRESSES = ("http://", "https://")
_UNSAFE = re.compile(r"[^\w.-]+")

_SOURCES: dict[type[Event], Source] = {
    Submitted: "input",
    MessageQueued: "input",
    ToolResult: "tool",
    FileMade: "model",
}


class FoundFile(NamedTuple):
    """A file of a run, its source, and the path to which it was written."""

    file: FilePart
    source: Source
    path: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the file, with `source` and `path`."""
        return {**msgspec.structs.asdict(self.file), "source": self.source, "path": self.path or None}


def with_files(text: str, given: Sequence[str]) -> Content:
    """Return content: the text, then the files at these paths and http addresses. Raises `ConfigError`."""
    from ...runtime.ports.files import File

    if not given:
        return text
    files = [File.from_url(each) if each.startswith(_ADDRESSES) else File.from_path(each) for each in given]
    return [text, *files] if text else files


async def files_of_run(runtime: Runtime, run_id: str) -> list[FoundFile]:
    """Return the files of a run in order of their first appearance, each once. Raises `RunNotFound`, `RunGone`."""
    found: dict[tuple[str | None, str | None], FoundFile] = {}
    async for event in _events(runtime, run_id):
        source = _SOURCES.get(type(event))
        for file in files_in(event) if source is not None else ():
            found.setdefault((file.artifact, file.url), FoundFile(file, source or "input"))
    return list(found.values())


async def _events(runtime: Runtime, run_id: str) -> AsyncIterator[Event]:
    """Yield the run's own events, without those of its children."""
    namespace, subject = await runtime.place(run_id)
    artifacts = namespace.log.artifacts.of(subject.root)
    async for stored in namespace.log.events.read(subject):
        for event in await restore(decode(stored.data).events, artifacts):
            if not event.agent_path:
                yield event


async def written(
    runtime: Runtime, run_id: str, files: Iterable[FoundFile], directory: Path
) -> list[FoundFile]:
    """Write the files, under their own names where these are free. Raises `ConfigError`."""
    namespace, subject = await runtime.place(run_id)
    artifacts = namespace.log.artifacts.of(subject.root)
    done: list[FoundFile] = []
    taken: set[str] = set()
    for found in files:
        if found.file.artifact is None:
            done.append(found)
            continue
        try:
            data = await artifacts.get(found.file.artifact)
        except KeyError:
            raise ConfigError(f"the log no longer has the bytes of {found.file}") from None
        path = directory / _name(found.file, taken)
        _write(path, data)
        done.append(found._replace(path=str(path)))
    return done


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _name(file: FilePart, taken: set[str]) -> str:
    """Return a safe, unused name within the directory for any file name."""
    digest = (file.artifact or "")[:12]
    name = _UNSAFE.sub("_", file.name).lstrip(".") or f"{digest}.{file.media_type.rpartition('/')[2]}"
    name = f"{digest}-{name}" if name in taken else name
    taken.add(name)
    return name
