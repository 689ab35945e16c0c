"""`foldlog schema`: the formats as JSON Schema, for readers and editors in any language."""

from __future__ import annotations

import typer

from .exits import OK
from .settings import settings_of

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The formats as JSON Schema (draft 2020-12)."
)


@app.command("json")
def json_schema(context: typer.Context) -> int:
    """The schema of a stored commit and of all its events."""
    from ...eventlog.schema import commit_schema
    from .terminal import Screen

    Screen(settings_of(context)).json(commit_schema())
    return OK


@app.command()
def config(context: typer.Context) -> int:
    """The schema of an agent's configuration."""
    from ...runtime.agent_config import config_schema
    from .terminal import Screen

    Screen(settings_of(context)).json(config_schema())
    return OK
