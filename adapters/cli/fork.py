"""`foldlog fork`: go on from any point of a run, in a run of its own; what that means is shown first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .exits import NO, OK
from .settings import Settings, settings_of

if TYPE_CHECKING:
    from ...runtime import ForkPlan, PlannedCall, Runtime
    from .terminal import Screen
    from .watching import Watch

_FATES = {
    "kept": "keeps its result",
    "recorded": "gets the recorded result, without a run",
    "asked": "needs an approval",
    "run": "runs again",
    "answered": "is answered without a run",
}
_POLICIES = {
    "replay": "recorded results where tool and arguments are the same; an approval for the rest, if not pure",
    "ask": "an approval for every call of a tool that is not pure",
    "run": "tools just run, but for those that always need an approval",
}
_STYLES = {"asked": "yellow", "run": "bold yellow"}


def fork(  # noqa: PLR0913 - the options
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to leave; over or not.")],
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:REGISTRY]", help="Drive the fork in this process, with what is there."
        ),
    ] = None,
    *,
    at: Annotated[int, typer.Option("--at", metavar="REV", help="Share its history up to this revision.")],
    model: Annotated[str | None, typer.Option(metavar="M", help="Ask another model from there on.")] = None,
    input: Annotated[  # noqa: A002 - the word of the field
        str | None,
        typer.Option(
            metavar="TEXT", help="What to say there; before the first step: instead of the run's input."
        ),
    ] = None,
    tools: Annotated[
        Literal["replay", "ask", "run"],
        typer.Option(
            help="Calls: take recorded results, ask before unsafe and idempotent ones, or just run."
        ),
    ] = "ask",
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The fork's id; a fork that has it already is watched.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without a question.")] = False,
    detailed: Annotated[bool, typer.Option("--detailed", help="Steps, usage and reasoning too.")] = False,
    compare: Annotated[
        bool, typer.Option("--diff", help="Show the difference to the run when the fork ends.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for an approval: exit 5 when the fork pauses.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="The plan as JSON on stdout; with --yes the plan, then the events, one a line."
        ),
    ] = False,
) -> int:
    """Go on from any point of a run, in a run of its own, here or (without a registry) on a worker.

    First it is shown what the fork shares, what happens first, and what becomes of tool calls; then you are asked.
    With --json and without --yes the plan is all there is.
    """
    from .loops import run_async
    from .watching import Watch

    wish = {"at": at, "model": model, "input": input, "tools": tools}
    how = Watch(json=json, detailed=detailed, wait=not no_wait, cancels=path is not None, drives=path)
    return run_async(_fork(settings_of(context), run, wish, run_id, how, yes=yes, compare=compare))


async def _fork(
    settings: Settings,
    run_id: str,
    wish: dict[str, Any],
    fork_id: str | None,
    how: Watch,
    *,
    yes: bool,
    compare: bool,
) -> int:
    from .loading import load_registry
    from .opening import opened
    from .terminal import Screen

    registry = load_registry(how.drives) if how.drives is not None else None
    screen = Screen(settings)
    async with opened(settings) as runtime:
        plan = await runtime.plan_fork(run_id, **wish)
    if how.json and not yes:
        screen.json(_document(plan))
        return OK
    if how.json:
        screen.json_line({"type": "fork_plan", **_document(plan)})
    else:
        _show(screen, plan)
    if not yes and not _agreed(screen):
        return NO
    async with opened(settings, registry) as runtime:
        started = await runtime.fork(
            run_id, **wish, fork_id=fork_id, executor="durable" if registry is None else "local"
        )
        code = await _watch(runtime, started.run_id, settings, screen, how)
        await _offer_diff(runtime, plan.run, started.run_id, settings, screen, show=compare, json=how.json)
        return code


def _agreed(screen: Screen) -> bool:
    """Ask; no connection is open while somebody thinks."""
    from ...eventlog.errors import ConfigError

    try:
        agreed = typer.confirm("Start the fork?", default=False, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        raise ConfigError("nobody is there to say whether the fork shall start; say it with --yes") from None
    if agreed:
        return True
    screen.say("nothing was started")
    return False


async def _watch(runtime: Runtime, fork_id: str, settings: Settings, screen: Screen, how: Watch) -> int:
    from .loops import interruption
    from .watching import Watcher

    with interruption() as interrupted:
        return await Watcher(runtime, runtime.get_run(fork_id), screen, settings, how).watch(interrupted)


async def _offer_diff(
    runtime: Runtime, run_id: str, fork_id: str, settings: Settings, screen: Screen, *, show: bool, json: bool
) -> None:
    if not (await runtime.get_run(fork_id).state()).over:
        return
    screen.say(("compare with: ", "dim"), settings.command("diff", run_id, fork_id))
    if show:
        from ...replay import diff as diff_of
        from .diff import document, tell
        from .traces import form_of

        found = diff_of(await form_of(runtime.log, run_id), await form_of(runtime.log, fork_id))
        if json:
            screen.json_line({"type": "diff", **document(found, (run_id, fork_id))})
        else:
            tell(screen, found, (run_id, fork_id))


# --- the plan ---------------------------------------------------------------------------------------------------------


def _document(plan: ForkPlan) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


def _show(screen: Screen, plan: ForkPlan) -> None:
    from .escaping import one_line

    say = screen.say
    say(("fork of  ", "dim"), (plan.run, "bold"), f" ({plan.agent}, {plan.status})")
    say(("at       ", "dim"), f"revision {plan.revision} of {plan.revisions}: {_shared(plan)}")
    if plan.model != plan.model_was:
        say(("model    ", "dim"), f"{plan.model} instead of {plan.model_was}")
    if plan.input is not None:
        place = "instead of the run's input" if plan.replaces_input else "with the next step"
        say(("input    ", "dim"), f"{one_line(plan.input)} ({place})")
    say(("tools    ", "dim"), f"{plan.tools}: {_POLICIES[plan.tools]}")
    say(("first    ", "dim"), _first(plan))
    for call in plan.open:
        say("         ", *_call(call))
    if plan.behind:
        say(("behind it", "dim"), " the run made these calls; in the fork the same call")
        for call in plan.behind:
            say("         ", *_call(call))


def _shared(plan: ForkPlan) -> str:
    steps = "1 step" if plan.steps == 1 else f"{plan.steps} steps"
    return f"{steps} and {plan.usage.total_tokens:,} tokens are shared"


def _first(plan: ForkPlan) -> str:
    return {
        "prepare": "the fork is prepared: its tools are resolved, its servers connected",
        "model": f"the model is asked in step {plan.step}",
        "calls": f"the open calls of step {plan.step}:",
        "end": "the final answer is there: the fork ends with it",
    }[plan.first]


def _call(call: PlannedCall) -> tuple[tuple[str, str], ...]:
    from .escaping import one_line, shown

    effect = f" ({call.effect})" if call.effect is not None else ""
    what = f"{call.step} {one_line(call.tool_name)} {shown(call.arguments, 80)}{effect}: "
    return (what, ""), (_FATES[call.becomes], _STYLES.get(call.becomes, ""))
