"""A deploy as it happens: worker processes of the old and of the new version, side by side on a real server."""

import signal
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tests.cli.commands import Project, Running

Start = Callable[..., Running]

OLD = '''
"""The old version."""
from foldlog.runtime import Agent, Registry, tool
from shop import model, note

@tool
async def refund(amount: int) -> str:
    """Give money back."""
    return note(f"refund {amount}")

@tool
async def bill(amount: int) -> str:
    """Send a bill."""
    return note(f"bill {amount}")

@tool
async def pay(amount: int) -> str:
    """Pay."""
    return note(f"pay {amount}")

def agent(name, used):
    return Agent(name, model=model(used.spec.name), tools=[used], hitl_tools=[used.spec.name])

removes, renames, requires = agent("removes", refund), agent("renames", bill), agent("requires", pay)
registry = Registry(agents=[removes, renames, requires])
'''

NEW = '''
"""The new version: `refund` is gone, `bill` is `invoice`, and `pay` wants a currency."""
from foldlog.runtime import Agent, Registry, tool
from shop import model, note

@tool
async def invoice(amount: int) -> str:
    """Send a bill."""
    return note("by the new version")

@tool
async def pay(amount: int, currency: str) -> str:
    """Pay."""
    return note("by the new version")

registry = Registry(agents=[
    Agent("removes", model=model("refund"), tools=[]),
    Agent("renames", model=model("bill"), tools=[invoice], hitl_tools=["invoice"]),
    Agent("requires", model=model("pay"), tools=[pay], hitl_tools=["pay"]),
])
'''

SHOP = """
import json
from pathlib import Path

def note(line):
    with Path("diary").open("a") as diary:
        diary.write(line + "\\n")
    return "done"

def model(tool):
    path = Path(f"{tool}.json").absolute()
    call = {"id": "c1", "name": tool, "arguments": {"amount": 5}}
    path.write_text(json.dumps({"turns": [{"tool_calls": [call]}, {"text": ["all done"]}]}))
    return f"scripted:{path}"
"""

LACKS = {
    "removes": "there is no tool 'refund'",
    "renames": "there is no tool 'bill'",
    "requires": "the tool 'pay' has changed: it now requires 'currency'",
}


def worker(start: Start, version: str, name: str) -> Running:
    running = start("worker", f"{version}:registry", "--name", name, FOLDLOG_BUILD=f"of-{version}")
    running.until(f"worker {name} of build of-{version} serves")
    return running


def test_runs_of_the_old_version_wait_for_a_worker_of_it_and_nothing_they_did_is_lost(
    project: Project, start: Start
) -> None:
    place = Path(project.place)
    for name, source in (("shop", SHOP), ("old_version", OLD), ("new_version", NEW)):
        (place / f"{name}.py").write_text(source)
    old = worker(start, "old_version", "old")
    for agent in LACKS:
        began = project.run("run", f"old_version:{agent}", "q", "--executor", "durable", "--no-wait")
        assert began.code == 5
    runs = {row["agent"]: row["run_id"] for row in project.run("runs", "list", "--json").document}
    (told,) = project.run("doctor", "--json").document["workers"]
    assert told["worker"] == "old"
    assert (told["build"], told["serves"], told["concurrency"]) == ("of-old_version", sorted(LACKS), 100)
    assert told["pid"] > 0
    assert told["host"]
    assert told["release"] == version("foldlog")
    assert (
        project.run("preflight", "old_version:registry")
        .err.strip()
        .endswith("checked 3 runs, 0 schedules, 0 hooks: all fit")
    )
    unfit = project.run("preflight", "new_version:registry", "--json")
    assert (unfit.code, unfit.document["fits"]) == (1, False)
    reasons = {found["agent"]: found for found in unfit.document["misfits"]}
    assert {agent: found["name"] for agent, found in reasons.items()} == runs
    assert all(lacks in reasons[agent]["reason"] for agent, lacks in LACKS.items())
    old.interrupt(signal.SIGTERM)
    assert old.end().code == 0
    for row in project.run("approvals", "list", "--json").document:
        assert project.run("approvals", "approve", row["approval_id"]).code == 0
    assert {row["reason"] for row in project.run("runs", "list", "--json").document} == {
        f"no live worker serves {agent!r}" for agent in LACKS
    }
    doctor = project.run("doctor", "--json")
    assert (doctor.code, doctor.document["healthy"], doctor.document["workers"]) == (1, False, [])
    assert {row["run_id"]: row["agent"] for row in doctor.document["waiting"]} == {
        run: agent for agent, run in runs.items()
    }
    watching = start("runs", "stream", runs["removes"], "--json")
    watching.until("waiting for a worker serving removes; no live worker does")
    new = worker(start, "new_version", "new")
    watching.until(f"waiting for another worker: agent 'removes': {LACKS['removes']}")
    for agent, lacks in LACKS.items():
        assert lacks in new.until(f"run {runs[agent]} waits for another worker")
        assert lacks in project.run("runs", "pending", runs[agent]).out
        assert lacks in project.run("runs", "show", runs[agent]).out
    rows = {row["agent"]: row for row in project.run("runs", "list", "--json").document}
    assert {
        agent: (row["status"], row["waiting_for"], row["epoch"]) for agent, row in rows.items()
    } == dict.fromkeys(LACKS, ("running", "worker", 1))
    assert all(lacks in rows[agent]["reason"] for agent, lacks in LACKS.items())
    doctor = project.run("doctor")
    assert doctor.code == 1
    assert all(lacks in doctor.out for lacks in LACKS.values())
    assert "new (build of-new_version, foldlog " in doctor.out
    worker(start, "old_version", "older")
    for run in runs.values():
        ended = project.run("runs", "stream", run)
        assert (ended.code, ended.out) == (0, "all done\n")
        assert "by older (epoch 2, build of-old_version)" in project.run("runs", "show", run).out
    assert project.run("doctor").code == 0
    assert sorted((place / "diary").read_text().splitlines()) == ["bill 5", "pay 5", "refund 5"]


