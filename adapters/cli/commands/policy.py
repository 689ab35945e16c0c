"""`foldlog policy`: show the policy of the namespace, forget approved calls, and try a policy on stored calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....replay.replaying.policy_trial import TriedCall
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the namespace's policy, forget approved calls, and try a policy on stored calls.",
)
RUNS_MAX = 1_000_000


@app.command()
def show(context: typer.Context, *, json: Json = False) -> int:
    """Show the project's rules, and the calls that were approved for good (`approvals approve --always`)."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), json=json))


@app.command()
def forget(
    context: typer.Context,
    call: Annotated[str, typer.Argument(metavar="ID", help="Id of an approved call, as `show` lists it.")],
) -> int:
    """Ask about an approved call again, in runs that start from now on."""
    from ..loops import run_async

    return run_async(_forget(settings_of(context), call))


@app.command("test")
def try_out(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML with a [policy] table.")],
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs submitted since: 30m, 7d (ago), 2026-03-01."),
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    json: Json = False,
) -> int:
    """Show which stored calls this policy of the namespace would have decided otherwise. Exit 1 if there are any."""
    from ..loops import run_async

    return run_async(_test(settings_of(context), file, since, agent, json=json))


async def _show(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ....runtime.core.policy import joined
    from ....runtime.shared.approved_calls import id_of
    from ..opening import opened
    from ..output.tables import Column, Exact
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        table, calls = runtime.policy.table(), await runtime.policy.approved.read()
    if json:
        approved = [{"id": id_of(call), **msgspec.to_builtins(call)} for call in calls]
        screen.json({"policy": table, "approved": approved})
        return OK
    policy = joined({}, table)
    screen.tell(("default  ", "dim"), policy.default)
    for number, rule in enumerate(policy.shared, 1):
        screen.tell((f"{number:<9}", "dim"), f"{rule.action}: {rule}")
    if calls:
        columns = (
            Column("approved"),
            Column("tool", cut=True),
            Column("at"),
            Column("by"),
            Column("arguments", below=True),
        )
        screen.table(
            columns,
            [[(id_of(c), "bold"), c.tool, moment(c.at), c.by, Exact(c.arguments)] for c in calls],
        )
    return OK


async def _forget(settings: Settings, call: str) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await runtime.policy.approved.remove(call)
    if found:
        screen.tell(f"forgotten: {call}")
    else:
        screen.say(
            f"no call with the id {one_line(call)!r} is approved; `foldlog policy show` lists them",
            important=True,
        )
    return OK if found else NO


def read_policy(file: Path) -> dict[str, Any]:
    """Return the policy in a file: its `[policy]` table, `[tool.foldlog.policy]`, or the file itself."""
    import tomllib

    from ....eventlog.errors import ConfigError
    from ....eventlog.files import read_bounded
    from ....runtime.agents.config import shared_policy

    try:
        given: Any = tomllib.loads(read_bounded(file).decode())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    for place in ("policy", "tool.foldlog.policy"):
        found = given
        for key in place.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is not None:
            return shared_policy(found, f"{file}: [{place}]")
    return shared_policy(given, str(file))


async def _test(settings: Settings, file: Path, since: str | None, agent: str | None, *, json: bool) -> int:
    import msgspec

    from ....replay import load_trace
    from ....replay.replaying.policy_trial import try_policy
    from ..opening import opened
    from ..output.terminal import Screen
    from ..output.times import time_of

    policy = read_policy(file)
    screen = Screen(settings)
    tried: list[TriedCall] = []
    async with opened(settings) as runtime:
        index, now = await runtime.index(), runtime.log.clock.now()
        rows = await index.runs(
            agent=agent, since=None if since is None else time_of(since, now), limit=RUNS_MAX
        )
        families: dict[str, set[str]] = {}
        for row in reversed(rows):
            families.setdefault(row.root_id, set()).add(row.run_id)
        for root, runs in families.items():
            tried += try_policy(await load_trace(runtime.log, root), policy, runs)
    changed = [each for each in tried if each.was != each.now]
    if json:
        screen.json(
            {
                "runs": len(rows),
                "calls": len(tried),
                "changed": [msgspec.to_builtins(each) for each in changed],
            }
        )
    else:
        _tell_changes(screen, changed)
        counted = f"{len(tried)} call{'' if len(tried) == 1 else 's'} of {len(rows)} run{'' if len(rows) == 1 else 's'}"
        screen.tell(f"{counted}: {len(changed) or 'none'} would be decided otherwise")
    return NO if changed else OK


def _tell_changes(screen: Screen, changed: list[TriedCall]) -> None:
    from ..output.escaping import one_line
    from ..output.tables import Column, Exact

    if changed:
        columns = (
            Column("run"),
            Column("agent", leaves=1, cut=True),
            Column("tool", cut=True),
            Column("was"),
            Column("would be"),
            Column("by", below=True),
            Column("arguments", below=True),
        )
        screen.table(
            columns,
            [
                [
                    (c.run, "bold"),
                    c.agent_path,
                    c.tool,
                    c.was,
                    (c.now, "yellow"),
                    one_line(c.why),
                    Exact(c.arguments),
                ]
                for c in changed
            ],
        )
