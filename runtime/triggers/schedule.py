"""A schedule as users write it, checked before it is stored, and as its register keeps it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.names import check_name
from ...eventlog.priorities import Priority, priority_of
from ..core.templates import Filled
from ..ports.json_values import as_json
from ..ports.runnable import is_runnable
from ..ports.tools import LONGEST_WAIT_S
from .calendar import Calendar, Cron, Every

Overlap = Literal["skip", "queue", "cancel", "allow"]
Missed = Literal["last", "skip", "all"]
INPUT_NAMES = ("due_at", "last_run", "schedule")
"""The names that an input may refer to, as `${due_at}`."""
CATCHUP_S_MAX = 7 * 86400
JITTER_S_MAX = 86400
SIZE_BYTES_MAX = 64 * 1024
"""The greatest size of a schedule: each of its commits has it."""
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """Starts runs of an agent at given times, by whichever worker serves the agent.

    `agent` is a registered one, by its name or as an object. Times: `cron`, five fields or `@daily` and the like, in
    the time zone `tz`; or `every`, as `15m`, aligned to the epoch or to `from_` (an aware time). `input` is a text, or
    a table that is passed as JSON, and may refer to `${due_at}`, `${last_run}` and `${schedule}`.

    `overlap`: if the last run is still open at the next time, skip the time, queue the run behind it, cancel that run,
    or allow both. `missed`: of the times that passed while no worker ran, start the last one, none, or all (at most
    100); none that is older than `catchup_s`. `jitter_s`: each run starts up to so many seconds later, by an amount
    that depends only on the name and the time. `priority` is that of its runs, as for `start`.
    """

    name: str
    agent: Any
    input: str | dict[str, Any] = ""
    cron: str | None = None
    every: str | None = None
    tz: str | None = None
    from_: str | None = None
    overlap: Overlap = "skip"
    missed: Missed = "last"
    catchup_s: float = 3600.0
    jitter_s: float = 0.0
    user: str | None = None
    metadata: dict[str, Any] = {}
    priority: Priority | int = "normal"

    @property
    def agent_name(self) -> str:
        """The name of the agent."""
        return self.agent if isinstance(self.agent, str) else str(self.agent.name)

    @property
    def calendar(self) -> Calendar:
        """Its times. Raises `ConfigError`."""
        where = f"schedule {self.name!r}"
        if (self.cron is None) == (self.every is None):
            raise ConfigError(f"{where}: give either cron or every")
        if self.cron is not None:
            if self.from_ is not None:
                raise ConfigError(f"{where}: from belongs to every, not to cron")
            if self.tz is None:
                raise ConfigError(f'{where}: cron needs its time zone, such as tz = "Europe/Oslo" or "UTC"')
            return Cron(self.cron, self.tz, where)
        if self.tz is not None:
            raise ConfigError(f"{where}: tz belongs to cron: every counts seconds")
        return Every(_seconds(self.every or "", where), _origin(self.from_, where))

    def stored(self) -> dict[str, Any]:
        """Return it as its register keeps it. Raises `ConfigError`, `TypeError` for what is not JSON."""
        given = msgspec.structs.replace(self, agent=self.agent_name)
        document: dict[str, Any] = msgspec.to_builtins(given)
        return document


def schedule_of(name: str, spec: Mapping[str, Any]) -> Schedule:
    """Return the schedule that a register keeps."""
    return msgspec.convert({**spec, "name": name}, Schedule)


def checked(schedule: Schedule) -> Schedule:
    """Return the schedule, with its agent's name. Raises `ConfigError` for what can never work."""
    given_one: object = schedule
    if not isinstance(given_one, Schedule):
        raise ConfigError(f"a schedule is a Schedule, not {given_one!r:.60}")
    name = check_name("the schedule", schedule.name)
    where = f"schedule {name!r}"
    if not isinstance(schedule.agent, str) and not is_runnable(schedule.agent):
        raise ConfigError(f"{where}: its agent must be one, or the name of one, not {schedule.agent!r:.60}")
    check_name(f"{where}: the agent", schedule.agent_name)
    limits: tuple[tuple[str, object, int], ...] = (
        ("catchup_s", schedule.catchup_s, CATCHUP_S_MAX),
        ("jitter_s", schedule.jitter_s, JITTER_S_MAX),
    )
    for what, number, most in limits:
        if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number <= most:
            raise ConfigError(f"{where}: {what} must be a number from 0 to {most}, not {number!r:.60}")
    check_priority(schedule.priority, where)
    given = _typed(schedule, where)
    if given.overlap == "skip" and given.missed == "all":
        raise ConfigError(
            f'{where}: overlap = "skip" contradicts missed = "all": runs that are started together overlap; '
            'choose overlap = "queue"'
        )
    Filled(given.input, f"{where}: input", INPUT_NAMES)
    if given.calendar.after(0.0) is None:
        raise ConfigError(f"{where}: {given.cron!r} never comes")
    return given


def check_priority(given: Priority | int, where: str) -> None:
    """Raise `ConfigError`, with the place, for what is not a priority."""
    try:
        priority_of(given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _typed(schedule: Schedule, where: str) -> Schedule:
    """Return the schedule as a register would give it back. Raises `ConfigError` for what it cannot keep."""
    try:
        stored = schedule.stored()
        as_json(stored)
        kept = msgspec.json.decode(msgspec.json.encode(stored))
        given = schedule_of(schedule.name, kept)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if (size := len(msgspec.json.encode(stored))) > SIZE_BYTES_MAX:
        raise ConfigError(f"{where}: it has {size} bytes, and must have at most {SIZE_BYTES_MAX} bytes")
    if kept != stored:
        raise ConfigError(f"{where}: it must hold only JSON values: it would change when stored")
    return given


def _seconds(text: str, where: str) -> int:
    found = _DURATION.fullmatch(text)
    length_s = int(found[1]) * _UNITS_S[found[2]] if found is not None else 0
    if not length_s:
        raise ConfigError(f"{where}: every is written 30s, 15m, 1h or 2d, not {text!r:.60}")
    if length_s > LONGEST_WAIT_S:
        raise ConfigError(f"{where}: every must be at most a century, not {text!r:.60}")
    return length_s


def _origin(given: str | None, where: str) -> float:
    if given is None:
        return 0.0
    try:
        moment = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: from is written 2026-03-01T07:00:00+01:00, not {given!r:.60}") from None
    if moment.tzinfo is None:
        raise ConfigError(f"{where}: from needs an offset, as in 2026-03-01T07:00:00+01:00")
    at = moment.timestamp()
    return at if math.isfinite(at) else 0.0
