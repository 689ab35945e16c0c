"""The output of commands on real terminals of 80 and of 120 columns."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.commands import Project
from tests.cli.project import call

MODULE = '''
from foldlog.runtime import Agent, Registry, Swarm, tool

@tool(effect="pure")
def measure(place: str) -> str:
    """Measure."""
    return f"{place} is 7 m long"

@tool(effect="unsafe")
def publish_the_quarterly_report_to_all_customers(text: str) -> str:
    """Publish."""
    return "done"

def member(name, file, *tools, **fields):
    return Agent(name, model=f"scripted:wide-{file}.json", tools=list(tools), **fields)

publish = publish_the_quarterly_report_to_all_customers
LONG = "triage-of-complaints-and-their-escalation-for-all-regions"
closer = member("closer", "closer", publish, hitl_tools=[publish.spec.name])
report = Swarm(
    [member("copier", "copier", measure, allow_self_spawn=True), member(LONG, "triage"), closer],
    f"(copier | {LONG}) >> closer",
    name="the-quarterly-report-of-the-whole-company",
)
broken = member("broken-" + LONG, "broken")
patient = member("patient", "patient", retry={"base_s": 3000, "max_s": 5000, "jitter": False})
nobody = member("served-by-nobody", "triage")
'''
TEXT = "First line\nSecond  line\n" + "a long line " * 12
COPIES = [
    {"input": "bottom", "turns": [call("measure", {"place": "the pier"}), {"text": "bottom"}]},
    {"input": "middle", "turns": [call("spawn_self", {"task": "bottom"}), {"text": "middle"}]},
    {"input": "top", "turns": [call("spawn_self", {"task": "middle"}), {"text": "top"}]},
]
SCRIPTS = {
    "copier": {"turns": [], "scenes": COPIES},
    "triage": {"turns": [{"text": "nothing to be done " * 12}]},
    "closer": {"turns": [call("publish_the_quarterly_report_to_all_customers", {"text": TEXT})]},
    "broken": {"turns": [{"error": {"type": "auth", "times": 99}}]},
    "patient": {"turns": [{"error": {"type": "rate_limit", "times": 99}}]},
}
WHY = "it is not needed any more, since the customer has called us and has told us a long story about it"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def runs(project: Project) -> dict[str, str]:
    """A family that waits for an approval below it, and runs that failed, wait and were cancelled, by their agents."""
    (project.place / "wide_agents.py").write_text(MODULE)
    for name, script in SCRIPTS.items():
        (project.place / f"wide-{name}.json").write_text(json.dumps(script))
    assert project.run("run", "wide_agents:report", "top", "--no-wait").code == 5
    assert project.run("run", "wide_agents:broken", "x").code == 1
    assert project.run("run", "wide_agents:patient", "x", "--timeout", "1").code == 4
    durable = ("run", "wide_agents:nobody", "x", "--executor", "durable", "--timeout", "0")
    assert project.run(*durable, "--run-id", "my-own-id").code == 4
    assert project.run(*durable).code == 4
    assert project.run("runs", "cancel", "my-own-id", "--reason", WHY).code == 0
    rows = project.run("runs", "list", "--children", "--json").document
    return {f"{row['agent']} {row['status']}": row["run_id"] for row in rows}


def shown(project: Project, width: int, *args: str) -> list[str]:
    """The lines on the terminal, none of which the terminal itself has to break."""
    lines = re.sub("\x1b[^m]*m", "", project.on_terminal(*args, width=width)).splitlines()
    assert [line for line in lines if len(line) > width or line != line.rstrip()] == []
    return lines


def flat(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", [80, 120])
def test_what_names_things_and_says_how_they_stand_is_whole_on_a_terminal(
    project: Project, runs: dict[str, str], width: int
) -> None:
    family = next(run for name, run in runs.items() if name.startswith("the-quarterly"))
    closer = runs["closer paused"]
    name = "publish_the_quarterly_report_to_all_customers"

    lines = shown(project, width, "runs", "list", "--children")
    assert {"run", "agent", "status", "rev", "submitted"} <= set(lines[0].split())
    rows = [line for line in lines[1:] if not line.startswith("    ")]
    status = "|".join(sorted({each.split()[1] for each in runs}))
    for line, row in zip(rows, project.run("runs", "list", "--children", "--json").document, strict=True):
        found = re.match(rf"…?(\S+) +((?:└ )?\S+) +({status}) +(\d+) +.*{MOMENT}", line)
        assert found is not None, line
        end, agent, stands, revision = found.groups()
        assert row["run_id"].endswith(end)
        assert (stands, int(revision)) == (row["status"], row["revision"])
        assert row["agent"].startswith(agent.removeprefix("└ ").removesuffix("…"))
        assert ("└ " in agent) == (row["root_id"] != row["run_id"])
    tree = [line.split("└ ")[0].count("  ") for line in rows if "└ copier" in line]
    assert tree == sorted(tree)
    assert len(set(tree)) == 3
    for reason in (
        WHY,
        "is asked again at ",
        "auth: scripted:",
        "No worker serves agent `served-by-nobody`.",
        "Waits for child `closer` (paused: approval).",
        f"Waits for people: {name}",
    ):
        assert reason in flat(lines)

    lines = shown(project, width, "runs", "show", family)
    assert "└ copier" in flat(lines)
    assert "".join(lines).count(closer) == 1  # in the command that is there to be copied
    assert f"→ {name}" in flat(lines)
    assert any("│ Second  line" in line for line in lines)
    assert f"started …{closer[-6:]}" in flat(lines)
    assert all(word in flat(lines) for word in ("step 1 completed", "paused", "approval"))
    assert len({line.index("rev") for line in lines if line.startswith("at ")}) == 1

    lines = shown(project, width, "approvals", "list")
    (approval,) = project.run("approvals", "list", "--json").document
    assert re.match(rf"{approval['approval_id']} +.*pending +{MOMENT}", lines[1])
    assert closer in flat(lines)
    assert name in flat(lines)
    assert "│ First line" in flat(lines)

    lines = shown(project, width, "runs", "pending", closer)
    assert approval["approval_id"] in flat(lines)
    assert name in flat(lines)
    lines = shown(project, width, "runs", "pending", family)
    assert f"└ closer …{closer[-6:]} closer is paused, waits: approval" in flat(lines)
    lines = shown(project, width, "runs", "pending", runs["patient running"])
    assert re.search(f"again at {MOMENT}", flat(lines))


@pytest.mark.parametrize("width", [80, 120])
def test_every_list_fits_the_terminal_with_its_names_states_and_times_whole(
    project: Project, runs: dict[str, str], width: int
) -> None:
    schedule = 'agent = "patient"\nevery = "1d"'
    (project.place / "wide.toml").write_text(f"[schedules.{'nightly-' * 7}run]\n{schedule}\n")
    assert project.run("schedules", "apply", "wide.toml").code == 0
    assert project.run("tokens", "issue", "ada-of-the-night-shift", "--role", "operator").code == 0
    lane, user, name = (
        "customer-of-the-northern-region-17",
        f"{'anna-' * 11}@example.com",
        "of-complaints-" * 4,
    )
    held = ("run", "wide_agents:patient", "x", "--session", lane, "--timeout", "1")
    key = project.run("keys", "generate").out.strip()
    config = project.place / "wide_config.toml"
    config.write_text(
        f'[budgets]\n"user:{user}" = {{ tokens = 1_000, per = "day" }}\n[limits]\nnamespace = 9\n'
    )
    project.environ |= {"SEAL_KEY": key, "FOLDLOG_SEAL": "env:SEAL_KEY", "FOLDLOG_CONFIG": str(config)}
    assert project.run(*held, "--user", user).code == 4
    (project.place / "wide_plan.json").write_text(json.dumps({"name": f"{name}p", "steps": [TEXT]}))
    assert project.run("plans", "save", "wide_plan.json", "--note", TEXT).code == 0
    roots = [row["run_id"] for row in project.run("runs", "list", "--json").document]
    for command, whole in (
        (("runs", "list"), roots),
        (("jobs", "list"), roots),
        (("jobs", "show", roots[0]), roots[:1]),
        (("lanes", "list"), [roots[0], lane]),
        (("schedules", "list"), [f"{'nightly-' * 7}run"]),
        (("tokens", "list"), ["ada-of-the-night-shift", "operator"]),
        (("keys", "list"), [f"user:{user}"]),
        (("budgets", "list"), [f"user:{user}", "1,000 tokens a day"]),
        (("costs", "--by", "agent"), ["triage-of-complaints-and-their-escalation-for-all-regions"]),
        (("plans", "list"), [f"{name}p", "pending"]),
        (("plans", "show", f"{name}p"), [flat([TEXT]), "pending"]),
    ):
        lines = shown(project, width, *command)
        for each in whole:
            assert each in flat(lines), command
    assert len(re.findall(MOMENT, flat(shown(project, width, "jobs", "list")))) >= len(roots)


def test_a_pipe_gets_all_of_it_unpadded(project: Project, runs: dict[str, str]) -> None:
    for command in (
        ("runs", "list", "--children"),
        ("runs", "show", runs["closer paused"]),
        ("approvals", "list"),
    ):
        lines = project.run(*command).out.splitlines()
        table = [line for line in lines if "\t" in line]
        assert len({line.count("\t") for line in table}) == 1
        assert not any(cell != cell.strip() for line in table for cell in line.split("\t"))
        whole = [line.rpartition("\t")[0] for line in table] if command[1] == "list" else table
        assert "…" not in "".join(whole)  # but in the sentences about waits, which are short everywhere
        assert not any("  " in line.replace("Second  line", "") for line in table)


def test_the_live_view_has_all_parts_and_harmless_text(project: Project, runs: dict[str, str]) -> None:
    whole = project.run("top", "--once")
    assert whole.code == 0
    for part in ("Workers (", "Queue", "Open runs (", "Approvals (1)", "Waits for people: publish_the_"):
        assert part in whole.out
    assert "\x1b[2J" not in whole.out
    shown = project.on_terminal("top", "--once", width=80)
    plain = re.sub("\x1b[^m]*m", "", shown)
    closer = runs["closer paused"]
    assert re.search(rf"…\w*{closer[-3:]}\S* +closer +paused", plain)
    assert re.search(rf"^\S+ .*{MOMENT}\n +run {closer}$", plain, re.MULTILINE)  # the approval of it
    assert "Waits for people: publish_the_" in " ".join(shown.split())


WORKFLOW = '''
from foldlog.runtime import Registry, WorkflowRun, tool, workflow

@tool(effect="unsafe")
def send_mail(text: str) -> str:
    """Send."""
    return f"sent {text}"

@workflow
async def remind(run: WorkflowRun, order: str) -> str:
    await run.gather(lambda r: r.call(send_mail, text=f"a {order}"), lambda r: r.call(send_mail, text=f"b {order}"))
    await run.step("paid").wait_for("paid", timeout_s=86400)
    return "paid"

registry = Registry(workflows=[remind])
'''


@pytest.mark.parametrize("width", [80, 120])
def test_a_workflow_shows_its_operations_their_branches_and_what_it_waits_for(
    project: Project, width: int
) -> None:
    (project.place / "reminding.py").write_text(WORKFLOW)
    assert project.run("run", "reminding:remind", "17", "--no-wait").code == 5
    (row,) = project.run("runs", "list", "--json").document
    run_id = row["run_id"]
    listed = shown(project, width, "runs", "list")
    assert len(listed) == 3
    assert run_id[-6:] in listed[1]
    assert " remind " in listed[1]
    assert " paused " in listed[1]
    assert re.fullmatch(r" +Waits for signal `paid`.* until .*", listed[2])
    lines = shown(project, width, "runs", "show", run_id)
    assert lines[0].startswith(f"paused (wait)  run {run_id}  2 operations")
    told = re.sub(r"\s+", " ", " ".join(lines))
    assert f"runs signal {run_id} paid" in told
    for branch, text in (("gather#0.0", "a 17"), ("gather#0.1", "b 17")):
        assert f'→ send_mail in {branch} {{"text":"{text}"}}' in told
        assert re.search(rf"← send_mail \d\.\d+ s in {branch}: sent {text}", told)
    assert re.search(r"waits for paid, in paid until \d{4}-", told)
