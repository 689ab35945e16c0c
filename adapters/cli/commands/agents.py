"""`foldlog agents`: check configurations of agents, and keep agents as records in the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exits import NO, OK
from ..options import By, FromVersion, Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....runtime.catalog.records import AgentChange, AgentVersion
    from ..agent_files import Checked
    from ..output.terminal import Screen

_KINDS = {"ralph": "loop"}
"""The display names of kinds for which it differs from the stored name."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the stored agent.")]
Version = Annotated[
    int | None, typer.Option("--version", metavar="N", min=1, help="This version; default: the last one.")
]
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check configurations of agents, and store agents in the log.",
)


@app.callback()
def _noun() -> None:
    """Check configurations of agents, and store agents in the log."""


@app.command()
def check(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="TOML or JSON files, or MODULE:NAME to load."),
    ],
    *,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:REGISTRY", help="Also check that this registry has the tools and providers."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Check configurations of agents, and print a line for each mistake. Exit 1 if there are any."""
    from ....runtime import Registry
    from ..agent_files import check_path
    from ..output.terminal import Screen

    screen = Screen(settings_of(context))
    known = None if registry is None else Registry.load(registry)
    checked = [each for path in paths for each in check_path(path, known)]
    right = not any(each.problems for each in checked)
    if json:
        screen.json({"ok": right, "checked": [each.as_json() for each in checked]})
        return OK if right else NO
    for each in checked:
        _tell(screen, each)
    return OK if right else NO


def _tell(screen: Screen, checked: Checked, more: str = "") -> None:
    from ..output.escaping import one_line

    where = one_line(checked.path)
    if not checked.problems:
        screen.tell(
            ("✓ ", "green"), f"{where}: {_KINDS.get(checked.kind, checked.kind)} {checked.agent}{more}"
        )
    for problem in checked.problems:
        screen.tell(("✗ ", "bold red"), f"{where}: {one_line(problem.message)}")


