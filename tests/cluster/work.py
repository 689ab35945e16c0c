"""The agents of a rehearsal: each run calls a pure, an idempotent and an unsafe tool, whose effects SQLite counts."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from foldlog import Agent, Registry, ToolContext, tool

TAKES_S = 2.5
"""The time that a call takes after its effect, long enough to lose its result in."""
TABLES = """
CREATE TABLE IF NOT EXISTS tries (call TEXT, tool TEXT);
CREATE TABLE IF NOT EXISTS kept (call TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS done (call TEXT);
"""
"""`tries`: each execution. `kept`: the effect of the idempotent tool. `done`: the unsafe one's, a row each time."""


def opened() -> sqlite3.Connection:
    """The database that `REHEARSAL` names; it waits for other writers."""
    database = sqlite3.connect(Path(os.environ["REHEARSAL"]) / "effects.db", timeout=120)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(TABLES)
    return database


def note(*statements: tuple[str, tuple[str, ...]]) -> None:
    with closing(opened()) as database, database:
        for statement, values in statements:
            database.execute(statement, values)


def call_of(context: ToolContext) -> str:
    return f"{context.run_id}/{context.tool_call_id}"


@tool(effect="pure")
async def look(context: ToolContext) -> str:
    """Look."""
    note(("INSERT INTO tries VALUES (?, 'look')", (call_of(context),)))
    await asyncio.sleep(TAKES_S)
    return "seen"


@tool(effect="idempotent")
async def keep(context: ToolContext) -> str:
    """Keep."""
    call = call_of(context)
    note(
        ("INSERT INTO tries VALUES (?, 'keep')", (call,)),
        ("INSERT OR IGNORE INTO kept VALUES (?)", (call,)),
    )
    await asyncio.sleep(TAKES_S)
    return "kept"


@tool(effect="unsafe")
async def pay(context: ToolContext) -> str:
    """Pay."""
    call = call_of(context)
    note(("INSERT INTO tries VALUES (?, 'pay')", (call,)), ("INSERT INTO done VALUES (?)", (call,)))
    await asyncio.sleep(TAKES_S)
    return "paid"


agent = Agent("rehearsed", model="scripted:script.json", tools=[look, keep, pay])
registry = Registry(agents=[agent])
