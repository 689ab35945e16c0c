"""Check that foldlog can have written an archive, and report the line and field that show otherwise.

Checksums and hash chains detect damage. They do not detect a forged file with correct checksums, whose values may have
any type, be nested to any depth, or refer to things that do not exist. Everything that reads an archive relies on the
checks made here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ...eventlog.commits import Chain, Recorded, decode, tombstone_in
from ...eventlog.errors import (
    AgentConfigError,
    ArchiveCorrupted,
    ArchiveInvalid,
    ConfigError,
    FoldlogError,
    LogCorrupted,
)
from ...eventlog.events import (
    CancelRequested,
    ChildStarted,
    Event,
    ModelRequested,
    Prepared,
    Submitted,
    ToolCall,
    ToolResult,
    ToolsRefreshRequested,
)
from ...eventlog.ports import Stored
from ...projections.fold import fold_commit
from ...projections.messages import parse_messages
from ...projections.run_state import RunState
from ...runtime.agents.config import AgentConfig
from ...runtime.agents.kinds import KINDS, runnable_of
from ...runtime.core.rules import rules_of_run

DEPTH_MAX = 128
"""The deepest nesting in an archive: far more than real events need, far less than what breaks a reader."""


class _ResultMetadata(msgspec.Struct, frozen=True):
    """The fields that readers use from the metadata of a result."""

    status: str = ""
    attempt: int = 0
    started_at: float = 0.0
    completed_at: float = 0.0
    breaker: str = ""
    slot_cycle: str = ""
    evidence: list[dict[str, Any]] = []
    postcondition: list[dict[str, Any]] = []
    edited_arguments: dict[str, Any] = {}
    offloaded: Any = None


def vet(stored: Iterator[tuple[int, Stored]]) -> None:
    """Check the commits of an archive, given with their line numbers.

    Raises `ArchiveInvalid`, or `ArchiveCorrupted` if a commit is missing or was altered.
    """
    chain, states, parents = Chain(tombstones=True), dict[str, RunState](), dict[str, str]()
    named: dict[str, list[str]] = {}
    for line, commit in stored:
        if commit.subject.kind != "run":
            raise ArchiveInvalid(
                line, "subject", f"an export holds only commits of runs, not of a {commit.subject.kind}"
            )
        with _on_line(line):
            recorded = _read(chain, line, commit)
        if tombstone_in(recorded.commit) is not None:
            continue
        for index, event in enumerate(recorded.commit.events):
            where = f"events[{index}] ({event.type})"
            if not event.agent_path:
                _check_event(recorded, line, where, event, parents)
                _check_tools(recorded.commit.run, line, where, event, named)
        with _on_line(line):
            _fold(states.setdefault(recorded.commit.run, RunState()), line, recorded)


@contextlib.contextmanager
def _on_line(line: int) -> Iterator[None]:
    """Add the line number to a report of damage."""
    try:
        yield
    except LogCorrupted as error:
        raise ArchiveCorrupted(line, "data", error.run, error.revision, error.expected) from error


def _read(chain: Chain, line: int, stored: Stored) -> Recorded:
    """Return the commit of a line. Raises unless it is unaltered, readable and not nested too deeply."""
    if stored.data.count(b"[") + stored.data.count(b"{") > DEPTH_MAX:
        where = _too_deep(stored.data)
        if where is not None:
            raise ArchiveInvalid(line, where, f"is nested deeper than {DEPTH_MAX} levels")
    try:
        return chain.verify(stored)
    except LogCorrupted:
        try:
            decode(stored.data)
        except ValueError as error:
            if "checksum" not in str(error):
                raise ArchiveInvalid(line, "data", str(error)) from error
        raise


def _too_deep(data: bytes) -> str | None:
    """Return the field of a commit that is nested too deeply, or None."""
    try:
        commit: Any = msgspec.json.decode(data)
    except RecursionError:
        return "data"
    except msgspec.DecodeError:
        return None  # reported when the commit is decoded
    todo: list[tuple[Any, str, int]] = [(commit, "", 0)]
    while todo:
        value, where, depth = todo.pop()
        if depth > DEPTH_MAX:
            return where
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, each in inner:
            named = f"{where}.{key}" if isinstance(key, str) else f"{where}[{key}]"
            todo.append((each, named.lstrip(".") if depth < 4 else where, depth + 1))  # noqa: PLR2004 - four levels are enough to find it
    return None


def _check_event(recorded: Recorded, line: int, where: str, event: Event, parents: dict[str, str]) -> None:
    match event:
        case Submitted():
            _check_submitted(line, where, event)
        case ChildStarted():
            run, child = recorded.commit.run, event.child_run
            above: str | None = run
            while above is not None:
                if above == child:
                    raise ArchiveInvalid(line, f"{where}.child_run", f"{child!r} is above the run itself")
                above = parents.get(above)
            parents[child] = run
        case ToolCall() | ToolResult() if event.tool_call_id is None:
            raise ArchiveInvalid(line, f"{where}.tool_call_id", "is missing")
        case ModelRequested() if event.step is None and not event.phase:
            raise ArchiveInvalid(line, f"{where}.step", "is missing")
        case ToolResult():
            try:
                msgspec.convert(event.metadata, _ResultMetadata)
            except msgspec.ValidationError as error:
                raise ArchiveInvalid(line, f"{where}.metadata", str(error)) from error
        case _:
            pass


def _check_tools(run: str, line: int, where: str, event: Event, named: dict[str, list[str]]) -> None:
    """Check that a run was prepared with the tools that its configuration names; a refresh may remove some."""
    match event:
        case Submitted(kind="agent"):
            named[run] = event.config.get("tools", [])
        case Prepared():
            there = {tool.name for tool in event.tools}
            for name in named.pop(run, ()):
                if name not in there:
                    raise ArchiveInvalid(line, f"{where}.tools", f"{name!r} is missing, but the run names it")
        case ToolsRefreshRequested():
            named.pop(run, None)
        case _:
            pass


def _check_submitted(line: int, where: str, submitted: Submitted) -> None:
    if submitted.kind not in KINDS:
        raise ArchiveInvalid(
            line, f"{where}.kind", f"{submitted.kind!r:.60} is not one of {', '.join(KINDS)}"
        )
    config = submitted.config
    if submitted.kind == "agent":  # keys of a newer release are not checked
        config = {key: value for key, value in config.items() if key in AgentConfig.model_fields}
    try:
        runnable_of(submitted.kind, config)
        rules_of_run(submitted)
    except AgentConfigError as error:
        (problem, *_) = error.problems
        raise ArchiveInvalid(line, f"{where}.config.{problem.key}".rstrip("."), problem.message) from error
    except ConfigError as error:
        raise ArchiveInvalid(line, f"{where}.config", str(error)) from error
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise ArchiveInvalid(line, f"{where}.config", _message_of(error)) from error
    try:
        parse_messages([msgspec.to_builtins(message) for message in submitted.messages])
    except (TypeError, ValueError) as error:
        raise ArchiveInvalid(line, f"{where}.messages", str(error)) from error


def _fold(state: RunState, line: int, recorded: Recorded) -> None:
    """Check that the commit can follow the ones before it, by folding it."""
    first = recorded.commit.events[0] if recorded.commit.events else None
    if first is None:
        raise ArchiveInvalid(line, "events", "a commit has at least one event")
    if not state.exists and not isinstance(first, (Submitted, CancelRequested)):
        raise ArchiveInvalid(line, f"events[0] ({first.type})", "a run begins with `submitted`")
    try:
        fold_commit(state, recorded)
    except FoldlogError:
        raise
    except Exception as error:  # the fold accepts everything that foldlog writes
        types = ", ".join(event.type for event in recorded.commit.events)
        raise ArchiveInvalid(
            line, "events", f"{types}: cannot follow the commits before it: {_message_of(error)}"
        ) from error


def _message_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}" if error.args else "something it refers to is missing"
    return f"{type(error).__name__}: {error}"
