"""Standing plans: named lists of steps with their status, which people write and runs of agents follow and update.

A plan is a register whose last commit is the whole plan, and whose commits are its versions (W63).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from ...eventlog.commits import Chain, Head, decode
from ...eventlog.errors import (
    ConfigError,
    LogUnavailable,
    PlanChanged,
    PlanNotFound,
)
from ...eventlog.events import NOBODY, Actor, PlanStatus, PlanStep, PlanUpdated, Via
from ...eventlog.names import check_name, plan_subject
from ...eventlog.ports import Log, Subject
from ...eventlog.sealing.log import SealedFamily
from ..core.submission import actor_of, check_text
from ..journal.outages import REFUSALS_MAX, Decisions, is_last, through_outages, try_append
from ..journal.register import register_write
from ..ports.tools import ToolFailed

STEPS_MAX = 200
TEXT_CHARS_MAX = 4_000
"""The most characters of a step's text, its note, and the goal of a plan: a plan is in the prompt of each run."""

Step = str | Mapping[str, Any] | PlanStep
Decide = Callable[[PlanUpdated | None], PlanUpdated | None]
"""Returns the next version; null if the plan is already so. Raises if it may not be changed so."""


class PlanVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a standing plan. `at` is Unix seconds; `run` and `call` are empty if a person changed it.

    `status` is pending before any step has begun, and completed once all steps are.
    """

    name: str
    version: int
    status: PlanStatus
    goal: str
    steps: tuple[PlanStep, ...]
    removed: bool
    note: str
    by: str
    via: Via
    request_id: str
    run: str
    call: str
    at: float


class GivenStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of a plan; without an id it gets the first free number."""

    text: str
    id: str = ""
    status: PlanStatus = "pending"
    note: str = ""

    def step(self) -> PlanStep:
        """Return the step as it is stored."""
        return PlanStep(id=self.id, text=self.text, status=self.status, note=self.note)


