"""The port to memory: what a run is told of earlier ones.

A backend is found by its name: in `Registry(memories=...)`, then in the entry point group `foldlog.memory` (a function
that is given the log and returns a store). foldlog itself installs `log` there (`log_memory`).

A run's memory is that of its agent's configuration. An agent without one remembers the session of the run, unless the
run was handed `messages` of its own. `metadata["memory"]` overrides both, and the keys that it names say the scope:

    {"scope": {"user_id": "ada", "session_id": "tour-7"}, "backend": "log"}      # each key may be left out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import Submitted
from ...eventlog.ports import Log
from ...projections.messages import Message

Scope = Literal["user", "session", "task"]
LOG_BACKEND = "log"
NO_SCOPE = "none"
"""In an agent's `memory` table: its runs remember nothing, not even their session."""


class MemoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Who remembers. `run` is the run that asks, which is at the head of the lane of `own_session` if it has one."""

    run: str
    agent: str
    own_session: str | None = None
    session: str | None = None
    user: str | None = None


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing remembered, as messages that stand before the input; every tool call has its result.

    `at` is in Unix seconds. `id` names it within its backend: of `log` it is the earlier run.
    """

    id: str
    messages: tuple[Message, ...]
    at: float = 0.0


class MemoryStore(Protocol):
    """Gives back what is known under some keys."""

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """The newest `limit` items, oldest first. No two calls in them share an id.

        Raises `ConfigError` if a key that the scope needs is missing, `LogUnavailable`, `LogCorrupted`.
        """
        ...

    async def aclose(self) -> None:
        """Give back what is held open. Safe to repeat."""
        ...


MemoryFactory = Callable[[Log], MemoryStore]
"""What an entry point of the group `foldlog.memory` names."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks of which backend."""

    backend: str
    scope: Scope
    keys: MemoryKeys


_Key = Annotated[str, msgspec.Meta(min_length=1)]
"""Not empty: all whom nobody named would share one memory."""


class _Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: _Key | None = None
    session_id: _Key | None = None


class _Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: _Keys | None = None
    backend: str | None = None


def memory_use(submitted: Submitted, run: str) -> MemoryUse | None:
    """What the run is to remember; null if nothing.

    Raises `ConfigError` for metadata of another shape, or a scope whose key is nowhere.
    """
    if submitted.kind != "agent":
        return None
    configured = _configured(submitted)
    override = _override(submitted.metadata.get("memory"))
    if override is None and not configured:
        return None
    named = (override and override.scope) or _Keys()
    keys = MemoryKeys(
        run=run,
        agent=str(submitted.config.get("name", "")),
        own_session=submitted.session,
        session=named.session_id if named.session_id is not None else submitted.session,
        user=named.user_id,
    )
    scope = _scope(configured.get("scope"), named, keys)
    check_keys(scope, keys)
    backend = (override and override.backend) or configured.get("backend", LOG_BACKEND)
    return MemoryUse(backend=backend, scope=scope, keys=keys)


def _configured(submitted: Submitted) -> Mapping[str, Any]:
    """The agent's table; without one, a session is remembered unless the caller handed its own history over."""
    table: Mapping[str, Any] | None = submitted.config.get("memory")
    if table is None:
        carried = submitted.session is not None and not submitted.messages
        return {"scope": "session"} if carried else {}
    return {} if table.get("scope") == NO_SCOPE else table


def _scope(configured: Scope | None, named: _Keys, keys: MemoryKeys) -> Scope:
    """The agent's, unless the run names another key than that scope needs; a session goes before a user."""
    given = {"session": named.session_id, "task": named.session_id, "user": named.user_id}
    if configured is not None and (given[configured] is not None or named == _Keys()):
        return configured
    if named != _Keys():
        return "session" if named.session_id is not None else "user"
    return "user" if keys.session is None else "session"


def check_keys(scope: Scope, keys: MemoryKeys) -> None:
    """Raises `ConfigError` that says how to give the key that the scope needs."""
    if scope == "user" and keys.user is None:
        raise ConfigError(
            "memory of scope 'user' needs a user: start the run with "
            'metadata={"memory": {"scope": {"user_id": ...}}}'
        )
    if scope != "user" and keys.session is None:
        raise ConfigError(f"memory of scope {scope!r} needs a session: start the run with session=...")


def _override(metadata: Any) -> _Override | None:
    if metadata is None:
        return None
    try:
        return msgspec.convert(metadata, _Override)
    except msgspec.ValidationError as error:
        raise ConfigError(f"metadata['memory']: {error}") from None
