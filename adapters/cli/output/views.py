"""Show a run as it happens, as text or as JSON: a view takes the events of a stream one by one.

As text, the model's output is data and goes to stdout piece by piece, as it comes. If it is discarded, stderr says so
and the text begins again on a new line; with `--quiet`, a step's text is written once it is final. Everything else goes
to stderr, including retries, takeovers and waits, each on a line with its reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from rich.cells import cell_len

from ....eventlog.events import (
    ENGINE,
    QUESTION,
    ApprovalRequested,
    ApprovalResolved,
    Budget,
    ChildFinished,
    ChildStarted,
    Claimed,
    Context,
    Custom,
    Error,
    Event,
    FileMade,
    LeftToOthers,
    McpProgress,
    MessageInjected,
    ModelFailed,
    OutputRejected,
    Parked,
    RalphIteration,
    RalphStop,
    Reasoning,
    Released,
    Restored,
    ResultRecorded,
    Status,
    Step,
    Text,
    TextReset,
    ToolAttemptFailed,
    ToolCall,
    ToolCallDelta,
    ToolPartial,
    ToolResult,
    Usage,
    WaitEnded,
    WaitStarted,
    is_terminal,
    to_json,
)
from ....projections.call_texts import PARTIAL, made_file
from ....projections.content_files import files_in
from ....projections.run_state import RunState
from ....projections.timeline.rows import Labels
from ....projections.timeline.words import CUT_OFF, cut_words, engine_words, result_words, token_words
from ..settings import Settings
from .content import told_files
from .escaping import clean, exact, one_line, shown, visible
from .forms import answer_template
from .terminal import Part, Screen
from .times import moment

DIM, CALL, GOOD, BAD, ASK = "dim", "cyan", "green", "red", "yellow"


PIPED_VALUE_MAX = 2_000
"""Maximum length in characters of a value on a line, also in a file."""
CALL_LINES_MAX = 40
"""Maximum number of lines of a call's arguments; an approval shows all of them."""
_BELOW = "    "


class View(Protocol):
    """Shows the events of a stream."""

    def begin(self, state: RunState) -> None:
        """Show the run as it is at the beginning."""
        ...

    def show(self, event: Event) -> None:
        """Show the next event of the stream."""
        ...

    def end(self, state: RunState) -> None:
        """Show the end of the stream. The run has ended too, unless the user stopped waiting for it."""
        ...


class JsonView:
    """Prints each event as a JSON object on a line of its own."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, state: RunState) -> None:
        """Print nothing: the events have it."""

    def show(self, event: Event) -> None:
        """Print one line; the executors' own events are left out."""
        if not isinstance(event, ENGINE):
            self._screen.json_line(to_json(event))

    def end(self, state: RunState) -> None:
        """Print nothing: the last event has it."""


