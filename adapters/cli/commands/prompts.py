"""`foldlog runs prompt`: the prompt of a model call as it was sent, rebuilt from the log and proven by its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....replay import SentPrompt
    from ..output.terminal import Screen


def prompt(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run or a file.")],
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="REV", help="Revision of a model request; default: the last one."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Run of the family.")] = None,
    json: Json = False,
) -> int:
    """Show the prompt of a model call as it was sent.

    It is rebuilt from the log and proven by the digest that was stored when it was sent. Exit 1 if they differ.
    """
    from ..loops import run_async

    return run_async(_show(settings_of(context), what, at, run, json=json))


async def _show(settings: Settings, what: str, at: int | None, run: str | None, *, json: bool) -> int:
    import msgspec

    from ....replay import prompt_at
    from ..output.terminal import Screen
    from ..traces import family_named, is_file, load_traces, run_in

    traces = await load_traces(settings, what)
    named = run if run is not None or is_file(what) else what
    chosen = run_in(what, traces, named) if named is not None else None
    sent = prompt_at(family_named(what, traces, named), at, chosen)
    screen = Screen(settings)
    if json:
        screen.json({**msgspec.to_builtins(sent), "proven": sent.proven})
    else:
        _tell(screen, sent)
    return OK if sent.proven else NO


def _tell(screen: Screen, sent: SentPrompt) -> None:
    from ..output.conversation import tell_messages
    from ..output.escaping import one_line, shown

    where = f"step {sent.step}" if sent.step is not None else one_line(sent.phase)
    screen.tell(
        (f"run {sent.run} revision {sent.revision}: ", "bold"),
        f"{where}, attempt {sent.attempt}, {one_line(sent.model)}",
    )
    if sent.proven:
        screen.tell(("proven: the digest is the stored one", "green"), (f"  {sent.digest}", "dim"))
    else:
        screen.tell(("differs from what was sent: ", "bold red"), f"stored {sent.digest}, now {sent.rebuilt}")
    tell_messages(screen, sent.messages)
    for tool in sent.tools:
        screen.tell(("tool      ", "dim"), (one_line(tool.name), "cyan"), f" {shown(tool.parameters)}")
        if tool.description:
            screen.tell(f"{'':<10}{one_line(tool.description)}")
    if sent.output_schema is not None:
        screen.tell(("output    ", "dim"), shown(sent.output_schema))
    for name, value in sent.parameters.items():
        screen.tell((f"{name:<9} ", "dim"), shown(value))
