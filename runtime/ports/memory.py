"""The port to memory: what a run remembers of earlier ones.

A backend is found by its name: in `Registry(memories=...)`, then in the entry point group `foldlog.memory` (a function
of the log that returns a store). foldlog itself installs `log` there (`log_memory`).

A run uses the memory that its agent configures. Without that configuration it remembers the session of the run, unless
the run was given `messages` of its own. `metadata["memory"]` overrides both; the keys that it contains select the
scope:

    {"scope": {"user_id": "ada", "session_id": "tour-7"}, "backend": "log"}      # each key may be left out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import Submitted
from ...eventlog.names import lane_name
from ...eventlog.ports import Log
from ...projections.messages import Message

Scope = Literal["user", "session", "task"]
LOG_BACKEND = "log"
NO_SCOPE = "none"
"""In an agent's `memory` table: its runs remember nothing, not even their session."""


class MemoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a lookup. `run` is the run that recalls, which heads the lane of `own_session` if it has one."""

    run: str
    agent: str
    own_session: str | None = None
    lane: str | None = None
    """The name of the run's lane in its session; null for the lane without a name."""
    session: str | None = None
    user: str | None = None


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One remembered item, as messages to put before the input; every tool call has its result.

    `at` is in Unix seconds. `id` identifies the item within its backend; for `log` it is the earlier run.
    """

    id: str
    messages: tuple[Message, ...]
    at: float = 0.0


class MemoryStore(Protocol):
    """Recalls the items stored under some keys."""

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """Return the newest `limit` items, oldest first. No two calls in them have the same id.

        Raises `ConfigError` if a key that the scope needs is missing, `LogUnavailable`, `LogCorrupted`.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources. Safe to repeat."""
        ...


MemoryFactory = Callable[[Log], MemoryStore]
"""The type of the entry points in the group `foldlog.memory`."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that a run uses: backend, scope and keys."""

    backend: str
    scope: Scope
    keys: MemoryKeys


_Key = Annotated[str, msgspec.Meta(min_length=1)]
"""Not empty, or all runs without a key would share one memory."""


class _Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: _Key | None = None
    session_id: _Key | None = None


class _Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: _Keys | None = None
    backend: str | None = None


def memory_use(submitted: Submitted, run: str) -> MemoryUse | None:
    """Return the memory that the run uses; null for none.

    Raises `ConfigError` for malformed metadata, or a scope whose key is missing.
    """
    if submitted.kind != "agent":
        return None
    configured = _configured(submitted)
    override = _override(submitted.metadata.get("memory"))
    if not configured and (override is None or submitted.parent is not None):
        return None  # a child's metadata is its parent's, and speaks of the parent's memory
    named = (override and override.scope) or _Keys()
    keys = MemoryKeys(
        run=run,
        agent=str(submitted.config.get("name", "")),
        own_session=submitted.session,
        lane=lane_name(submitted.lane),
        session=named.session_id if named.session_id is not None else submitted.session,
        user=named.user_id if named.user_id is not None else submitted.user,
    )
    scope = _scope(configured.get("scope"), named, keys)
    check_keys(scope, keys)
    backend = (override and override.backend) or configured.get("backend", LOG_BACKEND)
    return MemoryUse(backend=backend, scope=scope, keys=keys)


def _configured(submitted: Submitted) -> Mapping[str, Any]:
    """Return the agent's table; without one, sessions are remembered unless the caller passed messages."""
    table: Mapping[str, Any] | None = submitted.config.get("memory")
    if table is None:
        has_session = submitted.session is not None and not submitted.messages
        return {"scope": "session"} if has_session else {}
    return {} if table.get("scope") == NO_SCOPE else table


def _scope(configured: Scope | None, named: _Keys, keys: MemoryKeys) -> Scope:
    """Return the agent's scope, unless the run's keys select another one; a session key wins over a user key."""
    given = {"session": named.session_id, "task": named.session_id, "user": named.user_id}
    if configured is not None and (given[configured] is not None or named == _Keys()):
        return configured
    if named != _Keys():
        return "session" if named.session_id is not None else "user"
    return "user" if keys.session is None else "session"


def check_keys(scope: Scope, keys: MemoryKeys) -> None:
    """Raise `ConfigError`, which says how to pass the key that the scope needs."""
    if scope == "user" and keys.user is None:
        raise ConfigError("memory of scope 'user' needs a user: start the run with user=...")
    if scope != "user" and keys.session is None:
        raise ConfigError(f"memory of scope {scope!r} needs a session: start the run with session=...")


def _override(metadata: Any) -> _Override | None:
    if metadata is None:
        return None
    try:
        return msgspec.convert(metadata, _Override)
    except msgspec.ValidationError as error:
        raise ConfigError(f"metadata['memory']: {error}") from None
