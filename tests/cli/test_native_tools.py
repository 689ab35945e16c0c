"""Native tools on the command line: in the timeline, in exports and imports, in replays, reruns and forks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import Project

AGENT = """
from foldlog.runtime import Agent, Registry, tool

@tool(effect="pure")
def note(of: str) -> str:
    "Note something."
    return f"noted {of}"

finder = Agent("finder", model="scripted:finder.json", tools=[note], native_tools=["web_search"])
registry = Registry(agents=[finder])
"""
SEARCHED = {
    "name": "web_search",
    "arguments": {"query": "Ann"},
    "result": [{"url": "https://example.com/ann"}],
}
FAILED = {"name": "web_search", "arguments": {"query": "Bob"}, "error": "no results"}
TURNS = [
    {
        "provider_calls": [SEARCHED, FAILED],
        "tool_calls": [{"id": "1", "name": "note", "arguments": {"of": "Ann"}}],
    },
    {"text": "Ann is a painter."},
]


def test_what_a_provider_did_is_in_the_timeline_and_goes_wherever_the_run_goes(
    project: Project, place: Path, tmp_path: Path
) -> None:
    (place / "native_agents.py").write_text(AGENT)
    (place / "finder.json").write_text(json.dumps({"turns": TURNS}))
    run = project.run("run", "native_agents:registry", "Who is Ann?", "--json").lines[0]["run_id"]
    rows = project.run("runs", "show", run).out
    for row in (
        '→ web_search\t\tby the provider {"query":"Ann"}',
        '← web_search\t\t[{"url":"https://example.com/ann"}]',
        '→ web_search\t\tby the provider {"query":"Bob"}',
        "← web_search\t\tno results",
        '→ note\t\t{"of":"Ann"}',
    ):
        assert row in rows
    file = str(tmp_path / "run.jsonl")
    assert project.run("events", "export", run, "-o", file, "--artifacts").code == 0
    commits = [json.loads(json.loads(line)["data"]) for line in Path(file).read_text().splitlines()]
    events = [event for commit in commits for event in commit["events"] if event["type"] == "tool_call"]
    assert [event.get("executed_by", "") for event in events] == ["provider", "provider", ""]
    for command in ("verify", "replay", "rerun", "monitor"):
        named = ("events", "verify") if command == "verify" else (command,)
        done = project.run(*named, file)
        assert done.code == 0, done.out + done.err
    other = Project(project.place, project.server, f"{project.environ['FOLDLOG_NAMESPACE']}-2")
    assert other.run("events", "import", file).code == 0

    def searches(shown: str) -> list[list[str]]:
        return [row.split("\t")[2:] for row in shown.splitlines() if "web_search" in row]

    assert len(searches(rows)) == 4
    assert searches(other.run("runs", "show", run).out) == searches(rows)
    at = next(row.split("\t")[1] for row in rows.splitlines() if "step 1 completed" in row)
    fork = ("fork", run, "native_agents:registry", "--at", at, "--run-id", "forked", "--yes", "--quiet")
    assert other.run(*fork).code == 0
    assert searches(other.run("runs", "show", "forked").out) == searches(rows)
