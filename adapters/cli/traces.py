"""Load the traces that a command compares or replays: by a run's id, from a file, or as `golden:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...eventlog.events import Event
    from ...eventlog.ports import Log
    from ...replay import Archive, Trace
    from ...replay.canonical.structure import Ignored

GOLDEN = "golden:"
READ: list[str] = []
"""The files that this process has read archives from."""


def is_file(name: str) -> bool:
    """Return whether a name on the command line is a file (`-`: standard input) rather than a run."""
    return name == "-" or name.endswith(".jsonl") or "/" in name or Path(name).is_file()


def read_file(name: str) -> Archive:
    """Return the archive in a file, vetted. Raises `ArchiveInvalid`, `ConfigError`, `LogCorrupted`."""
    from ...eventlog.errors import ArchiveCorrupted, ArchiveInvalid, ConfigError
    from ...eventlog.files import ARCHIVE_BYTES_MAX, read_bounded
    from ...replay.traces.archive import parse_archive

    try:
        data = read_bounded(name, ARCHIVE_BYTES_MAX, begins=b"{")
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}") from None
    try:
        archive = parse_archive(data).vet()
    except (ArchiveInvalid, ArchiveCorrupted) as error:
        raise error.of(name) from error
    READ.append(name)
    return archive


def golden_file(name: str, directory: Path) -> str:
    """Return the file of `golden:NAME`. Raises `ConfigError`, which lists the golden histories."""
    from ...eventlog.errors import ConfigError

    wanted = directory / f"{name.removeprefix(GOLDEN)}.jsonl"
    if wanted.is_file():
        return str(wanted)
    known = ", ".join(sorted(path.stem for path in directory.glob("*.jsonl"))) or "none"
    raise ConfigError(
        f"{wanted} does not exist; golden histories there: {known} (--golden DIR for another directory)"
    )


def ignored(given: str | None) -> list[Ignored]:
    """Return the comma-separated values of `--ignore`; `canonical` refuses unknown ones."""
    return [word.strip() for word in (given or "").split(",") if word.strip()]  # type: ignore[misc] # checked there


async def load_side(settings: Settings, name: str, golden: Path) -> tuple[str, Sequence[Event]]:
    """Return the root and the events of the family that the name denotes. Raises `ConfigError`, `RunNotFound`."""
    from .opening import opened, run_named

    if name.startswith(GOLDEN):
        return _events_in(golden_file(name, golden))
    if is_file(name):
        return _events_in(name)
    async with opened(settings) as runtime:
        name = await run_named(runtime, name)
        namespace, _subject = await runtime.place(name)
        return name, await events_of(namespace.log, name)


async def events_of(log: Log, run: str) -> Sequence[Event]:
    """Return the events of a run and all runs below it, of a child as if it had no parent. Raises `RunNotFound`."""
    from ...replay import load_trace

    return events_in(await load_trace(log, run), run)


def events_in(trace: Trace, run: str) -> Sequence[Event]:
    """Return the same as `events_of`, for a run in a trace."""
    import msgspec

    from ...projections.timeline.fold import below

    if run == trace.root:
        return trace.events
    events = below(run, trace.events)
    above = events[0].agent_path.rpartition("/")[0] + "/"
    return [
        msgspec.structs.replace(event, agent_path=event.agent_path.removeprefix(above)) for event in events
    ]


def _events_in(file: str) -> tuple[str, Sequence[Event]]:
    from ...eventlog.errors import ConfigError

    archive = read_file(file)
    roots = {stored.subject.root for stored in archive.stored}
    if len(roots) != 1:
        raise ConfigError(f"{file} holds {len(roots)} families; a comparison takes one")
    (root,) = roots
    return root, list(archive.events(root))


async def load_traces(settings: Settings, name: str) -> list[Trace]:
    """Return the family of a run, or all families of a file; the log is opened only for a run."""
    from ...replay import load_trace
    from .opening import opened, run_named

    if is_file(name):
        return list(read_file(name).traces.values())
    async with opened(settings) as runtime:
        name = await run_named(runtime, name)
        namespace, _subject = await runtime.place(name)
        return [await load_trace(namespace.log, name)]


def run_in(what: str, traces: list[Trace], text: str) -> str:
    """Return the full id of a run of these families. Raises `RunNotFound`."""
    from .opening import run_among

    return run_among(what, text, (commit.commit.run for trace in traces for commit in trace.commits))


def family_named(what: str, traces: list[Trace], run: str | None) -> Trace:
    """Return the only family in `what`, or the family of `run`. Raises `ConfigError`, `RunNotFound`."""
    from ...eventlog.errors import ConfigError

    if run is not None:
        run = run_in(what, traces, run)
    for trace in traces:
        if (run is None and len(traces) == 1) or any(run == commit.commit.run for commit in trace.commits):
            return trace
    found = f"holds {len(traces)} families: choose a run with --run" if traces else "holds no run"
    raise ConfigError(f"{what} {found}")