class StandingPlans:
    """The standing plans of a namespace. All methods raise `LogUnavailable`, `LogCorrupted`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def save(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        goal: str = "",
        version: int | None = None,
        note: str = "",
        by: str | Actor = "",
    ) -> PlanVersion:
        """Store the next version of a plan; a plan that is already so is left alone.

        A step is a text, or a table with `text` and perhaps `id`, `status` and `note`. A text that the plan has already
        keeps its step as it is. An id that is left out is the first free number. `version` is the one that the change
        was made from, 0 for a new plan; null for whichever is the last.

        Raises `ConfigError`, and `PlanChanged` if another change was first.
        """
        for what, text in (("the goal", goal), ("the note", note)):
            _check(what, text)
        actor = actor_of(by)

        def decide(before: PlanUpdated | None) -> PlanUpdated | None:
            found = steps_of(steps, before.steps if before is not None else ())
            if before and not before.removed and (before.goal, before.steps) == (goal, found):
                return None
            _expect(name, before, version)
            number = before.version + 1 if before is not None else 1
            return PlanUpdated(name=name, version=number, goal=goal, steps=found, note=note, **actor.fields)

        return await self._change(name, decide)

    async def set_step(
        self,
        name: str,
        step: str,
        status: PlanStatus,
        *,
        note: str | None = None,
        by: str | Actor = "",
        call: tuple[str, str] | None = None,
    ) -> PlanVersion:
        """Set the status of a step, and its note unless that is null. `call` are the run and the call that do it.

        Raises `ConfigError`, and `PlanNotFound` for a plan or a step that is not there.
        """
        if status not in get_args(PlanStatus):
            raise ConfigError(
                f"the status must be one of {', '.join(get_args(PlanStatus))}, not {status!r:.40}"
            )
        if note is not None:
            _check("the note", note)
        actor = actor_of(by)
        run, call_id = call or ("", "")

        def decide(before: PlanUpdated | None) -> PlanUpdated | None:
            if before is None or before.removed:
                raise self._missing(name)
            known = [each.id for each in before.steps]
            if step not in known:
                raise PlanNotFound(f"plan {name!r} has no step {step!r:.80}; it has {', '.join(known)}")
            steps = [
                msgspec.structs.replace(each, status=status, note=each.note if note is None else note)
                if each.id == step
                else each
                for each in before.steps
            ]
            if steps == before.steps and call is None:
                return None
            return PlanUpdated(
                name=name,
                version=before.version + 1,
                goal=before.goal,
                steps=steps,
                run=run,
                call=call_id,
                **actor.fields,
            )

        return await self._change(name, decide, call)

    async def remove(self, name: str, *, version: int | None = None, by: str | Actor = "") -> None:
        """Remove a plan; its versions stay, and runs that follow it fail to read it. `version` as for `save`.

        Raises `PlanNotFound`, `PlanChanged`.
        """
        actor = actor_of(by)

        def decide(before: PlanUpdated | None) -> PlanUpdated | None:
            if before is None:
                raise self._missing(name)
            if before.removed:
                return None
            _expect(name, before, version)
            return PlanUpdated(
                name=name,
                version=before.version + 1,
                goal=before.goal,
                steps=before.steps,
                removed=True,
                **actor.fields,
            )

        await self._change(name, decide)

    async def list(self) -> list[PlanVersion]:
        """Return the last version of each plan, by name; without those that are removed. May be stale."""
        found: list[PlanVersion] = []
        for shard in range(self._log.events.shards):
            async for stored in self._log.events.heads(shard, "plan"):
                commit = decode(stored.data)
                found += [
                    _version(each, commit.at) for each in commit.events if isinstance(each, PlanUpdated)
                ]
        return sorted((each for each in found if not each.removed), key=lambda each: each.name)

    async def get(self, name: str, version: int | None = None) -> PlanVersion:
        """Return a version of a plan, by default the last one. A removed plan has versions only by number.

        Raises `PlanNotFound`.
        """
        if version is None:
            return await self._last(name)
        known = await self.versions(name)
        if not 1 <= version <= len(known):
            raise PlanNotFound(f"plan {name!r} has no version {version}; it has 1 to {len(known)}")
        return known[version - 1]

    async def versions(self, name: str) -> Sequence[PlanVersion]:
        """Return all versions of a plan, oldest first, also of a removed one. Raises `PlanNotFound`."""
        _, known = await self._read(name)
        if not known:
            raise self._missing(name)
        return [_version(*each) for each in known]

    async def _change(self, name: str, decide: Decide, call: tuple[str, str] | None = None) -> PlanVersion:
        """Load, decide, append; after a conflict, or an append without an answer, decide again (W1, W2).

        A call that changed the plan already finds itself among the versions, at the position that it read (W63).
        """
        subject = self._subject(name)
        async for _ in Decisions(self._log.clock):
            head, known = await self._read(name)
            last = known[-1] if known else None
            mine = call is not None and any((each.run, each.call) == call for each, _ in known)
            event = None if mine else decide(last[0] if last is not None else None)
            if event is None and last is not None:
                return _version(*last)
            if event is None:
                raise self._missing(name)
            write = register_write(self._log, subject, head, event)
            if await try_append(self._log, write):
                return _version(event, decode(write.data).at)
        raise LogUnavailable(f"the plan {name!r} cannot be changed: other writers were first each time")

    async def _last(self, name: str) -> PlanVersion:
        """Return the last version, up to the last position: a read may be stale. Raises `PlanNotFound`."""
        subject = self._subject(name)
        for _ in range(REFUSALS_MAX):
            stored = await self._log.events.head(subject)
            if not await is_last(self._log, subject, stored.position if stored is not None else 0):
                continue
            commit = decode(stored.data) if stored is not None else None
            for each in commit.events if commit is not None else ():
                if commit is not None and isinstance(each, PlanUpdated) and not each.removed:
                    return _version(each, commit.at)
            raise self._missing(name)
        raise self._behind(name)

    async def _read(self, name: str) -> tuple[Head, Sequence[tuple[PlanUpdated, float]]]:
        """Return the head, and all versions with their times, up to the last position."""
        subject = self._subject(name)
        for _ in range(REFUSALS_MAX):
            chain, found = Chain(), list[tuple[PlanUpdated, float]]()
            async for stored in self._log.events.read(subject):
                commit = chain.verify(stored).commit
                found += [(each, commit.at) for each in commit.events if isinstance(each, PlanUpdated)]
            head = chain.head(subject)
            if await is_last(self._log, subject, head.position):
                return head, found
        raise self._behind(name)

    def _behind(self, name: str) -> LogUnavailable:
        return LogUnavailable(f"the plan {name!r} cannot be read up to its last change; try again")

    def _subject(self, name: str) -> Subject:
        return plan_subject(check_name("the plan", name), self._log.events.shards)

    def _missing(self, name: str) -> PlanNotFound:
        return PlanNotFound(f"there is no standing plan {name!r} in namespace {self._log.namespace!r}")


class PlanOfRun:
    """The plan that one run follows, for its tools: the run waits through outages of the log."""

    def __init__(self, log: Log, name: str, run: Subject, agent: str) -> None:
        self._log, self._plans, self.name = log, StandingPlans(log), name
        self._run, self._agent = run, agent

    async def text(self) -> str:
        """Return the plan as it is put into the prompt. Raises `PlanNotFound`."""
        return plan_text(await through_outages(self._log.clock, self._plans.get, self.name))

    async def read(self) -> dict[str, Any]:
        """Return the plan as it is now, as JSON. Raises `PlanNotFound`."""
        return _told(await through_outages(self._log.clock, self._plans.get, self.name))

    async def update(self, call: str, step: str, status: PlanStatus, note: str | None) -> dict[str, Any]:
        """Change a step for a call, once. Raises `PlanNotFound`, and `ToolFailed` for words of a sealed run."""
        if note and isinstance(self._log.artifacts.of(self._run.root), SealedFamily):
            raise ToolFailed("the values of this run are sealed, those of a plan are not: leave the note out")
        try:
            return _told(
                await through_outages(
                    self._log.clock,
                    self._plans.set_step,
                    self.name,
                    step,
                    status,
                    note=note,
                    by=msgspec.structs.replace(NOBODY, by=self._agent),
                    call=(self._run.id, call),
                )
            )
        except ConfigError as error:
            raise ToolFailed(str(error)) from None


def plan_text(plan: PlanVersion) -> str:
    """Return a plan as text for a model: the goal, and each step with its id and status."""
    lines = [
        f"{each.id}. [{each.status}] {each.text}{f' ({each.note})' if each.note else ''}"
        for each in plan.steps
    ]
    return "\n".join([*([plan.goal, ""] if plan.goal else []), *lines])


def _told(plan: PlanVersion) -> dict[str, Any]:
    steps: list[dict[str, Any]] = msgspec.to_builtins(plan.steps)
    return {"status": plan.status, "steps": [{"status": "pending", **each} for each in steps]}


def _version(event: PlanUpdated, at: float) -> PlanVersion:
    statuses = {each.status for each in event.steps}
    status: PlanStatus = "in_progress"
    if len(statuses) <= 1:
        status = next(iter(statuses), "pending")
    return PlanVersion(
        name=event.name,
        version=event.version,
        status=status,
        goal=event.goal,
        steps=tuple(event.steps),
        removed=event.removed,
        note=event.note,
        by=event.by,
        via=event.via,
        request_id=event.request_id,
        run=event.run,
        call=event.call,
        at=at,
    )


def steps_of(given: object, before: Sequence[PlanStep] = ()) -> list[PlanStep]:
    """Return given steps with their ids, as the plan has them after these steps. Raises `ConfigError`."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError("the steps of a plan must be a list")
    if not 0 < len(given) <= STEPS_MAX:
        raise ConfigError(f"a plan has 1 to {STEPS_MAX} steps, not {len(given)}")
    kept = {each.text: each for each in reversed(before)}
    found = [_step(each, number, kept) for number, each in enumerate(given, 1)]
    taken = [each.id for each in found if each.id]
    twice = next((each for index, each in enumerate(taken) if each in taken[:index]), None)
    if twice is not None:
        raise ConfigError(f"two steps have the id {twice!r}")
    used, free = {*taken, *(each.id for each in before)}, 1
    for index, each in enumerate(found):
        if not each.id:
            while str(free) in used:
                free += 1
            used.add(str(free))
            found[index] = msgspec.structs.replace(each, id=str(free))
    return found