class ReadableView:
    """Prints text as it comes, other events on lines of their own. `detailed` adds steps, usage and reasoning."""

    def __init__(self, screen: Screen, settings: Settings, *, detailed: bool) -> None:
        self._screen, self._settings, self._detailed = screen, settings, detailed
        self._run = self._path = ""
        self._text: dict[tuple[str, str, str], str] = {}
        self._labels = Labels()
        self._engine = _Engine()
        self._answered: set[str] = set()
        self._is_cut = False
        """The text of the run was cut at the length limit, and may continue in the next step."""

    def begin(self, state: RunState) -> None:
        """Print the run's id and agent."""
        self._run, self._path = state.run, state.path
        self._answered = {id_ for id_, approval in state.approvals.items() if not approval.pending}
        self._screen.say((f"run {state.run}  agent {state.agent}", DIM))

    def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, (Text, Reasoning)):
            self._piece(event)
        elif isinstance(event, TextReset):
            self._reset(event)
        else:
            if isinstance(event, (Usage, ToolCall)) or is_terminal(event):
                self._reply_complete(event)
            self._line(event)

    def end(self, state: RunState) -> None:
        """Print the summary."""
        self._screen.end_line()
        if state.kind not in {"", "agent"} and state.status == "completed":  # no step has shown its output
            self._screen.write(clean(state.output))
            self._screen.end_line()
        self._screen.say(*summary(state))

    # --- text -------------------------------------------------------------------------------------------------------

    def _is_own(self, event: Event) -> bool:
        return event.run_id == self._run and event.agent_path in {"", self._path}

    def _streams(self, event: Event, channel: str) -> bool:
        return channel == "text" and not self._holds_back and self._is_own(event)

    @property
    def _holds_back(self) -> bool:
        return self._screen.quiet and not self._screen.live

    def _piece(self, event: Text | Reasoning) -> None:
        channel = event.type
        place = (event.run_id, event.agent_path, channel)
        self._text[place] = self._text.get(place, "")[: event.offset] + event.text
        if self._streams(event, channel):
            self._begin_text()
            self._screen.write(clean(event.text))
        if event.step is None:
            self._reply_complete(event)

    def _reset(self, event: TextReset) -> None:
        place = (event.run_id, event.agent_path, event.channel)
        kept = self._text.get(place, "")[: event.offset]
        self._text[place] = kept
        if self._streams(event, event.channel):
            what = "this text was not stored" if event.cause == "discarded" else "the model starts again"
            self._screen.end_line()
            self._screen.say((f"({what})", DIM))
            self._screen.write(clean(kept))

    def _reply_complete(self, event: Event) -> None:
        """Print the text of this step, which is final now, unless it was printed as it came."""
        for channel in ("reasoning", "text"):
            text = self._text.pop((event.run_id, event.agent_path, channel), "")
            if not text:
                continue
            if channel == "reasoning":
                if self._detailed:
                    self._screen.say(*self._prefix(event), (clean(text), f"{DIM} italic"))
            elif self._is_own(event):
                if self._holds_back:
                    self._begin_text()
                    self._screen.write(clean(text))
                self._end_text(event)
            else:
                self._screen.say(*self._prefix(event), (clean(text), DIM))

    def _begin_text(self) -> None:
        if self._is_cut:  # the model did not continue the text
            self._screen.end_line()
            self._is_cut = False

    def _end_text(self, event: Event) -> None:
        """End the line of the text, unless the model may continue it."""
        self._is_cut = isinstance(event, Usage) and event.finish_reason == "length"
        if not self._is_cut:
            self._screen.end_line()

    # --- lines ------------------------------------------------------------------------------------------------------

    def _prefix(self, event: Event) -> list[Part]:
        if self._is_own(event):
            return []
        above, slash, name = event.agent_path.rpartition("/")
        label = self._labels.of(event.run_id, name) if event.agent == name else name
        return [(f"[{one_line(f'{above}{slash}{label}')}] ", DIM)]

    def _child(self, event: ChildStarted | ChildFinished) -> list[Part]:
        if isinstance(event, ChildFinished):
            label = self._labels.of(event.child_run, "child")
            return [(f"↳ {one_line(label)} {event.status}  {event.child_run}", DIM)]
        label = self._labels.add(event)
        return [(f"↳ {one_line(label)} started  {event.child_run}", DIM)]

    def _line(self, event: Event) -> None:
        if isinstance(event, ChildStarted | ChildFinished):
            parts = self._child(event)
        elif isinstance(event, ENGINE):
            if isinstance(event, OutputRejected) and event.reason == "length" and self._is_own(event):
                self._is_cut = False
            parts = self._engine.parts(event, detailed=self._detailed)
        else:
            self._engine.see(event)
            parts = self._parts(event)
        if parts:
            asks = isinstance(event, ApprovalRequested) and event.approval_id not in self._answered
            self._screen.say(*self._prefix(event), *parts, important=asks)

    def _parts(self, event: Event) -> list[Part]:  # noqa: C901, PLR0912 - one case each
        match event:
            case ToolCall():
                return self._call(event)
            case McpProgress():
                total = "" if event.total is None else f"/{event.total:g}"
                return [(f"  · {event.progress:g}{total} {one_line(event.message)}", DIM)]
            case ToolPartial():
                return [(f"  · so far: {shown(event.value, 200)}", DIM)]
            case ToolResult():
                return self._result(event)
            case WaitStarted():
                until = f" until {moment(event.until)}" if event.until is not None else ""
                name = f"{event.kind} {one_line(event.name)}".rstrip()
                return [(f"waits for {name if event.name else 'a time'}{until}", ASK)]
            case WaitEnded():
                by = f" by {one_line(event.by)}" if event.by else ""
                data = [(f"  {shown(event.data, 200)}", DIM)] if event.data is not None else []
                return [(f"{event.outcome.replace('_', ' ')}{by}", ASK), (f"  {event.wait_id}", DIM), *data]
            case FileMade():
                return [(f"made {one_line(str(made_file(event)))}", CALL), (f"  {event.artifact}", DIM)]
            case ApprovalRequested():
                return self._approval(event)
            case ApprovalResolved():
                by = f" by {one_line(event.by)}" if event.by else ""
                note = f": {one_line(event.note)}" if event.note else ""
                edited = self._below({"with": event.arguments}) if event.arguments is not None else []
                return [(f"{event.decision}{by}{note}", ASK), (f"  {event.approval_id}", DIM), *edited]
            case Status():
                return self._status(event)
            case _ if self._detailed:
                return detail_parts(event)
            case Context() | Budget() | MessageInjected() | Custom():
                return detail_parts(event)
            case RalphIteration() | RalphStop():
                return detail_parts(event)
            case _:
                return []

    def _call(self, event: ToolCall) -> list[Part]:
        """Return the call with its exact arguments, on the same line if they fit, else below it."""
        arguments = event.arguments if event.raw_arguments is None else event.raw_arguments
        by = [(f" by the {event.executed_by}", DIM)] if event.executed_by else []
        head: list[Part] = [("→ ", CALL), (one_line(event.tool_name), f"bold {CALL}"), *by]
        if (line := self._beside(arguments)) is not None:
            return [*head, " ", line]
        lines = self._screen.lines(arguments, len(_BELOW), data=False)
        more = len(lines) - CALL_LINES_MAX
        show = self._settings.command("runs", "show", names=[event.run_id])
        rest: list[Part] = [(f"\n{_BELOW}… {more} more lines: {show}", DIM)] if more > 0 else []
        return [*head, *(f"\n{_BELOW}{line}" for line in lines[:CALL_LINES_MAX]), *rest]

    def _beside(self, value: Any, taken: int = 24) -> str | None:
        """Return the exact value if it is one line that fits next to `taken` other characters."""
        lines = self._screen.lines(value, data=False)
        return lines[0] if len(lines) == 1 and cell_len(lines[0]) <= self._screen.width - taken else None

    def _below(self, named: Mapping[str, Any]) -> list[Part]:
        """Return the exact values, each below its name."""
        shown_: list[Part] = []
        for name, value in named.items():
            if value:
                lines = self._screen.lines(value, len(_BELOW) + 2, data=False)
                shown_ += [(f"\n{_BELOW}{name}", DIM), *(f"\n{_BELOW}  {line}" for line in lines)]
        return shown_

    def _cut(self, value: Any, taken: int = 24) -> str:
        return shown(value, max(40, min(self._screen.width, PIPED_VALUE_MAX) - taken))

    def _result(self, event: ToolResult) -> list[Part]:
        name = f"{one_line(event.tool_name)} "
        took = ("" if event.executed_by else f"{event.duration_ms / 1000:.1f} s  ", DIM)
        if event.success:
            cut_off = CUT_OFF if PARTIAL in event.metadata else ""
            told = cut_off + self._cut(result_words(event), len(name) + len(cut_off) + 16)
            return [("← ", GOOD), (name, GOOD), took, (told, DIM)]
        return [("✗ ", BAD), (name, BAD), took, (self._cut(event.error or "failed", len(name) + 16), BAD)]

    def _approval(self, event: ApprovalRequested) -> list[Part]:
        if event.approval_id in self._answered:
            return [(f"? {one_line(event.tool_name or event.kind)} waited for an answer", ASK)]
        lost = event.kind == "unverifiable"
        what = "was started, and its outcome is unknown" if lost else "waits for an approval"
        if event.kind == QUESTION:
            what = "waits for an answer"
        answers = answers_to(self._settings, event.approval_id, event.kind, event.arguments)
        asked: Any = event.arguments
        if event.kind == QUESTION:
            asked = str(event.arguments.get("message"))
            beside = visible(asked) if "\n" not in asked else None
        else:
            beside = self._beside(asked, len(event.tool_name) + len(what) + 24)
        whole = beside is not None and not event.injected_args
        return [
            ("? ", ASK),
            (one_line(event.tool_name or event.kind), f"bold {ASK}"),
            *([f" {beside}"] if whole else []),
            *([f" ({one_line(event.reason)})"] if event.reason else []),
            *([] if whole else self._below({"arguments": asked, "injected": event.injected_args})),
            *([] if whole else ["\n "]),
            *_how_to_answer(self._settings, what, answers),
        ]

    def _status(self, event: Status) -> list[Part]:
        if event.status == "paused" and event.reason in {"manual", "policy", "takeover"}:
            resume = self._settings.command("runs", "resume", names=[event.run_id])
            return [(f"paused ({event.reason}); resume it with ", ASK), resume]
        if event.status == "resumed" and self._detailed:
            return [("resumed", DIM)]
        return []


