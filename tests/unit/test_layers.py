"""Imports point down and are relative, and in the pure folders only ports read a clock or throw dice."""

import ast
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What a folder may import besides itself. The proof and the outside both stand on the runtime.
BELOW: dict[str, set[str]] = {
    "eventlog": set(),
    "projections": {"eventlog"},
    "runtime": {"eventlog", "projections"},
    "replay": {"eventlog", "projections", "runtime"},
    "adapters": {"eventlog", "projections", "runtime"},
}
# The rooms of a folder, and what each may import of it besides itself. What lies in no room puts them together.
ROOMS: dict[str, dict[str, set[str]]] = {
    "runtime": {
        "ports": set(),
        "core": {"ports"},
        "tools": {"core", "ports"},
        "agents": {"core", "ports", "tools"},
        "journal": {"core"},
        "shared": {"core", "journal", "ports"},
        "triggers": {"core", "journal", "ports"},
        "operating": {"core", "journal", "ports", "shared"},
        "driving": {"agents", "core", "journal", "ports", "shared", "tools"},
        "executors": {
            "agents",
            "burying",
            "catalog",
            "core",
            "driving",
            "journal",
            "ports",
            "rollbacks",
            "shared",
            "tools",
            "triggers",
        },
        "forks": {"agents", "core", "journal", "ports"},
        "burying": {"core", "journal", "ports", "shared"},
        "catalog": {"agents", "core", "journal", "ports"},
        "rollbacks": {"agents", "core", "journal", "ports", "tools"},
    },
    "replay": {
        "traces": set(),
        "canonical": {"traces"},
        "ordering": {"canonical", "traces"},
        "replaying": {"canonical", "ordering", "traces"},
        "parity": {"canonical", "ordering", "traces"},
        "rerunning": {"parity", "replaying", "traces"},
        "simulation": {"canonical", "ordering", "parity", "traces"},
        "strategies": {"parity", "simulation", "traces"},
    },
    "adapters": {
        "a2a": {"http", "protocols"},
        "agui": {"http", "protocols"},
        "archive": set(),
        "configuration": set(),
        "builtin": set(),
        "frameworks": {"models"},
        "http": {"configuration"},
        "console": {"configuration", "http"},
        "knowledge": set(),
        "mcp": set(),
        "mcp_server": {"http", "protocols"},
        "models": {"configuration"},
        "nats_agents": {"http", "protocols"},
        "protocols": {"http"},
        "responses": {"http", "protocols"},
        "runners": {"builtin"},
        "telemetry": set(),
        "cli": {
            "a2a",
            "agui",
            "archive",
            "builtin",
            "configuration",
            "console",
            "demo",
            "http",
            "knowledge",
            "mcp",
            "mcp_server",
            "models",
            "nats_agents",
            "protocols",
            "responses",
            "runners",
            "telemetry",
        },
        "demo": {"cli", "models"},
    },
}
# The composition roots: the commands of `replay`, the demo, which shows the proof, archives, which are traces, and the
# console, which compares and judges them.
COMPOSITION_ROOTS = ("adapters/archive", "adapters/cli", "adapters/console", "adapters/demo")

# Anything that makes two runs of one seed differ.
CLOCKS_AND_DICE = {
    "anyio.sleep",
    "anyio.sleep_forever",
    "anyio.sleep_until",
    "anyio.to_process",
    "anyio.to_thread",
    "asyncio.sleep",
    "asyncio.to_thread",
    "concurrent.futures",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
    "random",
    "secrets",
    "threading",
    "time",
    "uuid",
}
LOOP_CLOCKS = {"call_at", "call_later", "run_in_executor"}
PURE = ("projections", "runtime")
# Modules that are a port to the outside, each with what it may use and why. The clock and the ids live in
# eventlog/clock.py, outside these folders.
PORTS: dict[str, set[str]] = {
    # A source of random numbers that is seeded by the log, for the code of a workflow.
    "runtime/agents/workflow/run.py": {"random"},
    # Functions that are not async run in threads; INLINE keeps a simulation out of them.
    "runtime/tools/functions.py": {"anyio.to_thread"},
    # The bits of tokens: they decide nothing, and the log knows their digest only.
    "runtime/shared/resume_tokens.py": {"secrets"},
    "runtime/shared/access_tokens.py": {"secrets"},
}


def source_files(*folders: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), str(path))


@cache
def imports(path: Path) -> ast.Module:
    """Return the imports of a file, wherever in it they are; the trees of all files would fill the memory."""
    found = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.Module(body=list(found), type_ignores=[])


