"""The run that the function of a workflow gets, to ask for everything that happens outside of it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import msgspec

from ....eventlog.errors import ConfigError, OperationFailed
from ....eventlog.events import CallRules, ToldAs, WaitKind
from ....eventlog.names import digest_of
from ....projections.flow_state import Asked, Ended, OperationKind
from ....projections.run_state import RunState
from ...core.approvals import ACTIONS, filled_in_form
from ...core.workflow.facts import AskPerson, AskTool, AskWait
from ...core.workflow.places import request_digest
from ...ports.json_schema import given_form, given_schema
from ...ports.json_values import NotJson, as_json, sound
from ...ports.runnable import Runnable, is_runnable
from ...ports.tools import (
    Answer,
    Signal,
    Tool,
    ToolFunction,
    check_length,
    check_signal_name,
    check_sleep,
)
from ...tools.context import Callback, ChildOptions
from .operations import Gather, Operation, Wanted, output_of, result_of
from .operations import Program as OperationProgram

OutputT = TypeVar("OutputT")
T = TypeVar("T")
P = ParamSpec("P")

Branch = Callable[["WorkflowRun"], Awaitable[Any]] | Operation[Any]
"""A branch of a `gather` or a `first`: a function of a run, or one operation."""


NAME = re.compile(r"[^/\x00-\x1f\x7f\ud800-\udfff]{1,200}")
"""The names of values, questions and changes: they are parts of places, whose branches a slash divides."""
STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""The names that a step may have."""


class RunProgram(OperationProgram, Protocol):
    """The runner of a workflow's code or table, as far as its run needs it."""

    state: RunState
    at: float

    @property
    def told(self) -> ToldAs:
        """The run whose id the code sees as its own."""
        ...

    def mark(self, place: str, name: str, value: Any) -> Any:
        """Return the value that the log has at this place; without one, store `value` and return it."""
        ...

    def is_past(self, place: str) -> bool:
        """Return whether the log has operations that come after this place."""
        ...

    def has_mark(self, place: str) -> bool:
        """Return whether the log has a value at this place."""
        ...


class KnowsTools(Protocol):
    """The workflow of a run, as far as the run needs it."""

    def tool_for(self, given: Tool | ToolFunction | str) -> Tool:
        """Return the tool that the code calls. Raises `ConfigError`."""
        ...


