"""`foldlog demo`: local and durable execution compared, with real processes."""

from __future__ import annotations

import typer

from ..options import Json
from ..settings import settings_of


def demo(
    context: typer.Context,
    *,
    json: Json = False,
) -> int:
    """Run an agent locally and on workers, kill one, and compare.

    The agent runs in this process, then on two workers, one of which is killed. Everything is real and temporary: a
    JetStream server, a model server for the openai SDK, an MCP server. Exit 1 if the traces differ.
    """
    from ...demo.show import show
    from ..loops import run_async

    return run_async(show(settings_of(context), json=json))