def absolute_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (local name, dotted origin) of each absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
                if not alias.asname and alias.name != top:
                    yield alias.name, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def relative_targets(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the folder each relative import leads to; the empty string where it leaves the namespace."""
    package = path.parent.parts
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        above = len(package) + 1 - node.level
        if above < 0:
            yield ""
        elif above > 0:
            yield package[0]
        elif node.module:
            yield node.module.split(".")[0]
        else:
            yield from (alias.name for alias in node.names)


def wrong_arrows(path: Path, tree: ast.Module) -> list[str]:
    folder = path.parts[0]
    allowed = BELOW[folder] | {folder}
    if path.as_posix().startswith(COMPOSITION_ROOTS):
        allowed |= {"replay"}
    return [target for target in relative_targets(path, tree) if target not in allowed]


def relative_modules(path: Path, tree: ast.Module) -> Iterator[Path]:
    """Yield the file of each relative import, wherever in the module it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in node.names:
                found = (base / f"{name.name}.py", base.with_suffix(".py"), base / "__init__.py")
                yield from [each for each in found if base.name and (ROOT / each).is_file()][:1]


def room_of(path: Path) -> str | None:
    """The room of its folder that a file lies in; null for none."""
    return path.parts[1] if path.parts[0] in ROOMS and len(path.parts) > 2 else None


def wrong_doors(path: Path, tree: ast.Module) -> list[str]:
    """Return the forbidden imports of a file of a room within its folder."""
    folder, room = path.parts[0], room_of(path)
    allowed = {room, *ROOMS[folder][room]} if room else set()
    imported = [each for each in relative_modules(path, tree) if each.parts[0] == folder]
    return [each.as_posix() for each in imported if room and room_of(each) not in allowed]


def rings(arrows: dict[Path, set[Path]]) -> list[set[Path]]:
    """The modules that import each other, directly or by way of others."""
    reached = {start: set(walked(start, arrows)) for start in arrows}
    return [
        {start, *(each for each in found if start in reached.get(each, ()))}
        for start, found in reached.items()
        if start in found
    ]


def walked(start: Path, arrows: dict[Path, set[Path]]) -> Iterator[Path]:
    """Yield what can be reached from a module by one import or more."""
    seen, ahead = set[Path](), list(arrows[start])
    while ahead:
        each = ahead.pop()
        if each not in seen:
            seen.add(each)
            ahead += arrows.get(each, ())
            yield each


def dotted_name(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted origin of `a.b.c` where `a` was imported, else None."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        value = dotted_name(node.value, names)
        return f"{value}.{node.attr}" if value else None
    return None


def clocks_and_dice(tree: ast.Module) -> set[str]:
    names = dict(absolute_imports(tree))
    used = set(names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.add(dotted_name(node, names) or "")
            used |= {node.attr} & LOOP_CLOCKS
    return {
        banned
        for banned in CLOCKS_AND_DICE | LOOP_CLOCKS
        for name in used
        if name == banned or name.startswith(f"{banned}.")
    }


def found_in(
    look: Callable[[Path, ast.Module], Collection[str]],
    *folders: str,
    read: Callable[[Path], ast.Module] = imports,
) -> dict[str, Collection[str]]:
    """The findings in each file of the folders, by file; those without anything are left out."""
    found = {path.as_posix(): look(path, read(path)) for path in source_files(*folders)}
    assert found
    return {path: each for path, each in found.items() if each}


def test_imports_point_down() -> None:
    assert found_in(wrong_arrows, *BELOW) == {}


def test_imports_between_the_rooms_of_a_folder_point_down() -> None:
    assert found_in(wrong_doors, *ROOMS) == {}


@pytest.mark.parametrize("folder", ROOMS)
def test_every_room_has_its_place_in_the_order(folder: str) -> None:
    assert {room_of(path) for path in source_files(folder)} == {None, *ROOMS[folder]}


def test_no_modules_import_each_other() -> None:
    arrows = {path: set(relative_modules(path, imports(path))) - {path} for path in source_files(*BELOW)}
    assert rings(arrows) == []


def waits_or_stores(_: Path, tree: ast.Module) -> set[str]:
    """Return the names of a core module that wait or store."""
    tops = {origin.split(".")[0] for _, origin in absolute_imports(tree)}
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tops & {"asyncio", "anyio", "pydantic"} | named & {"Log", "Registry"}


def test_the_core_neither_waits_nor_stores() -> None:
    assert found_in(waits_or_stores, "runtime/core", read=parsed) == {}
    assert waits_or_stores(Path(), ast.parse("import anyio.abc\nx: Log")) == {"anyio", "Log"}


def test_a_worker_that_drives_a_run_loads_nothing_of_the_console() -> None:
    asked = """
import asyncio, sys
from foldlog import Agent, Registry
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Runtime, Worker
from foldlog.runtime.driving.host import Host

async def main():
    registry, log = Registry(agents=[Agent("clerk", model="scripted:" + sys.argv[1])]), MemoryLog()
    worker = Worker(Host(log=log, registry=registry, worker="w"))
    serving = asyncio.create_task(worker.serve())
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(registry.agents["clerk"], "hello", executor="durable")
        assert (await run.result()).output == "done"
    worker.stop()
    await serving

asyncio.run(main())
print(*sys.modules)
"""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
        script.write('{"turns": [{"text": "done"}]}')
        script.flush()
        command = [sys.executable, "-c", asked, script.name]
        loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    servers = {"starlette", "uvicorn", "sse_starlette", "sqlite3", "httpx2", "prometheus_client"}
    ours = {"foldlog.adapters.console", "foldlog.adapters.http", "foldlog.projections.projector"}
    assert "foldlog.runtime.executors.worker" in loaded
    assert loaded & (servers | ours) == set()


def test_importing_the_core_loads_only_what_it_decides_about() -> None:
    asked = "import sys, foldlog.runtime.core.decide; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = set(told.stdout.split())
    assert loaded.isdisjoint({"anyio", "asyncio", "jsonschema", "nats", "pydantic", "pydantic_core"})
    ours = {name.removeprefix("foldlog.").partition(".")[0] for name in loaded if name.startswith("foldlog.")}
    assert ours == {"eventlog", "projections", "runtime"}
    rooms = {name.split(".")[2] for name in loaded if name.startswith("foldlog.runtime.")}
    assert rooms == {"core", "ports"}


def test_importing_an_agent_and_a_runtime_loads_no_library_that_only_some_runs_need() -> None:
    asked = "import sys; from foldlog import Agent, Runtime; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = set(told.stdout.split())
    assert "foldlog.runtime.agents.agent" in loaded
    assert loaded.isdisjoint(
        {"cryptography", "httpx", "httpx2", "jsonschema", "nats", "openai", "pydantic_ai"}
    )


def absolute_within(_: Path, tree: ast.Module) -> set[str]:
    """Return the packages of the distribution that a module imports by their full names."""
    return {origin.split(".")[0] for _, origin in absolute_imports(tree)} & {"foldlog", *BELOW}


def test_imports_within_the_distribution_are_relative() -> None:
    assert found_in(absolute_within, *BELOW) == {}
    assert absolute_within(Path(), ast.parse("import foldlog.runtime")) == {"foldlog"}


def test_only_ports_read_a_clock_or_throw_dice() -> None:
    assert found_in(lambda _, tree: clocks_and_dice(tree), *PURE, read=parsed) == PORTS


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("eventlog/codec.py", "from ..runtime import Agent"),
        ("eventlog/codec.py", "from .. import projections"),
        ("runtime/core.py", "from .. import eventlog, replay"),
        ("runtime/core.py", "from ... import anything"),
        ("eventlog/memory/log.py", "from ...projections.runs import fold"),
        ("projections/runs.py", "from ..runtime.core import decide"),
        ("runtime/core.py", "from ..adapters import cli"),
        ("runtime/core.py", "from ..replay.monitor import check"),
        ("replay/diff.py", "from ..adapters.cli import main"),
        ("adapters/runners.py", "from ..replay import diff"),
    ],
)
def test_an_arrow_that_points_the_wrong_way_is_found(path: str, line: str) -> None:
    assert wrong_arrows(Path(path), ast.parse(line))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("eventlog/codec.py", "from .events import Event"),
        ("eventlog/memory/log.py", "from ..ports import EventLog"),
        ("runtime/core.py", "from ..projections import fold"),
        ("adapters/cli/proof.py", "from ...replay import diff"),
    ],
)
def test_an_arrow_that_points_down_is_let_through(path: str, line: str) -> None:
    assert wrong_arrows(Path(path), ast.parse(line)) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("runtime/core/turn.py", "from ..journal.journal import Journal"),
        ("runtime/core/loop/stop.py", "from ...agents import agent"),
        ("runtime/journal/journal.py", "def late():\n    from ..driving import host"),
        ("runtime/ports/models.py", "from ..runtime import Runtime"),
        ("replay/traces/trace.py", "from ..parity.parity import check_parity"),
    ],
)
def test_a_wrong_door_between_rooms_is_found(path: str, line: str) -> None:
    assert wrong_doors(Path(path), ast.parse(line))


def test_a_ring_of_imports_is_found() -> None:
    a, b, c, d = (Path(f"{name}.py") for name in "abcd")
    assert rings({a: {b}, b: {c}, c: {b}, d: {a}}) == [{b, c}, {b, c}]


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import asyncio as a\na.sleep(1)",
        "from asyncio import sleep",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as d\nd.datetime.now(d.UTC)",
        "import uuid",
        "from random import choice",
        "import anyio\nanyio.to_thread.run_sync(print)",
        "from anyio.to_thread import run_sync",
        "import concurrent.futures",
        "import asyncio\nasyncio.get_running_loop().call_later(1, print)",
    ],
)
def test_a_clock_or_a_die_is_found(text: str) -> None:
    assert clocks_and_dice(ast.parse(text))