class WorkflowRun:
    """A run of a workflow, or a branch of it, for the workflow's code.

    Each method is a plain function that returns an awaitable: the place of the operation is given when the call is
    written, and the operation is asked for when it is awaited. All that happens comes from the log when the code is run
    again, so code between operations must depend on nothing but the input and what they returned.
    """

    def __init__(
        self, program: RunProgram, workflow: KnowsTools, path: str = "", rules: CallRules | None = None
    ) -> None:
        self._program, self._workflow, self._path, self._rules = program, workflow, path, rules
        self._counts: Counter[str] = Counter()
        self._steps: dict[str, WorkflowRun] = {}
        self._random: random.Random | None = None

    def __repr__(self) -> str:
        return f"<WorkflowRun {self.run_id} {self._path}>"

    @property
    def run_id(self) -> str:
        """The id of the run. In a fork, that of the original while the code runs over what both share."""
        return self._program.told.run

    @property
    def user(self) -> str | None:
        """The user for whom the run was started."""
        submitted = self._program.state.submitted
        return submitted.user if submitted is not None else None

    @property
    def session(self) -> str | None:
        """The session of the run; of a fork as `run_id`."""
        return self._program.told.session

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata with which the run was started."""
        submitted = self._program.state.submitted
        return submitted.metadata if submitted is not None else {}

    @property
    def random(self) -> random.Random:
        """A source of random numbers, the same whenever the code of this run is run again."""
        if self._random is None:
            place = f"{self._path}random"
            seed = self._program.mark(place, "random", digest_of(self.run_id, place))
            self._random = random.Random(str(seed))  # noqa: S311 - it is to be the same each time
        return self._random

    def now(self) -> datetime:
        """Return the time of the last commit that the code has seen, in UTC: the same whenever it is run again."""
        return datetime.fromtimestamp(self._program.at, UTC)

    def call(self, tool: Tool | ToolFunction | str, /, **arguments: Any) -> Operation[Any]:
        """Call a tool; await its result, which is JSON. A name is that of a tool of the workflow.

        Approvals, the policy, retries, postconditions and slots are those of the tool, as for an agent. Raises
        `OperationFailed` if it failed, was rejected or timed out.
        """
        found = self._workflow.tool_for(tool)
        name = found.spec.name
        given = self._json(f"the arguments of {name!r}", arguments)
        place = self._place(name)
        fact = AskTool(place=place, name=name, arguments=given, spec=found.spec, rules=self._rules)
        return self._operation(place, "tool", name, given, Wanted(fact=fact), result_of(place))

    def step(self, name: str, rules: CallRules | None = None) -> WorkflowRun:
        """Return the step of this name, for operations with a place of their own: `run.step("find").call(...)`.

        A table's steps are such steps. `rules` are those of the step's calls: an approval, attempts, a timeout, a
        postcondition; they are given with the first use of the name.
        """
        given: object = name
        if not isinstance(given, str) or not STEP_NAME.fullmatch(given):
            raise ConfigError(f"a step is named by letters, digits and '_', not {name!r:.60}")
        if name not in self._steps:
            rules = None if rules == CallRules() else rules
            self._steps[name] = WorkflowRun(self._program, self._workflow, f"{self._path}{name}/", rules)
        return self._steps[name]

    def agent(
        self,
        runnable: Runnable[OutputT],
        input: Any,  # noqa: A002 - the word of the field
        *,
        user: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Operation[OutputT]:
        """Run an agent, a swarm, a loop or a workflow as a child; await its output.

        The input is text; of a workflow, also its arguments as a mapping. `user` and `metadata` are by default those of
        this run. Raises `OperationFailed` if the child failed or was cancelled.
        """
        if not is_runnable(runnable):
            raise ConfigError(f"only agents, swarms, loops and workflows can be run, not {runnable!r:.60}")
        given = self._json("the input of a child", input)
        text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        place = self._place(runnable.name)
        options = ChildOptions(user, metadata)
        digest = request_digest(runnable.kind, runnable.name, text)
        wanted = Wanted(runnable=runnable, text=text, options=options)
        convert = output_of(place, runnable, msgspec.json.decode)
        return self._operation(place, "agent", runnable.name, digest, wanted, convert)

    def ask(
        self, message: str, schema: Mapping[str, Any] | None = None, *, name: str = ""
    ) -> Operation[Answer]:
        """Ask a person; await the answer. `schema` is the JSON Schema of an object, used as a form.

        Without a form the answer is a yes or a no. The run waits without a worker.
        """
        given: object = message
        if not isinstance(given, str):
            raise ConfigError(f"a question must be text, not {given!r:.60}")
        message = sound(given)
        form = None if schema is None else _valid(given_form, schema)
        place = self._place(_name("a question", name) if name != "" else "ask")
        fact = AskPerson(place=place, name=name or place, message=message, form=form)

        def convert(ended: Ended) -> Answer:
            return Answer(
                action=ACTIONS.get(ended.status, "cancel"),
                content=filled_in_form(form, ended.value) if ended.status == "approved" else ended.value,
                note=ended.note,
                by=ended.by,
            )

        return self._operation(place, "ask", fact.name, [message, form], Wanted(fact=fact), convert)

    def sleep(
        self,
        seconds: float = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        until: datetime | None = None,
    ) -> Operation[None]:
        """Wait for a time, or until an aware `datetime`, without a worker; for a century at most."""
        after_s, at = _valid(check_sleep, self._program.at, seconds, minutes, hours, days, until)
        return self._wait("sleep", "", None if at is not None else after_s, at, None, _nothing)

    def wait_for(
        self, name: str, *, schema: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Operation[Signal | None]:
        """Wait for a signal of this name (`RunHandle.signal`); await it, or null if none came in time.

        A signal that came before is taken at once. Data that does not fit `schema`, a JSON Schema, is refused where it
        is sent.
        """
        _valid(check_signal_name, "a signal", name)
        form = None if schema is None else _valid(given_schema, "the schema of a signal", schema)
        return self._wait("signal", name, _timeout(timeout_s), None, form, _signal)

    def callback(
        self,
        name: str,
        tell: Callable[[Callback], Any],
        *,
        schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Operation[Signal | None]:
        """Wait for the answer to a callback; await it, or null if none came in time.

        `tell` gives the callback's `url` or `token` to another system, and may be async. It is called once the wait is
        stored, and again with a further token if the worker dies before it has returned; all tokens are valid until
        one is used. If it raises, so does the operation: `OperationFailed`. Once the answer is there, a `tell` that
        still runs is cancelled. `schema` as for `wait_for`.
        """
        _valid(check_signal_name, "a callback", name)
        if not callable(tell):
            raise ConfigError(
                f"callback {name!r} takes a function that tells another system its URL, not {tell!r:.60}"
            )
        form = None if schema is None else _valid(given_schema, "the schema of a callback", schema)
        return self._wait("callback", name, _timeout(timeout_s), None, form, _answered, tell)

    def memo(self, name: str, make: Callable[[], T | Awaitable[T]]) -> Operation[T]:
        """Compute a value once; await it. `make` may be async, and is the place for input and output without a tool.

        The value is JSON. It is computed again if the worker dies before it is stored. An error is stored, too, and
        raised as `OperationFailed`.
        """
        place = self._place(_name("a memo", name))
        if not callable(make):
            raise ConfigError(f"memo {name!r} takes a function that returns its value, not {make!r:.60}")
        return self._operation(place, "memo", name, None, Wanted(make=make), result_of(place))

    def gather(self, *branches: Branch) -> Awaitable[list[Any]]:
        """Run branches at once; await the list of what they return.

        A branch is a function of a run, `lambda r: by_mail(r, text)`, or an operation. All are waited for; then the
        error of the first one that failed, in their order, is raised.
        """
        return cast("Awaitable[list[Any]]", self._gathered("gather", branches, is_race=False))

    def first(self, *branches: Branch) -> Awaitable[tuple[int, Any]]:
        """Run branches at once; await the index of the first one that ends, and what it returns.

        The others are cancelled: their code goes no further, their waits, questions and calls end. A call of an unsafe
        tool that has started is waited for. The winner is stored before anything that follows from it.
        """
        if not branches:
            raise ConfigError("first takes at least one branch")
        return cast("Awaitable[tuple[int, Any]]", self._gathered("first", branches, is_race=True))

    async def changed(self, name: str) -> bool:
        """Return true if this run reaches this place with the new code first, false if its log is past it.

        For code that is changed while runs are open: `if await run.changed("use-baz"): ... else: ...`.
        """
        place = f"{self._path}changed-{_name('a change', name)}"
        if self._program.has_mark(place):
            return bool(self._program.mark(place, name, value=True))
        if self._program.is_past(place):
            return False
        return bool(self._program.mark(place, name, value=True))

    # --- making operations --------------------------------------------------------------------------------------------

    def _place(self, name: str) -> str:
        number = self._counts[name]
        self._counts[name] += 1
        return f"{self._path}{name}#{number}"

    def _operation(
        self,
        place: str,
        kind: OperationKind,
        name: str,
        request: Any,
        wanted: Wanted,
        convert: Callable[[Ended], T],
    ) -> Operation[T]:
        return Operation(self._program, place, Asked(kind, name, request), wanted, convert)

    def _wait(
        self,
        kind: WaitKind,
        name: str,
        after_s: float | None,
        at: float | None,
        form: dict[str, Any] | None,
        convert: Callable[[str, Ended], T],
        tell: Callable[[Callback], Any] | None = None,
    ) -> Operation[T]:
        place = self._place(name or kind)
        digest = request_digest(after_s, at, form)
        fact = AskWait(place=place, kind=kind, name=name, until=at, after_s=after_s, form=form, asked=digest)
        wanted = Wanted(fact=fact, make=tell)
        return self._operation(place, kind, name, digest, wanted, partial(convert, place))

    def _gathered(self, name: str, branches: tuple[Branch, ...], *, is_race: bool) -> Gather:
        place = self._place(name)
        made: dict[int, Any] = {}
        given: tuple[Any, ...] = branches
        for index, branch in enumerate(given):
            if isinstance(branch, Operation):
                made[index] = branch
                continue
            below = WorkflowRun(self._program, self._workflow, f"{place}.{index}/", self._rules)
            made[index] = _coroutine(branch(below) if callable(branch) else None, branch, name)
        return Gather(self._program, place, made, is_race=is_race)

    def _json(self, what: str, value: Any) -> Any:
        try:
            return as_json(value)
        except NotJson as error:
            raise ConfigError(f"{what} cannot be stored as JSON: {error}") from None


def told_itself(state: RunState) -> ToldAs:
    """Return the identity that code sees while it shares no history with another run: the run's own."""
    session = state.submitted.session if state.submitted is not None else None
    return ToldAs(run=state.run, session=session, ends=0)


