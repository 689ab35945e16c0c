"""The error tree of foldlog. Each class says what the caller should do next.

FoldlogError                    catch this to catch every error of foldlog
├── ConfigError                 fix the named setting or argument, then call again
│   ├── ArchiveInvalid          the file is not an export of runs, or was forged (names line and field)
│   ├── AgentConfigError        fix the agent's configuration (names the key)
│   │   └── FlowError           fix the swarm's flow at the named place (text, line, column)
│   ├── UnsupportedSetting      the model does not know a setting: leave it out (setting, model)
│   └── NotRegistered           register the agent or tool with the process that runs it
├── LogUnavailable              the log cannot be reached; the same call may be repeated
│   └── AppendUnsure            an append got no reply: read, look for its append id, then decide
├── Conflict                    another writer was first: read, fold, decide again
├── LogCorrupted                the log is damaged at the named revision; nothing was skipped
│   └── ArchiveCorrupted        the export is damaged at the named line: use another copy
├── PayloadTooLarge             make the input smaller, or store it as an artifact
├── RunNotFound                 no run has this id in this namespace
│   ├── RunPurged               the run has been purged; its idempotency key stays taken
│   └── RunGone                 the run was deleted or archived on purpose (how, at, url); its key stays taken
│       └── KeyErased           the key of the run's content was erased: it can never be read again
├── KeyMissing                  the content is sealed: give this process the wrapping key, then call again
├── ScheduleNotFound            no schedule has this name in this namespace
├── AgentNotFound               no stored agent has this name, or this version
├── AgentChanged                another change of the stored agent was first: look at it, then save again (version)
├── RunConflict                 the id or idempotency key belongs to a run with another input (run_id)
├── RunFinished                 the run is over: start a new one
├── RunOpen                     the run is not over: wait for its end, or cancel it, before you erase it (run_id)
├── SessionBusy                 a run of the session is open: wait for its end, or cancel it
├── RunFailed                   the run ended with an error (error_type, message, usage, steps)
├── RunCancelled                the run was cancelled (reason)
├── OperationFailed             an operation of a workflow failed: catch it in the workflow's code (place, status)
├── ApprovalError               the approval cannot be answered like this (unknown, answered, invalid)
├── SignalError                 the signal cannot be sent like this (name, size, schema of the wait)
│   ├── CallbackExpired         the callback's time is over: ask for a new token where this one came from (ended_at)
│   ├── SignalMisfit            the data is too large, or does not fit the schema of the open wait: send other data
│   └── TooManySignals          the run has 1,000 signals that no wait has taken
└── UnsupportedByExecutor       choose another executor or switch the feature off (feature, executor, remedy)
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple


class FoldlogError(Exception):
    """The root of every error that foldlog raises by design."""


class ConfigError(FoldlogError):
    """A setting, argument or environment variable is missing or wrong."""


class ArchiveInvalid(ConfigError):
    """A file is not an archive of runs, or has content that foldlog cannot have written.

    Attributes: `line` (from 1), `field` (within the line; empty for the whole line), `reason`.
    """

    def __init__(self, line: int, field: str, reason: str) -> None:
        where = f"line {line}, {field}" if field else f"line {line} is not a line of an export"
        super().__init__(f"{where}: {reason}")
        self.line, self.field, self.reason = line, field, reason

    def of(self, file: str) -> ArchiveInvalid:
        """Return the same error with the name of the file in front."""
        named = ArchiveInvalid(self.line, self.field, self.reason)
        named.args = (f"{file}: {self}",)
        return named


class ConfigProblem(NamedTuple):
    """One problem of a configuration. `nearest`: the known name that was probably meant."""

    key: str
    """The path of the key, such as `retry.attempts`; empty for the whole configuration."""
    message: str
    nearest: str | None = None


class AgentConfigError(ConfigError):
    """An agent's configuration is wrong; the message names the key. `problems` lists all errors."""

    def __init__(self, message: str, problems: Iterable[ConfigProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (ConfigProblem("", message),)


class FlowError(AgentConfigError):
    """The text of a swarm's flow is wrong; the message shows the line, with a caret below the place.

    Attributes: `reason`, `text`, `line`, `column` (both from 1, of the text), `key` (its configuration key).
    """

    def __init__(self, reason: str, text: str, place: int, key: str = "flow") -> None:
        before = text[:place]
        begin = before.rfind("\n") + 1
        line = text[begin:].partition("\n")[0].rstrip().encode(errors="replace").decode()
        cut, end = max(0, place - begin - _BESIDE), place - begin + _BESIDE
        left, right = "... " if cut else "", " ..." if len(line) > end else ""
        shown = f"{left}{line[cut:end]}{right}"
        self.reason, self.text, self.key = reason, text, key
        self.line, self.column = before.count("\n") + 1, place - begin + 1
        self._place = place
        below = " " * len(left) + "".join(map(_blank, before[begin + cut :]))
        where = f"line {self.line}, column {self.column}: {reason}"
        super().__init__(
            f"{key}, {where}\n    {shown}\n    {below}^", [ConfigProblem(key, f"{key}: {where}")]
        )

    def within(self, key: str) -> FlowError:
        """Return the same error for a swarm that is nested at `key`."""
        return FlowError(self.reason, self.text, self._place, f"{key}.{self.key}")


_BESIDE = 100
"""The number of characters of a line that are shown on each side of the place."""


def _blank(character: str) -> str:
    """Return as much white space as the character takes on a terminal."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


class UnsupportedSetting(ConfigError):
    """A model or its provider does not support a setting. Attributes: `setting`, `model` (as provider:model)."""

    def __init__(self, setting: str, model: str, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(
            f"{model!r} does not know the setting {setting!r}{reason}; leave it out, choose another model, or set "
            "strict = false to have it left out where it is not known"
        )
        self.setting, self.model = setting, model


class NotRegistered(ConfigError):
    """An agent or tool is used that is not in this process's registry."""


class LogUnavailable(FoldlogError):
    """The log cannot be reached, or did not reply in time. Nothing is known to be lost."""


class AppendUnsure(LogUnavailable):
    """An append got no reply: it may be stored, now or later. Read before deciding again (W2)."""


class Conflict(FoldlogError):
    """The expected position no longer holds: another writer was first. Nothing was written."""


class LogCorrupted(FoldlogError):
    """A commit is missing, altered or unreadable.

    Attributes: `run`, `revision` (of the first event that cannot be trusted), `expected` (what was expected there).
    """

    def __init__(self, run: str, revision: int, expected: str) -> None:
        super().__init__(
            f"the log of run {run} is damaged at revision {revision}: {expected}. "
            "Restore the stream from a replica or an export; foldlog never skips a damaged event."
        )
        self.run, self.revision, self.expected = run, revision, expected


class ArchiveCorrupted(LogCorrupted):
    """A line of an export was altered, or lines before it are missing. Additional attributes: `line`, `field`."""

    def __init__(self, line: int, field: str, run: str, revision: int, expected: str) -> None:
        super().__init__(run, revision, expected)
        of_run = f" of run {run} at revision {revision}" if run else ""
        self.args = (
            f"line {line}, {field}: the export is damaged{of_run}: {expected}; foldlog never skips a damaged event",
        )
        self.line, self.field = line, field

    def of(self, file: str) -> ArchiveCorrupted:
        """Return the same error with the name of the file in front."""
        named = ArchiveCorrupted(self.line, self.field, self.run, self.revision, self.expected)
        named.args = (f"{file}: {self}",)
        return named


class BackupDamaged(FoldlogError):
    """A file of a backup is missing or was altered. Attributes: `path`, `problem`."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"{path}: {problem}; use another backup")
        self.path, self.problem = path, problem


class PayloadTooLarge(FoldlogError):
    """A value is too large to be stored. Attributes: `what`, `size_bytes`, `limit_bytes`."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what} has {size_bytes:,} bytes, more than the {limit_bytes:,} that one commit may hold. "
            "Make it smaller, or store it elsewhere and pass a reference."
        )
        self.what, self.size_bytes, self.limit_bytes = what, size_bytes, limit_bytes


class RunNotFound(FoldlogError):
    """There is no run with this id in the namespace."""


class RunPurged(RunNotFound):
    """The run to which a key belongs is no longer in the log. Attributes: `run_id`, `key`."""

    def __init__(self, run_id: str, key: str) -> None:
        super().__init__(
            f"run {run_id}, to which {key!r} belongs, was purged from the log. It is not started again: "
            "import it from an archive, or choose another id or key"
        )
        self.run_id, self.key = run_id, key


class ScheduleNotFound(FoldlogError):
    """There is no schedule of this name in the namespace."""


class AgentNotFound(FoldlogError):
    """There is no stored agent of this name in the namespace, or it has no such version."""


class AgentChanged(FoldlogError):
    """A stored agent is not at the version that a change was made from. Attribute: its `version`, 0 for none."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class PlanNotFound(FoldlogError):
    """There is no standing plan of this name in the namespace, or it has no such version or step."""


class PlanChanged(FoldlogError):
    """A standing plan is not at the version that a change was made from. Attribute: its `version`, 0 for none."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class RunGone(RunNotFound):
    """The run was deleted, or archived, after its end. Nothing is lost, and it never runs again.

    Attributes: `run_id`, `how` (deleted, archived), `at` (Unix seconds), `url` of the archive, `by`, `reason`.
    With `missing` the message says that the archive no longer has the copy.
    """

    def __init__(
        self,
        run_id: str,
        how: str,
        at: float,
        url: str = "",
        by: str = "",
        reason: str = "",
        *,
        missing: bool = False,
    ) -> None:
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        author = f" by {by}" if by else ""
        why = f" ({reason})" if reason else ""
        copy = f": its copy {url} is not there any more" if missing else f": its copy is {url}"
        where = copy if url else ""
        super().__init__(f"run {run_id} was {how} on {when}{author}{why}{where}")
        self.run_id, self.how, self.at, self.url = run_id, how, at, url
        self.by, self.reason = by, reason


class KeyErased(RunGone):
    """The run is there, and its content can never be read again: its key was erased. Attributes as of `RunGone`."""


class KeyMissing(FoldlogError):
    """The content is sealed, and this process cannot open it. Nothing is lost: give it the key, and try again."""


class RunConflict(FoldlogError):
    """The run id or idempotency key is taken by a run with another agent or input. Attribute: `run_id` of that run."""

    def __init__(self, message: str, *, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class RunFinished(FoldlogError):
    """The run is over; the command came too late."""


class RunOpen(FoldlogError):
    """The run, or one below it, is not over, so that it cannot be erased. Attribute: `run_id`."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is open: wait for its end, or cancel it, before its family is erased")
        self.run_id = run_id


class SessionBusy(FoldlogError):
    """A run of the session is queued, running or paused, so the session's history cannot be changed."""


class RunFailed(FoldlogError):
    """The run ended with `status(error)`.

    Attributes: `error_type`, `message`, `run_id`, `usage` (of the whole run), `steps` (completed), `output` (the last
    text of a completed step; it may be cut, and may be empty).
    """

    def __init__(
        self, error_type: str, message: str, *, run_id: str, usage: object, steps: int, output: str = ""
    ) -> None:
        super().__init__(f"run {run_id} failed with {error_type}: {message}")
        self.error_type, self.message, self.run_id = error_type, message, run_id
        self.usage, self.steps, self.output = usage, steps, output


class RunCancelled(FoldlogError):
    """The run was cancelled. Attributes: `reason` (the caller's, may be empty), `run_id`."""

    def __init__(self, reason: str, *, run_id: str) -> None:
        super().__init__(f"run {run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.reason, self.run_id = reason, run_id


class OperationFailed(FoldlogError):
    """An operation of a workflow failed: its tool or child run, or the making of a value.

    Attributes: `place` (of the operation), `status` (error, timed_out, rejected, aborted, cancelled), `reason`.
    """

    def __init__(self, place: str, status: str, reason: str) -> None:
        super().__init__(f"{place} {_STATUSES.get(status, 'failed')}: {reason}")
        self.place, self.status, self.reason = place, status, reason


_STATUSES = {"timed_out": "timed out", "rejected": "was rejected", "cancelled": "was cancelled"}


class ApprovalError(FoldlogError):
    """An approval cannot be answered like this: unknown id, already answered differently, or an invalid answer."""


class SignalError(FoldlogError):
    """A signal cannot be sent like this: a wrong name, data that is too large, or that its wait refuses.

    Nothing is stored then.
    """


class CallbackExpired(SignalError):
    """The time of a callback is over since `ended_at` (Unix seconds): its call goes on, or went on, without one."""

    def __init__(self, ended_at: float) -> None:
        at = f"{datetime.fromtimestamp(ended_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        super().__init__(
            f"the callback's time is over since {at}: it takes no answer; "
            "ask for a new token where this one came from"
        )
        self.ended_at = ended_at


class SignalMisfit(SignalError):
    """The data is too large, no JSON that can be stored, or does not fit the schema of the open wait."""


class TooManySignals(SignalError):
    """So many signals of the run are unread that it takes no more."""


class UnsupportedByExecutor(FoldlogError):
    """The executor lacks a capability that the run needs. Attributes: `feature`, `executor`, `remedy`."""

    def __init__(self, feature: str, executor: str, remedy: str) -> None:
        super().__init__(f"the executor {executor!r} has no {feature}: {remedy}")
        self.feature, self.executor, self.remedy = feature, executor, remedy
