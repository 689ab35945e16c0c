"""`foldlog replay`: compare stored runs with what the installed code would decide, or show an earlier state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json, RunOrFile
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.errors import FoldlogError
    from ....replay import Point, Replay
    from ....runtime import Registry
    from ..output.terminal import Screen

Outcome = tuple[str, str, "Replay | FoldlogError"]
"""File or run, the root, and the outcome."""


def replay(
    context: typer.Context,
    what: RunOrFile = None,
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="REV", help="Show the state after this revision instead."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="With --at: run of the family.")
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents", metavar="MODULE:REGISTRY", help="Also check prompts and tools against these agents."
        ),
    ] = None,
    golden: Annotated[
        Path | None, typer.Option("--golden", metavar="DIR", help="Replay every *.jsonl in this directory.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the outcome as JUnit XML.")
    ] = None,
    json: Json = False,
) -> int:
    """Re-run the decision logic over a stored run.

    Reports the first decision that differs, model requests included, with exit code 1. Nothing is called and nothing is
    written.
    """
    from ..loops import run_async

    if (what is None) == (golden is None):
        raise typer.BadParameter("give a RUN, a FILE or --golden DIR")
    if at is not None:
        if what is None:
            raise typer.BadParameter("--at needs a RUN or a FILE")
        return run_async(_show_point(settings_of(context), what, at, run, json=json))
    names = [what] if what is not None else _golden_files(golden or Path())
    return run_async(_replay(settings_of(context), names, agents, junit, json=json))


def _golden_files(directory: Path) -> list[str]:
    from ....eventlog.errors import ConfigError

    found = sorted(map(str, directory.glob("*.jsonl")))
    if not found:
        raise ConfigError(f"no *.jsonl in {directory}")
    for name in found:
        if not Path(name).is_file():  # reading a pipe would block
            raise ConfigError(f"{name} is not a regular file")
    return found


async def _replay(
    settings: Settings, names: list[str], agents: str | None, junit: Path | None, *, json: bool
) -> int:
    from ..loading import load_registry
    from ..output.terminal import Screen

    registry = load_registry(agents) if agents is not None else None
    outcomes = [outcome for name in names for outcome in await _outcomes(settings, name, registry)]
    screen = Screen(settings)
    if junit is not None:
        _write_junit(junit, outcomes)
    if json:
        screen.json([_document(*outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            _tell(screen, *outcome)
    return OK if all(_agrees(found) for _, _, found in outcomes) else NO


async def _outcomes(settings: Settings, name: str, registry: Registry | None) -> list[Outcome]:
    from ....eventlog.errors import FoldlogError, LogCorrupted
    from ....replay import replay as replay_of
    from ..traces import load_traces

    try:
        traces = await load_traces(settings, name)
    except LogCorrupted as error:
        return [(name, error.run, error)]
    outcomes: list[Outcome] = []
    for trace in traces:
        try:
            outcomes.append((name, trace.root, replay_of(trace, registry)))
        except FoldlogError as error:
            outcomes.append((name, trace.root, error))
    return outcomes


def _agrees(found: Replay | FoldlogError) -> bool:
    return not isinstance(found, Exception) and found.agrees


def _tell(screen: Screen, name: str, root: str, found: Replay | FoldlogError) -> None:
    from ..output.escaping import one_line, shown

    where = root if name == root else f"{name} {root}"
    if isinstance(found, Exception):
        screen.tell(("✗ ", "bold red"), where, ("  " + one_line(str(found)), "red"))
        return
    if found.divergence is None:
        counts = f"{found.turns} turns, {found.requests} model requests"
        screen.tell(("✓ ", "green"), where, (f"  agrees ({counts})", "dim"))
    else:
        screen.tell(("✗ ", "bold red"), where, (f"  {one_line(str(found.divergence))}", "red"))
        for field, (recorded, decided) in found.divergence.values.items():
            screen.tell((f"    {field}: recorded ", "dim"), shown(recorded, 300))
            screen.tell((f"    {field}: now      ", "dim"), shown(decided, 300))
    for run, revision in found.unread.items():
        screen.tell((f"    run {run} has events of a newer release from revision {revision} on", "yellow"))


def _document(name: str, root: str, found: Replay | FoldlogError) -> dict[str, Any]:
    if isinstance(found, Exception):
        return {"source": name, "root": root, "agrees": False, "error": str(found)}
    document: dict[str, Any] = {
        "source": name,
        "root": root,
        "agrees": found.agrees,
        "runs": found.runs,
        "turns": found.turns,
        "shared": found.shared,
        "requests": found.requests,
        "unread": found.unread,
        "divergence": None,
    }
    if found.divergence is not None:
        first = found.divergence
        document["divergence"] = {
            "run": first.run,
            "revision": first.revision,
            "why": first.why,
            "recorded": first.recorded.type if first.recorded is not None else None,
            "decided": first.decided.type if first.decided is not None else None,
            "fields": list(first.fields),
            "values": {name: list(pair) for name, pair in first.values.items()},
        }
    return document


# --- for CI -----------------------------------------------------------------------------------------------------------


def _write_junit(path: Path, outcomes: list[Outcome]) -> None:
    from ....eventlog.errors import ConfigError

    try:
        path.write_bytes(junit_of(outcomes))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def junit_of(outcomes: list[Outcome]) -> bytes:
    """Return JUnit XML: a test case for each family, with a failure if a decision differs."""
    from xml.etree.ElementTree import Element, SubElement, tostring

    failed = sum(not _agrees(found) for _, _, found in outcomes)
    suite = Element(
        "testsuite", name="foldlog replay", tests=str(len(outcomes)), failures=str(failed), errors="0"
    )
    for name, root, found in outcomes:
        case = SubElement(suite, "testcase", classname=_xml(Path(name).stem), name=_xml(root))
        if not _agrees(found):
            told = str(found) if isinstance(found, Exception) else str(found.divergence)
            failure = SubElement(case, "failure", message=_xml(told))
            failure.text = _xml(_details(found))
    return bytes(tostring(suite, encoding="utf-8", xml_declaration=True))


def _details(found: Replay | FoldlogError) -> str:
    from ..output.escaping import shown

    if isinstance(found, Exception) or found.divergence is None:
        return str(found)
    pairs = found.divergence.values.items()
    return "\n".join(f"{field}: recorded {shown(a, 2000)}, now {shown(b, 2000)}" for field, (a, b) in pairs)


def _xml(text: str) -> str:
    """Replace the characters that XML cannot hold: a model's text may have any."""
    import re

    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)