def _step(given: Step, number: int, kept: Mapping[str, PlanStep]) -> PlanStep:
    """Return a step, with an empty id if it gets one yet. Raises `ConfigError`."""
    where = f"step {number}"
    if isinstance(given, str):
        found = kept.get(given, PlanStep(id="", text=given))
    elif isinstance(given, PlanStep):
        found = given
    else:
        try:
            found = msgspec.convert(given, GivenStep).step()
        except (msgspec.ValidationError, TypeError) as error:
            raise ConfigError(f"{where}: {error}") from None
    if found.id:
        check_name(f"the id of {where}", found.id)
    _check(f"the text of {where}", found.text)
    _check(f"the note of {where}", found.note)
    if not found.text.strip():
        raise ConfigError(f"{where} has no text")
    return found


def _check(what: str, text: object) -> None:
    check_text(what, text)
    if isinstance(text, str) and len(text) > TEXT_CHARS_MAX:
        raise ConfigError(f"{what} has {len(text):,} characters, more than {TEXT_CHARS_MAX:,}")


def _expect(name: str, before: PlanUpdated | None, version: int | None) -> None:
    """Raise `PlanChanged` unless the change was made from the last version."""
    last = before.version if before is not None and not before.removed else 0
    if version is None or version == last:
        return
    now = "there is no such plan yet"
    if before is not None:
        by = f" by {before.by}" if before.by else ""
        now = f"it was {'removed' if before.removed else f'changed to version {before.version}'}{by}"
    raise PlanChanged(f"plan {name!r} is not at version {version}: {now}", last)