def _valid(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a check of an argument, and raise its `ValueError` as `ConfigError`."""
    try:
        return check(*args, **kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _timeout(timeout_s: object) -> float | None:
    return None if timeout_s is None else _valid(check_length, timeout_s)


def _name(what: str, name: object) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"the name of {what} is a text of at most 200 characters, without slashes and control characters, "
            f"not {name!r:.60}"
        )
    return name


async def _awaited(operation: Any) -> Any:
    return await operation


def _coroutine(code: Any, branch: Any, name: str) -> Coroutine[Any, Any, Any]:
    """Return the code of a branch. Raises `ConfigError` for anything else."""
    if isinstance(code, (Operation, Gather)):
        return _awaited(code)
    if isinstance(code, Coroutine):
        return code
    if isinstance(branch, Coroutine):
        branch.close()
    raise ConfigError(
        f"{name} takes functions of a run, such as lambda r: r.call(...), and operations, not {branch!r:.60}"
    )


def _nothing(_place: str, _ended: Ended) -> None:
    """Return the result of a sleep: null."""


def _answered(place: str, ended: Ended) -> Signal | None:
    if ended.status == "cancelled":  # only a callback that could not be told ends like this for the code
        raise OperationFailed(place, "error", ended.error)
    return _signal(place, ended)


def _signal(_place: str, ended: Ended) -> Signal | None:
    if ended.status != "received":
        return None
    return Signal(data=ended.value, key=ended.key, by=ended.by, at=ended.sent_at)
