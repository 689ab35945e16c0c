"""`foldlog demo`: the proof on real parts, in a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import settings_of


def demo(
    context: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Run an agent here, then on two workers of which one is killed, and compare what the log holds of both.

    Everything is real and temporary: a JetStream server, a model server behind the openai SDK, an MCP server. Exit 1 if
    the two traces differ.
    """
    from ...demo.show import show
    from ..loops import run_async

    return run_async(show(settings_of(context), json=json))
