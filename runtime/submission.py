"""The first commit of a run: what is to be done, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..eventlog.errors import ConfigError, PayloadTooLarge
from ..eventlog.events import ParentLink, Status, Submitted
from ..eventlog.ports import COMMIT_BYTES_MAX
from ..projections.messages import canonical_json, parse_messages, sha256_hex
from .rules import rules_of_run
from .turn import Turn

if TYPE_CHECKING:
    from .journal import Journal
    from .runnable import Runnable


CHILD = "child"
"""The executor of a run within a call of its parent: who drives the parent drives it, and nobody else (rule 19)."""


def submitted_event(
    runnable: Runnable,
    input: str,  # noqa: A002 - the word of the field
    *,
    executor: str,
    messages: Sequence[Mapping[str, Any]] = (),
    session: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    parent: ParentLink | None = None,
) -> Submitted:
    """The event that opens a run. Raises `ConfigError`, `PayloadTooLarge`."""
    if not isinstance(input, str):
        raise ConfigError(f"the input of a run is text, not {type(input).__name__}")
    try:
        history = [msgspec.to_builtins(message) for message in parse_messages(messages)]
    except ValueError as error:
        raise ConfigError(f"messages: {error}") from error
    extra = _json_object("metadata", metadata or {})
    run = {"input": input, "session": session, "metadata": extra, "agent": runnable.name}
    config = runnable.submission_config(run)
    what = {"config": config, "input": input, "messages": history, "session": session, "metadata": extra}
    size = len(canonical_json(what))
    if size > COMMIT_BYTES_MAX - 16 * 1024:
        raise PayloadTooLarge(
            "the input of the run (with messages and metadata)", size, COMMIT_BYTES_MAX - 16 * 1024
        )
    return Submitted(
        kind=runnable.kind,
        config=config,
        config_digest=sha256_hex(canonical_json(config)),
        input=input,
        input_digest=sha256_hex(canonical_json(what)),
        messages=history,
        session=session,
        metadata=extra,
        executor=executor,
        lane=None if session is None else lane_of(session),
        idempotency_key=idempotency_key,
        parent=parent,
    )


def lane_of(session: str) -> str:
    """The lane in which the runs of a session go one after the other."""
    return f"session:{session}"


def _json_object(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{what} must be a JSON object: {error}") from error
    if result != value:
        raise ConfigError(f"{what} must hold JSON values only: it changes when it is stored")
    return result


def open_turn(journal: Journal, submitted: Submitted, path: str) -> Turn:
    """The turn that opens a run in an empty journal: submitted, then `status(starting)`."""
    now = journal.log.clock.now()
    state = journal.state
    state.run, state.root, state.path, state.submitted_at = (
        journal.subject.id,
        journal.subject.root,
        path,
        now,
    )
    journal.rules = rules_of_run(submitted)
    turn = Turn(state, journal.rules, now)
    turn.add(submitted, Status(status="starting"))
    return turn
