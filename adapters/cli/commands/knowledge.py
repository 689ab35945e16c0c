"""`foldlog knowledge`: texts that runs can find, kept in one file beside the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime.ports.knowledge import KnowledgeItem
    from ...knowledge import SqliteKnowledge
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Long-term knowledge: add texts, find them, remove them.",
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command()
def add(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Text files (UTF-8); - or none: standard input."),
    ] = None,
    *,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where it comes from; by default the file's name.")
    ] = None,
    json: Json = False,
) -> int:
    """Add texts in pieces of whole paragraphs. What is there already is not added again."""
    from ..loops import run_async

    return run_async(_add(settings_of(context), files or ["-"], source, json=json))


@app.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Any text.")],
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many pieces.")] = 5,
    json: Json = False,
) -> int:
    """Find pieces that hold words of a text, the best first. Exit 1 when there are none."""
    from ..loops import run_async

    return run_async(_search(settings_of(context), query, limit, json=json))


@app.command("list")
def list_(
    context: typer.Context,
    *,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Only what comes from there.")] = None,
    json: Json = False,
) -> int:
    """List all pieces, in the order in which they were added."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), source, json=json))


@app.command()
def remove(
    context: typer.Context,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Pieces, by the ids that list shows.")
    ] = None,
    *,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="All that comes from there.")] = None,
) -> int:
    """Remove pieces. Exit 1 when there was none to remove."""
    from ..loops import run_async

    return run_async(_remove(settings_of(context), ids or [], source))


def _store(settings: Settings) -> SqliteKnowledge:
    from ...knowledge import SqliteKnowledge

    return SqliteKnowledge(settings.namespace)


async def _add(settings: Settings, files: list[str], source: str | None, *, json: bool) -> int:
    from ..output.terminal import Screen

    screen, store = Screen(settings), _store(settings)
    texts = [(_source(name) if source is None else source, _text(name)) for name in files]
    added = [item for name, text in texts for item in await store.add(text, name)]
    if json:
        screen.json([_plain(item) for item in added])
    else:
        screen.say(f"{len(added)} new piece{'' if len(added) == 1 else 's'} in {store.file}")
    return OK


def _source(file: str) -> str:
    return "stdin" if file == "-" else file


def _text(file: str) -> str:
    """What the file holds. Raises `ConfigError` that names it."""
    from ....eventlog.errors import ConfigError
    from ....eventlog.files import read_bounded

    try:
        data = read_bounded(file)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{_source(file)} is no text in UTF-8; nothing was added") from None


async def _search(settings: Settings, query: str, limit: int, *, json: bool) -> int:
    from ..output.terminal import Screen

    screen, found = Screen(settings), await _store(settings).search(query, limit)
    if json:
        screen.json([{**_plain(item), "score": item.score} for item in found])
    else:
        for number, item in enumerate(found):
            _show(screen, item, first=number == 0)
        if not found:
            screen.say("nothing found")
    return OK if found else NO


def _show(screen: Screen, item: KnowledgeItem, *, first: bool) -> None:
    from ..output.escaping import clean, one_line

    if not first:
        screen.tell("")
    screen.tell((item.id, "bold"), f"  {one_line(item.source)}")
    for line in clean(item.text).splitlines():
        screen.tell(f"  {line}" if line.strip() else "")


async def _list(settings: Settings, source: str | None, *, json: bool) -> int:
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen, found = Screen(settings), await _store(settings).items(source)
    if json:
        screen.json([_plain(item) for item in found])
    else:
        rows = [(item.id, item.source, one_line(item.text, 60)) for item in found]
        screen.table(("id", "source", "text"), rows)
    return OK


async def _remove(settings: Settings, ids: list[str], source: str | None) -> int:
    from ....eventlog.errors import ConfigError
    from ..output.terminal import Screen

    if not ids and source is None:
        raise ConfigError("say what to remove: ids of pieces, or --source NAME")
    count = await _store(settings).remove(ids, source)
    Screen(settings).say(f"{count} piece{'' if count == 1 else 's'} removed")
    return OK if count else NO


def _plain(item: KnowledgeItem) -> dict[str, str]:
    return {"id": item.id, "source": item.source, "text": item.text}