HOOKED = """
[schedules.nightly]
agent = "nobody"
every = "1d"
input = "x"
[schedules.fine]
agent = "helper"
every = "1d"
input = "x"
[hooks.after]
on = "run.completed"
of = "helper"
agent = "missing"
[hooks.posted]
verify = "standard"
secret = "secret://POSTED"
agent = "gone"
input = "x"
"""


def test_a_preflight_finds_schedules_and_hooks_whose_agents_are_missing(
    project: Project, tmp_path: Path
) -> None:
    config = tmp_path / "foldlog.toml"
    config.write_text(HOOKED)
    project.environ["FOLDLOG_CONFIG"] = str(config)
    assert project.run("schedules", "apply").code == 0
    done = project.run("preflight", "project_agents:registry", "--json")
    assert done.code == 1
    assert done.document["checked"] == {"run": 0, "schedule": 2, "hook": 2}
    assert {(found["kind"], found["name"], found["agent"]) for found in done.document["misfits"]} == {
        ("schedule", "nightly", "nobody"),
        ("hook", "after", "missing"),
        ("hook", "posted", "gone"),
    }


FLOW = """
from foldlog.runtime import Registry, WorkflowRun, workflow

@workflow
async def hold(run: WorkflowRun, what: str) -> str:
    await run.memo("NAME", lambda: 1)
    await run.wait_for("go")
    return what

registry = Registry(workflows=[hold])
"""


def test_a_preflight_names_open_workflows_whose_code_has_changed(project: Project, start: Start) -> None:
    for name in ("before", "after"):
        (Path(project.place) / f"flow_{name}.py").write_text(FLOW.replace("NAME", name))
    worker(start, "flow_before", "flows")
    started = ("run", "flow_before:hold", "x", "--executor", "durable", "--run-id", "held", "--no-wait")
    assert project.run(*started).code == 5
    assert (
        "checked 1 run, 0 schedules, 0 hooks: all fit" in project.run("preflight", "flow_before:registry").err
    )
    unfit = project.run("preflight", "flow_after:registry")
    assert unfit.code == 1
    told = "run held of hold: before#0 (revision 5): the log has memo before, the code asks for"
    assert told in unfit.out + unfit.err
    assert "1 would not go on with this registry" in unfit.err


def test_a_preflight_of_nothing_fits_and_wrong_words_are_told_in_a_line(project: Project) -> None:
    done = project.run("preflight", "project_agents:registry")
    assert (done.code, done.out) == (0, "")
    assert "checked 0 runs, 0 schedules, 0 hooks: all fit" in done.err
    assert project.run("preflight", "project_agents:nope").code == 2
    assert "no agents" in project.run("preflight", "project_agents:empty").error
    assert "choose another --server" in project.run("preflight", "project_agents:one", "-s", "memory://").err
    built = project.run("worker", "project_agents:one", "--build", "two words")
    assert built.code == 2
    assert "the build 'two words' is not a name" in built.error
