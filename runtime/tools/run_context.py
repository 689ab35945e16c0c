"""The context of a run for users' code: who started it, with what, and its usage so far."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic

import msgspec

from ...eventlog.events import TokenUsage
from ...eventlog.parts import FilePart, files_of
from ...projections.run_state import RunState
from ..ports.runnable import DepsT_co


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run, as its log has them."""

    run_id: str
    agent_path: str
    input: str
    session: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] = {}
    usage: TokenUsage = TokenUsage()
    files: tuple[FilePart, ...] = ()


def facts_of(state: RunState) -> RunFacts:
    """Return the facts of a run that has been submitted."""
    submitted = state.submitted
    return RunFacts(
        run_id=state.run,
        agent_path=state.path,
        input=submitted.input if submitted is not None else "",
        session=submitted.session if submitted is not None else None,
        user=submitted.user if submitted is not None else None,
        metadata=submitted.metadata if submitted is not None else {},
        usage=state.usage + state.inner_usage,
        files=_files_of(state) if state.context.has_files else (),
    )


def _files_of(state: RunState) -> tuple[FilePart, ...]:
    found = {
        (file.artifact, file.url, file.name): file
        for message in state.messages
        for file in files_of(message.parts)
    }
    return tuple(found.values())


class RunContext(Generic[DepsT_co]):
    """A run, for users' code. No model can set any of it.

    `run_id`, `agent` and `agent_path`; `input` is the run's input text. `session`, `user` and `metadata` are those it
    was started with; a child run has the user and the metadata of its parent, unless it was given others. `usage` is
    that of the run, and of all runs below it, at the time the context was created. `deps` are the dependencies that
    `Registry(deps=...)` opened for the run's code; None without. `files` are those of the conversation, oldest first,
    each once: the ones that the model has before it.
    """

    def __init__(self, facts: RunFacts, deps: DepsT_co) -> None:
        self.deps = deps
        self.run_id, self.agent_path = facts.run_id, facts.agent_path
        self.agent = facts.agent_path.rpartition("/")[2]
        self.input, self.session, self.user, self.usage = facts.input, facts.session, facts.user, facts.usage
        self.files = facts.files
        self.metadata: dict[str, Any] = copy.deepcopy(dict(facts.metadata)) if facts.metadata else {}
