"""`foldlog sessions`: show the history of a session, and undo turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..actors import operator
from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....projections.history import PastTurn
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show the history of a session, or undo turns."
)
Session = Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")]
Lane = Annotated[str | None, typer.Option("--lane", metavar="NAME", help="A named lane of the session.")]


@app.command()
def show(context: typer.Context, session: Session, *, lane: Lane = None, json: Json = False) -> int:
    """Show the messages of a session's ended runs. Exit 1 if there are none."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), session, lane, json=json))


@app.command()
def drop(
    context: typer.Context,
    session: Session,
    turns: Annotated[int, typer.Argument(metavar="TURNS", min=0, help="How many of the last turns.")],
    *,
    lane: Lane = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Name to record; default: your user name.")] = "",
) -> int:
    """Undo the last turns: remove them from a session's history. Exit 1 while a run of the session is open."""
    from ..loops import run_async

    return run_async(_drop(settings_of(context), session, turns, lane, by))


async def _show(settings: Settings, session: str, lane: str | None, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        history = await runtime.history(session, lane)
    if json:
        tokens = history.estimate_tokens()
        turns = msgspec.to_builtins(history.turns)
        screen.json({"turns": turns, "tokens_estimated": tokens, "damaged": history.damaged})
    else:
        for turn in history.turns:
            _tell(screen, turn)
        if not history.turns:
            screen.say("no messages")
    return OK if history.turns else NO


def _tell(screen: Screen, turn: PastTurn) -> None:
    from ..output.escaping import one_line

    screen.tell((turn.run, "bold"), f"  {one_line(turn.agent)}  {turn.status}")
    for message in turn.messages:
        calls = " ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        said = one_line(" ".join(filter(None, (message.content, calls))), 200)
        screen.tell(f"  {message.role:<9} ", said)


async def _drop(settings: Settings, session: str, turns: int, lane: str | None, by: str) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        count = await runtime.drop_last_user_turns(session, turns, lane, by=operator(by))
    Screen(settings).say(f"{count} turn{'' if count == 1 else 's'} dropped")
    return OK