class _Engine:
    """Describes the executors' own events: why a run waits, or repeats something."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._tools: dict[tuple[str, str | None], str] = {}

    def see(self, event: Event) -> None:
        """Remember the names of calls."""
        if isinstance(event, ToolCall):
            self._tools[event.run_id, event.tool_call_id] = event.tool_name

    def parts(self, event: Event, *, detailed: bool) -> list[Part]:  # noqa: C901 - one case for each event
        """Return the line for an event, if any: retries, takeovers and waits always, others if `detailed`."""
        match event:
            case ModelFailed() if event.retry_at is not None or event.next_model:
                what = f"{event.phase or 'model'} attempt {event.attempt} failed"
                then = f"falling back to {one_line(event.next_model)}" if event.next_model else _again(event)
                return [(f"↻ {what}: {event.error_type}: {one_line(event.error)}; {then}", ASK)]
            case ToolAttemptFailed():
                name = one_line(self._tools.get((event.run_id, event.tool_call_id), "tool"))
                return [
                    (
                        f"↻ {name} attempt {event.attempt} failed: {one_line(event.error)}; {_again(event)}",
                        ASK,
                    )
                ]
            case OutputRejected(reason="length"):  # the text continues
                told = "↻ the answer was cut at the length limit, and continues"
                return [(told, ASK)] if detailed else []
            case OutputRejected():
                return [
                    (f"↻ the answer was rejected, and is requested again: {one_line(event.message)}", ASK)
                ]
            case Claimed():
                return self._claimed(event, detailed=detailed)
            case LeftToOthers():
                return [(f"waits for a worker other than {event.worker}: {one_line(event.reason)}", ASK)]
            case Restored():
                self._owners.pop(event.run_id, None)
                return [("restored from a backup; waits for `foldlog runs resume`", ASK)]
            case Released():
                owner = self._owners.pop(event.run_id, "its worker")
                return [(f"released by {owner} ({one_line(event.reason)}); waits for a worker", ASK)]
            case Parked(reason="timer", due_at=float() as due_at):
                self._owners.pop(event.run_id, None)
                return [(f"waits until {moment(due_at)}", ASK)]
            case Parked():
                self._owners.pop(event.run_id, None)
                return [(f"waits: {event.reason}", DIM)] if detailed else []
            case _:
                row = engine_row(event) if detailed else None
                return [(f"{row[0]}  {row[1]}", DIM)] if row is not None else []

    def _claimed(self, event: Claimed, *, detailed: bool) -> list[Part]:
        before = self._owners.get(event.run_id)
        self._owners[event.run_id] = event.worker
        epoch = f"(epoch {event.epoch})"
        if before is not None:
            return [(f"taken over by {event.worker} from {before} {epoch}", ASK)]
        return [(f"driven by {event.worker} {epoch}", DIM)] if detailed else []


def _again(event: ModelFailed | ToolAttemptFailed) -> str:
    return f"retry in {max(0.0, (event.retry_at or event.at) - event.at):.1f} s"


def engine_row(event: Event) -> tuple[str, str] | None:
    """Describe an engine event in a word and a line; None if it is not shown."""
    words = engine_words(event)
    return None if words is None else (words[0], one_line(words[1]))


def detail_parts(event: Event) -> list[Part]:  # noqa: C901, PLR0912 - one case for each event
    """Return a short line for an event."""
    match event:
        case Step():
            return [(f"— step {event.step} {event.status}", DIM)]
        case Usage():
            cost = f", {event.cost_usd} USD" if event.cost_usd else ""
            told = f"  {token_words(event.usage)}{cost}  {one_line(event.model)}"
            return [(told, DIM), (cut_words(event.finish_reason), BAD)]
        case ResultRecorded():
            return [(f"{one_line(event.tool_name)} {exact(event.arguments)}", DIM)]
        case ChildStarted():
            return [(f"↳ {one_line(event.name)} started  {event.child_run}", DIM)]
        case ChildFinished():
            return [(f"↳ {event.status}  {event.child_run}", DIM)]
        case Error():
            return [(f"{event.error_type}: {one_line(event.error)}", BAD)]
        case MessageInjected():
            return [
                ("message: ", DIM),
                f"{one_line(event.content)}{told_files(files_in(event))}".strip(),
            ]
        case Context():
            return [(f"context {event.action}: {event.before_count} → {event.after_count} messages", DIM)]
        case Budget():
            return [(f"budget {event.kind} ({event.scope}): {event.used:g} of {event.limit:g}", ASK)]
        case Custom():
            return [(f"{one_line(event.name)} ", DIM), (shown(event.data, 200), DIM)]
        case RalphIteration():
            scores = ", ".join(f"{one_line(name)} {score:g}" for name, score in event.scores.items())
            return [(f"iteration {event.iteration} {event.status}  {scores}".rstrip(), DIM)]
        case RalphStop():
            return [(f"stopped: {event.stop_type} {one_line(event.reason)}", DIM)]
        case Status():
            return [(f"{event.status} {one_line(event.reason)}", DIM)]
        case ToolCallDelta():
            return []
        case _:
            return [(event.type, DIM)]


def answers_to(
    settings: Settings, approval_id: str, kind: str, arguments: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the commands that answer an approval of this kind, for these arguments."""
    approve_it = settings.command("approvals", "approve", approval_id)
    if kind == "unverifiable":
        return [f"{approve_it} --outcome {outcome}" for outcome in ("retry", "succeeded", "failed")]
    form = arguments.get("schema") if kind == QUESTION else None
    if kind == "budget":  # raising it by the amount used leaves as much as the old limit
        amount = next((str(arguments[key]) for key in ("used", "limit") if arguments.get(key)), "")
        amount = amount if amount.strip("0.") else "1"
        approve_it += f""" --arguments '{{"raise": {amount}}}'"""
    if isinstance(form, Mapping):
        approve_it = f"{approve_it} --arguments {shlex.quote(answer_template(form))}"
    return [approve_it, settings.command("approvals", "reject", approval_id)]


def _how_to_answer(settings: Settings, what: str, answers: list[str]) -> list[Part]:
    if settings.in_memory:
        why = "it cannot be answered, since the log is in the memory of this process: choose another --server"
        return [(f" {what}; {why}", ASK)]
    return [(f" {what}; answer it with", ASK), *(f"\n    {answer}" for answer in answers)]


def summary(state: RunState) -> list[Part]:
    """Return the state of the run in a line."""
    style = {"completed": GOOD, "error": BAD, "cancelled": BAD}.get(state.status, ASK)
    reason = state.terminal.reason if state.terminal is not None else state.paused or ""
    count, unit = state.steps_completed, "step"
    if state.flow is not None:
        count, unit = len(state.flow.order), "operation"
    elif state.kind not in {"", "agent"}:
        count, unit = len(state.nodes), "iteration" if state.kind == "ralph" else "node"
    done = f"{count} {unit}{'' if count == 1 else 's'}"
    took_s = max(0.0, state.updated_at - state.submitted_at)
    return [
        (state.status, f"bold {style}"),
        (f" ({one_line(reason)})" if reason else "", style),
        (f"  run {state.run}  {done}  {token_words(state.usage + state.inner_usage)}  {took_s:.1f} s", DIM),
    ]