@app.command()
def save(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="TOML or JSON files, of one agent each or of several."),
    ],
    *,
    from_: FromVersion = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why it is changed.")] = "",
    by: By = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check them.")] = False,
    json: Json = False,
) -> int:
    """Store the agents of files, each as its next version, if it has changed. Exit 1 if any is refused.

    Tools, providers, secrets and MCP servers must be those of live workers.
    """
    from ..loops import run_async

    return run_async(_save(settings_of(context), paths, from_, note, by, dry_run=dry_run, json=json))


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List the stored agents with their last versions."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def show(context: typer.Context, name: Name, *, version: Version = None, json: Json = False) -> int:
    """Show a stored agent, and who changed it and when."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), name, version, json=json))


@app.command()
def diff(
    context: typer.Context,
    name: Name,
    before: Annotated[int, typer.Argument(metavar="N", min=1, help="A version.")],
    after: Annotated[
        int | None, typer.Argument(metavar="M", min=1, help="Another one; default: the last.")
    ] = None,
    *,
    json: Json = False,
) -> int:
    """Show the keys that differ between two versions. Exit 1 if any do."""
    from ..loops import run_async

    return run_async(_diff(settings_of(context), name, before, after, json=json))


@app.command()
def export(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Stored agents; default: all of them.")
    ] = None,
    *,
    form: Annotated[Literal["toml", "json"], typer.Option("--format", help="Form of the file.")] = "toml",
    version: Version = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; default: stdout.")
    ] = None,
) -> int:
    """Write stored agents to a file that `save` and `run` read: one agent as a table, several as a list `agents`."""
    from ..loops import run_async

    return run_async(_export(settings_of(context), names or [], form, version, output))


@app.command()
def remove(context: typer.Context, name: Name, *, from_: FromVersion = None, by: By = "") -> int:
    """Remove a stored agent, so that it starts no new runs. Its open runs go on, and its versions stay."""
    from ..loops import run_async

    return run_async(_remove(settings_of(context), name, from_, by))


async def _save(
    settings: Settings,
    paths: list[str],
    from_: int | None,
    note: str,
    by: str,
    *,
    dry_run: bool,
    json: bool,
) -> int:
    from ....eventlog.errors import AgentChanged, AgentConfigError, ConfigProblem
    from ..actors import operator
    from ..agent_files import Checked, tables_of
    from ..opening import opened
    from ..output.terminal import Screen

    screen = Screen(settings)
    told: list[dict[str, Any]] = []
    given = [(path, table) for path in paths for table in tables_of(path)]
    async with opened(settings) as runtime:
        for where, table in given:
            name = table.get("name")
            agent = name if isinstance(name, str) else None
            problems: tuple[ConfigProblem, ...] = ()
            saved: AgentVersion | None = None
            try:
                if dry_run:
                    problems = tuple(await runtime.agents.check(table))
                else:
                    saved = await runtime.agents.save(table, version=from_, note=note, by=operator(by))
            except AgentConfigError as error:
                problems = error.problems
            except AgentChanged as error:
                problems = (ConfigProblem("", str(error)),)
            checked = Checked(path=where, agent=agent, problems=problems)
            told.append(checked.as_json() | {"version": saved.version if saved else None})
            if json:
                continue
            _tell(screen, checked, "" if saved is None else f", version {saved.version}")
    right = not any(each["problems"] for each in told)
    if json:
        screen.json({"ok": right, "saved": told})
    return OK if right else NO


async def _list(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.agents.list()
        workers = await runtime.operations.workers()
    if json:
        screen.json([_head(row) for row in rows])
    elif not rows:
        screen.say("no stored agents: save one with foldlog agents save FILE")
    else:
        columns = (
            Column("agent"),
            Column("version"),
            Column("model", cut=True),
            Column("saved"),
            Column("by", cut=True, leaves=1),
            Column("workers"),
            Column("note", below=True),
        )
        screen.table(
            columns,
            [
                [
                    one_line(row.name),
                    str(row.version),
                    one_line(str(row.config["model"])),
                    moment(row.at),
                    one_line(row.by),
                    str(sum(row.name in each.serves for each in workers)),
                    one_line(row.note),
                ]
                for row in rows
            ],
        )
    return OK


def _head(row: AgentVersion) -> dict[str, Any]:
    import msgspec

    return {key: value for key, value in msgspec.to_builtins(row).items() if key != "config"}


async def _show(settings: Settings, name: str, version: int | None, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        changes = await runtime.agents.changes(name)
        numbers = [each.version for each in changes]
        row = await runtime.agents.get(name, numbers[-1] if version is None else version)
    if json:
        screen.json({**msgspec.to_builtins(row), "changes": msgspec.to_builtins(changes)})
        return OK
    shown = _shown(row.config)
    width = max(map(len, shown))
    for key, value in shown.items():
        screen.field(key, value, width)
    screen.tell("")
    columns = (
        Column("version"),
        Column("change"),
        Column("at"),
        Column("by"),
        Column("via"),
        Column("note", below=True),
    )
    screen.table(
        columns,
        [
            [str(each.version), each.kind, moment(each.at), one_line(each.by), each.via, one_line(each.note)]
            for each in _newest_first(changes)
        ],
    )
    return OK


def _newest_first(changes: Any) -> list[AgentChange]:
    return [*changes][::-1]


def _shown(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a configuration that differ from the defaults, and its name and model."""
    from ....runtime.agents.config import AgentConfig
    from ....runtime.catalog.records import in_order
    from ..output.escaping import exact, one_line, visible

    defaults = AgentConfig(name="any").to_config()
    return {
        key: visible(one_line(value)) if isinstance(value, str) else exact(value)
        for key, value in in_order(config).items()
        if value != defaults.get(key) or key == "model"
    }


async def _diff(settings: Settings, name: str, before: int, after: int | None, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import exact, one_line
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await runtime.agents.diff(name, before, after)
    if json:
        screen.json(msgspec.to_builtins(found))
        return NO if found else OK
    if not found:
        screen.say("no key differs")
    for each in found:
        screen.tell(one_line(each.key))
        if each.before is not None:
            screen.tell(("  - ", "red"), exact(each.before))
        if each.after is not None:
            screen.tell(("  + ", "green"), exact(each.after))
    return NO if found else OK


async def _export(
    settings: Settings,
    names: list[str],
    form: Literal["toml", "json"],
    version: int | None,
    output: Path | None,
) -> int:
    from ....eventlog.errors import ConfigError
    from ....runtime.catalog.records import in_order
    from ..agent_files import text_of, write_text
    from ..opening import opened
    from ..output.terminal import Screen

    if version is not None and len(names) != 1:
        raise typer.BadParameter("--version is of one agent: give its NAME", param_hint="--version")
    async with opened(settings) as runtime:
        wanted = names or [row.name for row in await runtime.agents.list()]
        if not wanted:
            raise ConfigError("there is no stored agent to export")
        tables = [in_order((await runtime.agents.get(name, version)).config) for name in wanted]
    text = text_of(tables, form)
    if output is None:
        typer.echo(text, nl=False)
        return OK
    write_text(output, text)
    Screen(settings).say(f"{len(tables)} agents are in {output}")
    return OK


async def _remove(settings: Settings, name: str, from_: int | None, by: str) -> int:
    from ..actors import operator
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        await runtime.agents.remove(name, version=from_, by=operator(by))
    Screen(settings).tell(f"agent {name}: removed")
    return OK