# --- the state at any point -------------------------------------------------------------------------------------------


async def _show_point(settings: Settings, what: str, revision: int, run: str | None, *, json: bool) -> int:
    from ....replay import state_at
    from ..output.terminal import Screen
    from ..traces import family_named, is_file, load_traces, run_in

    traces = await load_traces(settings, what)
    named = run if run is not None or is_file(what) else what
    point = state_at(
        family_named(what, traces, named),
        revision,
        run_in(what, traces, named) if named is not None else None,
    )
    screen = Screen(settings)
    if json:
        screen.json(point_document(point))
    else:
        _tell_point(screen, point)
    return OK


def point_document(point: Point) -> dict[str, Any]:
    """Return the state at a point as JSON builtins."""
    import msgspec

    state = point.state
    return {
        "run": state.run,
        "revision": point.revision,
        "event": point.event.type,
        "at": point.at,
        "status": state.status,
        "reason": state.paused or (state.terminal.reason if state.terminal is not None else ""),
        "step": state.step,
        "step_open": state.step_open,
        "epoch": state.epoch,
        "owner": state.owner,
        "usage": msgspec.to_builtins(state.usage),
        "cost_usd": state.cost_usd,
        "budgets": msgspec.to_builtins(point.budgets),
        "nodes": [
            {
                "name": node.name,
                "ordinal": node.ordinal,
                "run": node.child_run,
                "status": node.status or "running",
            }
            for node in state.nodes
        ],
        "messages": msgspec.to_builtins(state.messages),
        "queue": list(state.queued_texts),
        "calls": [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "attempt": call.attempt,
                "status": "open" if call.result is None else call.result.metadata.get("status", ""),
            }
            for call in state.calls.values()
        ],
        "approvals": [
            {"id": key, "kind": each.request.kind, "call": each.request.tool_call_id, "pending": each.pending}
            for key, each in state.approvals.items()
        ],
        "pending": [
            {"effect": type(effect).__name__, **msgspec.to_builtins(effect)} for effect in point.pending
        ],
    }


def _tell_point(screen: Screen, point: Point) -> None:
    from ..output.escaping import one_line, shown

    found = point_document(point)
    reason = f", {one_line(found['reason'])}" if found["reason"] else ""
    screen.tell(
        (f"run {found['run']} after revision {point.revision} ({point.event.type}): ", "bold"),
        f"{found['status']}{reason}",
    )
    if found["step"]:
        screen.tell(
            f"step {found['step']} {'open' if found['step_open'] else 'completed'}, epoch {found['epoch']}"
        )
    for budget in found["budgets"]:
        used = "an unknown amount" if budget["used"] is None else budget["used"]
        screen.tell(("  budget     ", "dim"), f"{budget['name']}: {used} of {budget['limit']} used")
    for node in found["nodes"]:
        screen.tell(("  node       ", "dim"), f"{one_line(node['name'])} {node['status']} ({node['run']})")
    for message in found["messages"]:
        asked = ", ".join(call["name"] for call in message.get("tool_calls", ()))
        said = shown(message.get("content", ""), 200) + (f" → {one_line(asked)}" if asked else "")
        screen.tell((f"  {message['role']:<10} ", "dim"), said)
    for text in found["queue"]:
        screen.tell(("  queued     ", "dim"), shown(text, 200))
    for call in found["calls"]:
        screen.tell(
            ("  call       ", "dim"),
            f"{one_line(call['name'])} {shown(call['arguments'], 160)}: {call['status']}",
        )
    for approval in found["approvals"]:
        screen.tell(
            ("  approval   ", "dim"), f"{approval['id']} {'pending' if approval['pending'] else 'decided'}"
        )
    for effect in found["pending"]:
        rest = {key: value for key, value in effect.items() if key not in {"effect", "type"}}
        screen.tell(("  effect     ", "cyan"), f"{effect['effect']} {shown(rest, 160)}")
