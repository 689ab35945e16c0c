"""`foldlog agents`: check the configurations of agents before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import settings_of

if TYPE_CHECKING:
    from ..agent_files import Checked
    from ..output.terminal import Screen

_KINDS = {"ralph": "loop"}
"""Display names of the kinds that have another one."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check configurations of agents.")


@app.callback()
def _noun() -> None:
    """Check configurations of agents."""


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


def _tell(screen: Screen, checked: Checked) -> None:
    from ..output.escaping import one_line

    where = one_line(checked.path)
    if not checked.problems:
        screen.tell(("✓ ", "green"), f"{where}: {_KINDS.get(checked.kind, checked.kind)} {checked.agent}")
    for problem in checked.problems:
        screen.tell(("✗ ", "bold red"), f"{where}: {one_line(problem.message)}")
