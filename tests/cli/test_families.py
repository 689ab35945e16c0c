"""Every command on a family of many: a planner, sub-agents, a swarm, a loop, a fork; under way, over, and as a file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from foldlog.adapters.cli import app as root
from typer.testing import CliRunner, Result

from tests.cli.commands import Project, Running

MODULE = """
from foldlog.runtime import Agent, Registry, Swarm, ToolContext, tool
from foldlog.runtime import RalphLoop, Stop


@tool(effect="pure")
def measure(place: str) -> str:
    return f"{place}: 7 m"


@tool(effect="idempotent")
async def keep(text: str, ctx: ToolContext) -> str:
    kept = await ctx.artifact(text.encode(), "text/plain")
    return await ctx.memo("id", lambda: kept.id)


@tool
def publish(text: str) -> str:
    return "published"


def member(name, *tools, **fields):
    return Agent(name, model="scripted:company.json", instructions=f"You are {name}.", tools=list(tools), **fields)


lead = member("lead", measure, keep, planning_enabled=True, allow_parallel_subagents=True)
brevity = {"brevity": lambda scored: 1.0 if len(scored.output) < 10 else 0.5}
polish = RalphLoop(member("writer"), name="polish", scorers=brevity, stop=Stop(score_threshold=0.9))
closer = member("closer", publish, hitl_tools=["publish"])
company = Swarm([lead, polish, member("critic"), closer], "lead >> (polish | critic) >> closer", name="company")
registry = Registry(agents=[company])
"""

PLAN = [{"text": "1. Measure."}]


def call(number: int, name: str, **arguments: object) -> dict[str, object]:
    return {"id": str(number), "name": name, "arguments": arguments}


SCENES = [
    {
        "input": "Survey",
        "planner": PLAN,
        "turns": [
            {
                "tool_calls": [
                    call(1, "parallel_subagents", jobs=[{"task": "the pier"}, {"task": "the reef"}]),
                    call(2, "keep", text="x"),
                ]
            },
            {"text": ["two ", "places"]},
        ],
    },
    {
        "input": "the pier",
        "planner": PLAN,
        "turns": [{"tool_calls": [call(1, "measure", place="pier")]}, {"text": "7 m"}],
    },
    {"input": "the reef", "planner": PLAN, "turns": [{"text": "2 m"}]},
    {"input": "do better", "turns": [{"text": "short"}]},
]
AGENTS = {
    "lead": [],
    "writer": [{"text": "a long headline"}],
    "critic": [{"text": "good"}],
    "closer": [{"tool_calls": [call(1, "publish", text="t")]}, {"text": "done"}],
}
MODEL = {
    "scenes": [
        *SCENES,
        *({"system": f"You are {name}.", "turns": turns} for name, turns in AGENTS.items() if turns),
    ]
}
SCRIPT = {
    "input": "Survey the harbour",
    "agents": AGENTS,
    "scenes": SCENES,
    "inputs": [{"type": "answer", "call": "1.0", "run": "company/closer#0"}],
}
Command = Callable[..., Result]


@pytest.fixture
def foldlog(project: Project, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, on the real server."""
    place = project.place
    (place / "project_families.py").write_text(MODULE)
    (place / "company.json").write_text(json.dumps(MODEL))
    (place / "script.json").write_text(json.dumps(SCRIPT))
    monkeypatch.chdir(place)
    for name, value in project.environ.items():
        monkeypatch.setenv(name, value)

    def command(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(root.app, args)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return command


def only(found: list[dict[str, object]], **fields: object) -> str:
    (row,) = [row for row in found if row.items() >= fields.items()]
    return str(row["run_id"])


def test_every_command_works_on_a_family_under_way_over_forked_and_as_a_file(
    foldlog: Command, project: Project
) -> None:
    foldlog("run", "project_families:company", "Survey the harbour", "--run-id", "c1", "--no-wait", code=5)
    judged(foldlog, "c1")
    foldlog("events", "export", "c1", "--artifacts", "-o", "going.jsonl")
    judged(foldlog, "going.jsonl")

    closer = only(json.loads(foldlog("runs", "list", "--children", "--json").stdout), agent="closer")
    assert "publish" in foldlog("runs", "pending", closer).stdout
    assert "refused" not in foldlog("runs", "history", closer).stdout
    (asked,) = json.loads(foldlog("approvals", "list", "--json").stdout)
    foldlog("approvals", "approve", asked["approval_id"])
    foldlog("runs", "drive", "c1", "project_families:registry")
    judged(foldlog, "c1")
    assert "approval_resolved(approved)" in foldlog("diff", "going.jsonl", "c1", code=1).stdout
    told_what_it_took(foldlog)

    fork = ("fork", closer, "project_families:registry", "--at", "8", "--tools", "run", "--run-id", "f1")
    foldlog(*fork, "--yes", "--no-wait", code=5)  # it asks for an approval of its own
    judged(foldlog, "f1")
    foldlog("diff", "f1", "f1")
    whole = (
        "fork",
        "c1",
        "project_families:registry",
        "--at",
        "7",
        "--tools",
        "run",
        "--run-id",
        "f2",
        "--yes",
    )
    foldlog(*whole, "--no-wait", code=5)
    judged(foldlog, "f2")

    foldlog("events", "export", "--all", "--artifacts", "-o", "all.jsonl")
    judged(foldlog, "all.jsonl", single=False)
    foldlog("events", "import", "all.jsonl", "--namespace", f"{project.environ['FOLDLOG_NAMESPACE']}-b")
    there = ("--namespace", f"{project.environ['FOLDLOG_NAMESPACE']}-b")
    judged(foldlog, "c1", *there)
    foldlog("events", "verify", "--all", *there)


def told_what_it_took(foldlog: Command) -> None:
    """The swarm takes no step of its own; what it took with all below it is the sum over the runs of its family."""
    rows = json.loads(foldlog("runs", "list", "--children", "--json").stdout)
    (swarm,) = [row for row in rows if row["run_id"] == "c1"]
    family = [row for row in rows if row["root_id"] == "c1"]
    took = swarm["family"]
    assert (swarm["steps"], took["runs"]) == (0, len(family))
    assert took["steps"] == sum(row["steps"] for row in family) > len(family)
    assert took["usage"]["total_tokens"] == sum(row["usage"]["total_tokens"] for row in family)
    (loop,) = [row["family"] for row in family if row["agent"] == "polish"]
    assert (loop["runs"], loop["steps"]) == (3, 2)
    assert json.loads(foldlog("runs", "show", "c1", "--json").stdout)["family"] == took
    assert f"{took['runs']} runs, {took['steps']} steps" in foldlog("runs", "show", "c1").stdout
    (line,) = [each for each in foldlog("runs", "list").stdout.splitlines() if each.startswith("c1\t")]
    assert f"\t{took['runs']}\t" in line


def judged(foldlog: Command, what: str, *options: str, single: bool = True) -> None:
    """Whole, in order, decided once more, and equal to itself."""
    assert foldlog("events", "verify", what, *options).stdout.startswith("whole: ")
    assert "0 violation(s)" in foldlog("monitor", "--once", what, *options).output
    if single:
        assert "agrees" in foldlog("replay", what, *options).output
        assert foldlog("rerun", what, *options).stdout.startswith("equal")
        foldlog("diff", what, what, *options)


def test_executors_agree_about_the_family_and_random_schedules_too(foldlog: Command) -> None:
    done = foldlog("parity", "project_families:company", "--script", "script.json", "--faults", "crash@22")
    assert "parity: equal (" in done.stdout
    assert "failed" not in done.stdout
    foldlog(
        "simulate",
        "project_families:company",
        "--script",
        "script.json",
        "--schedules",
        "2",
        "--processes",
        "1",
    )


def test_a_worker_drives_the_family(foldlog: Command, start: Callable[..., Running]) -> None:
    worker = start("worker", "project_families:registry")
    done = foldlog(
        *("run", "project_families:company", "Survey the harbour", "--run-id", "c2"),
        *("--executor", "durable", "--no-wait"),
        code=5,
    )
    assert "publish" in done.output
    worker.interrupt()
    assert worker.end().code in {0, 130}


def test_copies_of_one_agent_are_told_apart_and_what_each_says_is_shown(foldlog: Command) -> None:
    told = foldlog("run", "project_families:company", "Survey the harbour", "--no-wait", code=5).output
    assert "[company/lead/lead] 7 m" in told
    assert "[company/lead/lead#2] 2 m" in told
    assert "[company/lead] ↳ lead#2 completed" in told
    assert "[company/polish/writer#2] short" in told


def test_a_run_that_failed_everywhere_is_equal_and_said_to_have_failed(
    foldlog: Command, project: Project
) -> None:
    script = {**SCRIPT, "scenes": [], "inputs": []}
    (project.place / "failing_script.json").write_text(json.dumps(script))
    done = foldlog("parity", "project_families:company", "--script", "failing_script.json")
    assert "the run failed: node_failed: " in done.stdout


def test_a_script_has_turns_or_those_of_its_agents(foldlog: Command) -> None:
    Path("empty.json").write_text("{}")
    done = foldlog("parity", "project_families:company", "--script", "empty.json", code=2)
    assert "a script is an object" in done.stderr
