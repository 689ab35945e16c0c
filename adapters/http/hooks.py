"""Read the `[hooks.<name>]` tables of the configuration. All are checked before anything is served."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pydantic import Field

from ...eventlog.errors import ConfigError
from ...eventlog.names import check_name
from ...eventlog.priorities import Priority, priority_of
from ...runtime import Runtime
from ...runtime.core.templates import Filled, Template
from ...runtime.executors.installed import executor_factory
from ...runtime.ports.conditions import Condition
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.suggestions import nearest
from ...runtime.ports.tools import SIGNAL_NAME
from ..configuration.project_file import Tables, project_tables
from ..configuration.strict_tables import StrictTable
from .rates import Rate
from .signatures import HmacTable, Scheme, Verifier, verifier_of

STORED = "stored:"
"""The prefix of the name of a stored agent."""
HOOK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SECRET = re.compile(r"secret://([A-Za-z_][A-Za-z0-9_]{0,63})")
Secret = Annotated[str, Field(pattern=rf"^{_SECRET.pattern}$")]


class HookTable(StrictTable):
    """One `[hooks.<name>]` table: a webhook that starts a run of `agent`, or sends a `signal` to a `run`."""

    verify: Scheme
    secret: Secret | Annotated[list[Secret], Field(min_length=1, max_length=8)]
    hmac: HmacTable | None = None
    agent: str | None = None
    input: str | dict[str, Any] | None = None
    session: str | None = None
    executor: str = "durable"
    priority: Priority | int | None = None
    signal: str | None = None
    run: str | None = None
    data: str | dict[str, Any] | None = None
    key: str | None = None
    when: str | None = None
    rate: str | None = None


class Start(msgspec.Struct, frozen=True):
    """What a request starts: a run of this agent."""

    agent: Runnable[Any] | str
    """An agent, or the name of a stored one, which is looked up at each request and so may be saved later."""
    input: Filled
    session: Template | None
    executor: str
    priority: Priority = "normal"


class Send(msgspec.Struct, frozen=True):
    """What a request sends to a run: a signal of this name. `data` None: the whole body."""

    name: str
    run: Template
    data: Filled | None


class Hook(msgspec.Struct, frozen=True):
    """A webhook, ready to be served."""

    name: str
    scheme: Scheme
    verified: Verifier
    does: Start | Send
    key: Template | None
    when: Condition | None
    rate: Rate | None


def hook_tables(given: Mapping[str, Mapping[str, Any]] | None = None) -> Tables:
    """Return the given tables, or those of the project's configuration, by name. Raises `ConfigError`."""
    found = project_tables("hooks") if given is None else Tables("[hooks", dict(given))
    on_ends = [name for name, table in found.tables.items() if isinstance(table, dict) and "on" in table]
    for name in on_ends:  # hooks on the ends of runs are handled by workers
        del found.tables[name]
    for name in found.tables:
        if not HOOK_NAME.fullmatch(name):
            raise ConfigError(f"{found.where(name)}: a hook is named by letters, digits, '-' and '_'")
    return found


def load_hooks(runtime: Runtime, given: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Hook]:
    """Return the webhooks by name. Raises `ConfigError`, which names the table and what is wrong in it."""
    found = hook_tables(given)
    return {name: _hook(runtime, name, table, found.where(name)) for name, table in found.tables.items()}


def _hook(runtime: Runtime, name: str, given: Any, where: str) -> Hook:
    table = HookTable.read(given, where)
    secrets = [table.secret] if isinstance(table.secret, str) else table.secret
    if table.hmac is not None and table.verify != "hmac":
        raise ConfigError(f'{where}.hmac: only verify = "hmac" has this table, not {table.verify!r}')
    return Hook(
        name=name,
        scheme=table.verify,
        verified=verifier_of(table.verify, [_secret(each, where) for each in secrets], table.hmac, where),
        does=_does(runtime, table, where),
        key=_template(table.key, f"{where}.key"),
        when=None if table.when is None else Condition(table.when, f"{where}.when", ["body"]),
        rate=None if table.rate is None else Rate(table.rate, f"{where}.rate"),
    )


def _does(runtime: Runtime, table: HookTable, where: str) -> Start | Send:
    if (table.agent is None) == (table.signal is None):
        raise ConfigError(f"{where}: a hook has either an agent, to start a run, or a signal, to send one")
    if table.signal is not None:
        _check_unset(table, where, "signal", "input", "session", "priority")
        if not SIGNAL_NAME.fullmatch(table.signal):
            raise ConfigError(f"{where}.signal: a signal is named by letters, digits, '.', '_' and '-'")
        if table.run is None:
            raise ConfigError(f'{where}: a signal needs its run, such as run = "${{body.metadata.run}}"')
        data = None if table.data is None else Filled(table.data, f"{where}.data", "body")
        return Send(table.signal, Template(table.run, f"{where}.run", "body"), data)
    _check_unset(table, where, "agent", "run", "data")
    if table.input is None:
        raise ConfigError(f'{where}: an agent needs its input, such as input = "${{body.text}}"')
    session = _template(table.session, f"{where}.session")
    start = start_of(runtime, table.agent or "", table.input, session, table.executor, where, "body")
    return msgspec.structs.replace(start, priority=_priority(table.priority, where))


def _priority(given: Priority | int | None, where: str) -> Priority:
    try:
        return priority_of("normal" if given is None else given)
    except ConfigError as error:
        raise ConfigError(f"{where}.priority: {error}") from None


def start_of(
    runtime: Runtime,
    agent: str,
    given: str | dict[str, Any],
    session: Template | None,
    executor: str,
    where: str,
    root: str,
) -> Start:
    """Return the run that a hook's requests start. Raises `ConfigError`."""
    known, stored = runtime.registry.agents, agent.removeprefix(STORED)
    if stored != agent:
        check_name(f"{where}.agent: the stored agent", stored)
    elif agent not in known:
        raise ConfigError(
            f"{where}.agent: the registry has no agent {agent!r}{nearest(agent, known)} "
            f"(a stored one is written {STORED}NAME)"
        )
    try:
        executor_factory(executor)
    except ConfigError as error:
        raise ConfigError(f"{where}.executor: {error}") from None
    return Start(known.get(agent, stored), Filled(given, f"{where}.input", root), session, executor)


def _check_unset(table: HookTable, where: str, kind: str, *names: str) -> None:
    for name in names:
        if getattr(table, name) is not None:
            raise ConfigError(f"{where}: a hook with {kind!r} has no {name!r}")


def _template(text: str | None, where: str) -> Template | None:
    return None if text is None else Template(text, where, "body")


def _secret(reference: str, where: str) -> str:
    """Resolve `secret://NAME` to the value of the environment variable NAME. Raises `ConfigError`."""
    found = _SECRET.fullmatch(reference)
    name = found[1] if found is not None else ""
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(f"{where}.secret: the environment variable {name} is not set")
    return value
