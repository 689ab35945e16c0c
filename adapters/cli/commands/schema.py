"""`foldlog schema`: the formats as JSON Schema, for readers and editors in any language."""

from __future__ import annotations

import typer

from ..exits import OK
from ..settings import settings_of

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Print the formats as JSON Schema (draft 2020-12)."
)


@app.command("json")
def json_schema(context: typer.Context) -> int:
    """Print the schema of a stored commit and all event types."""
    from ....eventlog.schema import commit_schema
    from ..output.terminal import Screen

    Screen(settings_of(context)).json(commit_schema())
    return OK


@app.command()
def config(context: typer.Context) -> int:
    """Print the schema of an agent's configuration."""
    return _schema_of("agent", context)


@app.command()
def swarm(context: typer.Context) -> int:
    """Print the schema of a swarm's configuration and all its members."""
    return _schema_of("swarm", context)


@app.command()
def ralph(context: typer.Context) -> int:
    """Print the schema of a loop's configuration and what it repeats."""
    return _schema_of("ralph", context)


@app.command()
def workflow(context: typer.Context) -> int:
    """Print the schema of a workflow that is a table of steps."""
    return _schema_of("workflow", context)


def _schema_of(kind: str, context: typer.Context) -> int:
    from ....runtime.agents.schemas import schema_of
    from ..output.terminal import Screen

    Screen(settings_of(context)).json(schema_of(kind))
    return OK
