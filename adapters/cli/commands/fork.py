"""`foldlog fork`: show the plan of a fork from any revision of a run, ask, and start it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from ..actors import operator
from ..exits import NO, OK
from ..options import Detailed, Files
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....replay import Archive
    from ....runtime import ForkPlan, PlannedCall, PlannedNode, PlannedOperation, Runtime
    from ..output.terminal import Screen
    from ..output.watching import Watch

_FATES = {
    "kept": "keeps its result",
    "recorded": "gets the recorded result, does not run",
    "asked": "needs an approval",
    "run": "runs again",
    "answered": "is answered, does not run",
}
_POLICIES = {
    "replay": "recorded results for the same tool and arguments; an approval for other calls, if not pure",
    "ask": "an approval for every call of a tool that is not pure",
    "run": "tools run without approval, except those that always need one",
}
_LABEL = 8
"""Width of the field names."""
_STYLES = {"asked": "yellow", "run": "bold yellow"}


def fork(  # noqa: PLR0913 - the options
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(metavar="RUN|FILE", help="The run to fork, open or ended; or a file that holds it."),
    ],
    path: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:REGISTRY", help="Drive the fork in this process, with this registry."),
    ] = None,
    *,
    at: Annotated[
        int, typer.Option("--at", metavar="REV", help="Share the run's history up to this revision.")
    ],
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Run of a file; default: the root, if it holds one family."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Use another model from there on; for a swarm, loop or workflow, in all its agents.",
        ),
    ] = None,
    input: Annotated[  # noqa: A002 - the word of the field
        str | None,
        typer.Option(
            metavar="TEXT", help="Message to add there; before the first step it replaces the run's input."
        ),
    ] = None,
    file: Files = None,
    tools: Annotated[
        Literal["replay", "ask", "run"],
        typer.Option(help="Tool calls: take recorded results, ask before those that are not pure, or run."),
    ] = "ask",
    executor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Executor; default: local with a registry, else durable."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the fork; if such a fork exists, it is shown.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without confirmation.")] = False,
    detailed: Detailed = False,
    compare: Annotated[
        bool, typer.Option("--diff", help="When the fork ends, show how it differs from the run.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for an approval: exit 5 when the fork pauses.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the plan as JSON; with --yes, the plan and the events, one per line."
        ),
    ] = False,
) -> int:
    """Continue from any revision of a run, in a new run.

    The fork is driven in this process or, without a registry, on a worker. The command shows what the fork shares, what
    it does first, and what happens to tool calls, then asks for confirmation. With --json but without --yes, it only
    prints the plan.
    """
    from ..files import with_files
    from ..loading import check_executor
    from ..loops import run_async
    from ..output.watching import Watch

    check_executor(executor)
    content = with_files(input or "", file) if file else input
    wish = {"at": at, "model": model, "input": content, "tools": tools}
    origin = _origin(what, run)
    how = Watch(json=json, detailed=detailed, wait=not no_wait)
    target = _Target(path, executor, run_id)
    return run_async(_fork(settings_of(context), origin, wish, target, how, yes=yes, compare=compare))


class _Origin(NamedTuple):
    """The run to fork: its id, its name on the command line, and the archive from which it is read, if any."""

    run: str
    name: str
    archive: Archive | None = None


class _Target(NamedTuple):
    """The target of the fork: the registry of this process, the named executor and the id of the fork."""

    path: str | None
    executor: str | None
    run_id: str | None


def _origin(what: str, run: str | None) -> _Origin:
    from ....eventlog.errors import ConfigError
    from ..opening import run_among
    from ..traces import is_file, read_file

    if not is_file(what):
        if run is not None:
            raise typer.BadParameter("--run needs a FILE")
        return _Origin(what, what)
    archive = read_file(what)
    roots = sorted({stored.subject.root for stored in archive.stored if stored.subject.kind == "run"})
    if run is None and len(roots) != 1:
        found = f"holds {len(roots)} families ({', '.join(roots[:5])}): choose a run with --run"
        raise ConfigError(f"{what} {found if roots else 'holds no run'}")
    runs = (stored.subject.id for stored in archive.stored if stored.subject.kind == "run")
    return _Origin(run_among(what, run, runs) if run is not None else roots[0], what, archive)


async def _fork(
    settings: Settings,
    origin: _Origin,
    wish: dict[str, Any],
    target: _Target,
    how: Watch,
    *,
    yes: bool,
    compare: bool,
) -> int:
    from ....eventlog.events import Trigger
    from ..confirming import agreed
    from ..loading import executor_for, load_registry
    from ..opening import opened, run_named
    from ..output.terminal import Screen

    registry = load_registry(target.path) if target.path is not None else None
    screen = Screen(settings)
    async with opened(settings) as runtime:
        executor_for(runtime, target.executor, target.path)
        if origin.archive is None:
            run = await run_named(runtime, origin.run)
            origin = _Origin(run, run)
        plan = await runtime.plan_fork(origin.run, **wish, archive=origin.archive)
    if how.json and not yes:
        screen.json(_document(plan))
        return OK
    if how.json:
        screen.json_line({"type": "fork_plan", **_document(plan)})
    else:
        _show(screen, plan)
    if not yes and not agreed(screen, "Start the fork?", "start the fork"):
        return NO
    async with opened(settings, registry) as runtime:
        executor, runs_in = executor_for(runtime, target.executor, target.path)
        started = await runtime.fork(
            origin.run,
            **wish,
            fork_id=target.run_id,
            executor=executor,
            archive=origin.archive,
            trigger=Trigger(kind="cli"),
            by=operator(),
        )
        if runs_in == "process":
            how = dataclasses.replace(how, cancels=True, drives=target.path)
        code = await _watch(runtime, started.run_id, settings, screen, how)
        await _offer_diff(runtime, origin, started.run_id, screen, settings, show=compare, json=how.json)
        return code


async def _watch(runtime: Runtime, fork_id: str, settings: Settings, screen: Screen, how: Watch) -> int:
    from ..loops import interruption
    from ..output.watching import Watcher

    with interruption() as interrupted:
        return await Watcher(runtime, runtime.get_run(fork_id), screen, settings, how).watch(interrupted)


async def _offer_diff(
    runtime: Runtime,
    origin: _Origin,
    fork_id: str,
    screen: Screen,
    settings: Settings,
    *,
    show: bool,
    json: bool,
) -> None:
    if not (await runtime.get_run(fork_id).state()).over:
        return
    if origin.archive is None or origin.run == _root_of(origin):
        screen.say(("compare with: ", "dim"), settings.command("diff", names=(origin.name, fork_id)))
    if show:
        from ....replay import diff as diff_of
        from ....replay.ordering.documents import document
        from ..traces import events_in, events_of
        from .diff import tell

        archive = origin.archive
        left = events_in(archive.trace(origin.run), origin.run) if archive is not None else None
        found = diff_of(
            left if left is not None else await events_of(runtime.log, origin.run),
            await events_of(runtime.log, fork_id),
        )
        names = (origin.run, fork_id)
        if json:
            screen.json_line({"type": "diff", **document(found, names)})
        else:
            tell(screen, found, names)


def _root_of(origin: _Origin) -> str:
    """Return the root of the file; empty if it holds several families, which cannot be compared."""
    roots = {stored.subject.root for stored in origin.archive.stored} if origin.archive is not None else set()
    return next(iter(roots)) if len(roots) == 1 else ""


# --- the plan ---------------------------------------------------------------------------------------------------------


def _document(plan: ForkPlan) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


def _show(screen: Screen, plan: ForkPlan) -> None:
    from ..output.escaping import one_line, text_lines

    say = screen.say
    kind = "" if plan.kind == "agent" else f"{plan.kind} "
    say(("fork of  ", "dim"), (plan.run, "bold"), f" ({kind}{plan.agent}, {plan.status})")
    say(("at       ", "dim"), f"revision {plan.revision} of {plan.revisions}: {_shared(plan)}")
    if plan.model != plan.model_was:
        say(("model    ", "dim"), f"{plan.model} instead of {plan.model_was or 'the models of its agents'}")
    if plan.input is not None:
        place = "instead of the run's input" if plan.replaces_input else "with the next step"
        lines = text_lines(plan.input) if plan.input else []
        *before, last = [*lines, *(one_line(str(file)) for file in plan.files)]
        screen.field("input", [*before, f"{last} ({place})"], _LABEL, data=False)
    say(("tools    ", "dim"), f"{plan.tools}: {_POLICIES[plan.tools]}")
    say(("first    ", "dim"), _first(plan))
    for node in plan.nodes:
        say("         ", _node(plan, node))
    for operation in plan.again:
        say("         ", _operation(plan, operation))
    if plan.open and plan.first != "calls":
        say(("open     ", "dim"), "calls that are open at this revision:")
    for call in plan.open:
        _tell_call(screen, plan, call)
    if plan.behind:
        say(("later    ", "dim"), "the run made these calls; in the fork, the same call")
        for call in plan.behind:
            _tell_call(screen, plan, call)


def _shared(plan: ForkPlan) -> str:
    is_code = plan.kind == "workflow"
    done = counted(plan.operations, "operation") if is_code else counted(plan.steps, "step")
    return f"{done} and {plan.usage.total_tokens:,} tokens are shared"


def _first(plan: ForkPlan) -> str:
    return {
        "prepare": "the fork is prepared: its tools are resolved and its servers connected",
        "model": f"the model call of step {plan.step}",
        "calls": f"the open calls of step {plan.step}:",
        "nodes": "its nodes:",
        "code": "its code runs again over what is shared; what it then asks for is done:",
        "end": "the end is decided again, from the shared history"
        if plan.kind != "agent"
        else "the final answer is part of the history: the fork ends with it",
    }[plan.first]


def _node(plan: ForkPlan, node: PlannedNode) -> str:
    name = _below(plan, node.agent_path)
    steps = "1 step" if node.steps == 1 else f"{node.steps} steps"
    return {
        "kept": f"{name} is kept ({node.status})",
        "goes_on": f"{name} continues after its revision {node.revision}, {steps} done",
        "begins": f"{name} starts",
    }[node.becomes]


def _operation(plan: ForkPlan, operation: PlannedOperation) -> str:
    from ..output.escaping import one_line

    below = _below(plan, operation.agent_path)
    fate = {"agent": "starts again", "ask": "is asked again", "memo": "is computed again"}
    return one_line(f"{below and below + ' '}{operation.place} {fate.get(operation.kind, 'waits again')}")


def counted(number: int, word: str) -> str:
    """Return a number with its word, as `2 steps`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _below(plan: ForkPlan, agent_path: str) -> str:
    """Return a path relative to the fork."""
    return agent_path.removeprefix(f"{plan.agent}/") if agent_path != plan.agent else ""


def _tell_call(screen: Screen, plan: ForkPlan, call: PlannedCall) -> None:
    """Print a call and what happens to it; its arguments exactly, on lines of their own unless they fit."""
    from rich.cells import cell_len

    from ..output.escaping import one_line

    effect = f" ({call.effect})" if call.effect is not None else ""
    below = _below(plan, call.agent_path)
    what = f"{call.step} {call.tool_name}" if call.step else call.tool_call_id  # in a workflow, the place
    head = f"{below and below + ' '}{one_line(what)}"
    fate = _FATES[call.becomes], _STYLES.get(call.becomes, "")
    indent = " " * (_LABEL + 1)
    lines = screen.lines(call.arguments, len(indent) + 2, data=False)
    room = screen.width - len(indent) - cell_len(f"{head} {effect}: {fate[0]}")
    if len(lines) == 1 and cell_len(lines[0]) <= room:
        screen.say(indent, f"{head} {lines[0]}{effect}: ", fate)
        return
    screen.say(indent, f"{head}{effect}: ", fate)
    for line in lines:
        screen.say(indent, "  ", line)
