"""`foldlog knowledge`: texts that runs can search, in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime.ports.knowledge import KnowledgeItem, KnowledgeStore
    from ...knowledge import SqliteKnowledge
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Add, search and remove long-term knowledge.",
)


@app.command()
def add(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="Text files (UTF-8); - for standard input, the default."),
    ] = None,
    *,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the source; default: the file's name.")
    ] = None,
    json: Json = False,
) -> int:
    """Add texts in pieces of whole paragraphs. Pieces that are already stored are skipped."""
    from ..loops import run_async

    return run_async(_add(settings_of(context), files or ["-"], source, json=json))


@app.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Text to search for.")],
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of pieces.")] = 5,
    json: Json = False,
) -> int:
    """Find pieces that contain words of the query, best first. Exit 1 if there are none."""
    from ..loops import run_async

    return run_async(_search(settings_of(context), query, limit, json=json))


@app.command("list")
def list_(
    context: typer.Context,
    *,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Only pieces of this source.")] = None,
    json: Json = False,
) -> int:
    """List all pieces, in the order in which they were added."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), source, json=json))


@app.command()
def remove(
    context: typer.Context,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Ids of pieces, as shown by list.")
    ] = None,
    *,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="All pieces of this source.")] = None,
) -> int:
    """Remove pieces. Exit 1 if there were none to remove."""
    from ..loops import run_async

    return run_async(_remove(settings_of(context), ids or [], source))


def _store(settings: Settings) -> KnowledgeStore:
    """Return the store that runs search. Raises `ConfigError` for a broken plugin."""
    from ....runtime import Registry

    return Registry().knowledge(settings.namespace)


def _own_store(settings: Settings) -> SqliteKnowledge:
    """Return the built-in store. Raises `ConfigError` if another one is installed."""
    from ....eventlog.errors import ConfigError
    from ...knowledge import SqliteKnowledge

    store = _store(settings)
    if not isinstance(store, SqliteKnowledge):
        raise ConfigError(
            f"the installed knowledge store is {type(store).__name__}: list and remove with its own tools"
        )
    return store


async def _add(settings: Settings, files: list[str], source: str | None, *, json: bool) -> int:
    from ..output.terminal import Screen

    screen, store = Screen(settings), _store(settings)
    texts = [(_source(name) if source is None else source, _text(name)) for name in files]
    added = [item for name, text in texts for item in await store.add(text, name)]
    if json:
        screen.json([_plain(item) for item in added])
    else:
        where = getattr(store, "file", type(store).__name__)
        screen.say(f"{len(added)} new piece{'' if len(added) == 1 else 's'} in {where}")
    return OK


def _source(file: str) -> str:
    return "stdin" if file == "-" else file


def _text(file: str) -> str:
    """Return the text of the file. Raises `ConfigError`, which names it."""
    from ....eventlog.errors import ConfigError
    from ....eventlog.files import read_bounded

    try:
        data = read_bounded(file)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{_source(file)} is not UTF-8 text; nothing was added") from None


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

    screen, found = Screen(settings), await _own_store(settings).items(source)
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
        raise ConfigError("give ids of pieces, or --source NAME")
    count = await _own_store(settings).remove(ids, source)
    Screen(settings).say(f"{count} piece{'' if count == 1 else 's'} removed")
    return OK if count else NO


def _plain(item: KnowledgeItem) -> dict[str, str]:
    return {"id": item.id, "source": item.source, "text": item.text}
