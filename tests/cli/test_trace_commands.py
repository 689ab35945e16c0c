"""`events`, `diff`, `monitor` and `replay`: on runs, on files, on a run that is still going, on families."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.commands import Project, Running

Start = Callable[..., Running]


@pytest.fixture
def two(project: Project) -> tuple[str, str]:
    """Two runs of one agent."""
    for run in ("first", "second"):
        assert project.run("run", "project_agents:helper", "question", "--run-id", run).code == 0
    return "first", "second"


def exported(project: Project, run: str, name: str) -> str:
    path = project.place / f"{name}.jsonl"
    assert project.run("events", "export", run, "--artifacts", "-o", str(path)).code == 0
    return str(path)


def changed(project: Project, file: str, name: str, old: str, new: str) -> str:
    """A file with other text of the same length of words, its sums and chain made whole again."""
    from hashlib import sha256

    prev, lines = "", []
    for line in Path(file).read_text().splitlines():
        parsed = json.loads(line)
        body = json.loads(parsed["data"].replace(old, new))
        body.pop("sum")
        body["prev"] = prev
        data = json.dumps(body, separators=(",", ":"))
        data = f'{data[:-1]},"sum":"{sha256(data.encode()).hexdigest()[:16]}"}}'
        prev = sha256(data.encode()).hexdigest()
        lines.append(json.dumps({**parsed, "data": data}))
    path = project.place / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_run_goes_into_a_file_and_into_another_namespace_and_back(
    project: Project, two: tuple[str, str]
) -> None:
    file = exported(project, "first", "one")
    whole = project.run("events", "export", "--all")
    assert whole.code == 0
    assert len(whole.lines) == 2 * len(Path(file).read_text().splitlines())
    other = Project(project.place, project.server, f"{project.environ['FOLDLOG_NAMESPACE']}-b")
    done = other.run("events", "import", file, "--json")
    assert (done.code, done.document["runs"], done.document["skipped"]) == (0, ["first"], [])
    again = other.run("events", "import", file)
    assert (again.code, again.out.split()) == (0, ["skipped", "first"])
    assert (
        other.run("events", "export", "first").lines[0]["data"]
        == project.run("events", "export", "first").lines[0]["data"]
    )
    assert other.run("runs", "show", "first").code == 0
    assert project.run("events", "verify", "--all", "--json").document["runs"] == 2
    assert project.run("events", "verify", "first").out.startswith("whole: 1 family, 1 run, 4 commits, ")
    conflict = other.run("events", "import", changed(project, file, "forged", "Final answer", "Other answer"))
    assert conflict.code == 1
    assert "first" in conflict.error


def test_a_damaged_file_is_refused_by_every_command_and_named(project: Project, two: tuple[str, str]) -> None:
    file = exported(project, "first", "sound")
    damaged = project.place / "damaged.jsonl"
    damaged.write_text(Path(file).read_text().replace("Final answer", "Final onswer"))
    for command in (("events", "verify"), ("events", "import"), ("replay",)):
        done = project.run(*command, str(damaged))
        assert done.code == 1
        assert "checksum" in done.err + done.out
    assert "checksum" in project.run("diff", file, str(damaged)).error
    watched = project.run("monitor", str(damaged), "--json")
    assert (watched.code, watched.lines[0]["rule"]) == (1, "R11")
    assert project.run("events", "verify", "nothing.jsonl").code == 2
    assert project.run("events", "verify", "nothing").code == 1


def test_equal_runs_are_equal_and_another_one_is_shown_with_its_first_difference(
    project: Project, two: tuple[str, str]
) -> None:
    file = exported(project, "first", "equal")
    equal = project.run("diff", file, "second")
    assert (equal.code, equal.out.splitlines()[-1].startswith("equal (")) == (0, True)
    other = changed(project, file, "differs", "Final answer", "Other answer")
    page = project.place / "page.html"
    done = project.run("diff", "first", other, "--html", str(page))
    assert done.code == 1
    assert '≠\t2 text("Final answer")' in done.out
    assert "first difference: level" in done.out
    assert "text: Final answer → Other answer" in done.out
    assert "<title>foldlog diff: different</title>" in page.read_text()
    document = project.run("diff", "first", other, "--json").document
    assert (document["equal"], document["first_difference"]["rule"]) == (False, "R3")
    assert document["rows"][0]["values"] == {"text": ["Final answer", "Other answer"]}


def test_runs_that_asked_the_model_something_else_are_shown_with_what_differs_and_the_rule(
    project: Project, two: tuple[str, str]
) -> None:
    assert project.run("run", "project_agents:helper", "question?", "--run-id", "third").code == 0
    done = project.run("diff", "first", "third")
    told = '(user) is "question" on the left and "question?" on the right'
    assert done.code == 1
    assert told in done.out
    assert "rule R12: equal runs ask the model the same" in done.out
    assert "docs/maintainers/contract.md#r12" in done.out
    assert "  request: " not in done.out
    first = project.run("diff", "first", "third", "--json").document["first_difference"]
    assert (first["request"][0]["left"], first["request"][0]["right"]) == ("question", "question?")


def test_a_run_is_compared_with_a_golden_history_by_its_name(project: Project, two: tuple[str, str]) -> None:
    exported(project, "first", "kept")
    assert project.run("diff", "golden:kept", "second", "--golden", str(project.place)).code == 0
    unknown = project.run("diff", "golden:nope", "second", "--golden", str(project.place))
    assert unknown.code == 2
    assert "kept" in unknown.error


def test_files_are_compared_without_a_server(project: Project, two: tuple[str, str], alone: Project) -> None:
    file = exported(project, "first", "offline")
    nowhere = Project(project.place, "nats://127.0.0.1:9")
    assert nowhere.run("diff", file, file).code == 0
    assert nowhere.run("replay", file).code == 0
    assert nowhere.run("monitor", file).code == 0
    assert nowhere.run("events", "verify", file).code == 0


def test_the_code_agrees_with_its_runs_and_another_prompt_is_found(
    project: Project, two: tuple[str, str]
) -> None:
    file = exported(project, "first", "replayed")
    assert project.run("replay", "first").out.startswith("✓ first")
    assert (
        project.run("replay", file, "--agents", "project_agents:registry", "--json").document[0]["agrees"]
        is True
    )
    other = changed(project, file, "prompt", '"max_steps":10', '"max_steps":11')
    junit = project.place / "junit.xml"
    done = project.run("replay", other, "--agents", "project_agents:registry", "--junit", str(junit))
    assert done.code == 1
    assert "agent 'helper' has changed: max_steps" in done.out
    suite = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "max_steps: recorded 11, now 10" in (failure.text or "")


def test_a_directory_of_histories_is_replayed_and_one_that_differs_fails(
    project: Project, two: tuple[str, str], tmp_path: Path
) -> None:
    file = exported(project, "first", "dir")
    (tmp_path / "good.jsonl").write_bytes(Path(file).read_bytes())
    assert project.run("replay", "--golden", str(tmp_path)).code == 0
    bad = changed(project, file, "digest", '"model":"scripted:helper.json"', '"model":"scripted:other.json"')
    (tmp_path / "worse.jsonl").write_bytes(Path(bad).read_bytes())
    done = project.run("replay", "--golden", str(tmp_path))
    assert done.code == 1
    assert [line[0] for line in done.out.splitlines()[:2]] == ["✓", "✗"]
    assert "R12" in done.out
    (tmp_path / "empty").mkdir()
    assert project.run("replay", "--golden", str(tmp_path / "empty")).code == 2


def test_the_state_at_a_revision_is_shown(project: Project, two: tuple[str, str]) -> None:
    rows = [json.loads(line)["data"] for line in project.run("events", "export", "first").out.splitlines()]
    events = [event["type"] for row in rows for event in json.loads(row)["events"]]
    revision = str(events.index("tool_call") + 1)
    point = project.run("replay", "first", "--at", revision, "--json").document
    assert [call["name"] for call in point["calls"]] == ["lookup"]
    assert point["pending"][0]["effect"] == "CallTool"
    assert [message["role"] for message in point["messages"]] == ["user"]
    assert "effect     CallTool" in project.run("replay", "first", "--at", revision).out
    beyond = project.run("replay", "first", "--at", "999")
    assert beyond.code == 2
    assert "revisions 1 to" in beyond.error


def test_everything_works_on_a_run_that_is_still_going(project: Project, start: Start) -> None:
    running = start("run", "project_agents:hanging", "question", "--run-id", "going")
    running.until("hanging")
    assert project.run("events", "verify", "going", "--json").document["open"] == ["going"]
    assert project.run("replay", "going").code == 0
    assert project.run("monitor", "going", "--once").code == 0
    file = exported(project, "going", "going")
    assert project.run("diff", file, "going").code == 0


def test_the_monitor_watches_a_namespace_as_it_grows_and_names_what_breaks_a_rule(
    project: Project, start: Start, two: tuple[str, str]
) -> None:
    file = exported(project, "first", "watched")
    watching = start("monitor", "--json")
    watching.until("watching")
    text = Path(file).read_text().replace("first", "third")
    source = project.place / "renamed.jsonl"
    source.write_text(text)
    broken = changed(project, str(source), "broken", '"status":"starting"', '"status":"resumed"')
    assert project.run("events", "import", broken).code == 0
    told = json.loads(watching.until('"rule"', of="out"))
    assert (told["rule"], told["run"], told["revision"]) == ("R1", "third", 2)
    watching.interrupt()
    assert watching.end().code == 130
    once = project.run("monitor", "--all", "--once")
    assert once.code == 1
    assert "R1" in once.out
    assert "(docs/maintainers/contract.md#r1)" in once.out


@pytest.mark.parametrize(
    "args",
    [
        ("events", "export"),
        ("events", "export", "x", "--all"),
        ("events", "verify"),
        ("replay",),
        ("replay", "x", "--golden", "."),
        ("replay", "--golden", ".", "--at", "1"),
        ("monitor", "x", "--all"),
        ("diff", "x"),
        ("diff", "missing.jsonl", "missing.jsonl"),
        ("events", "export", "--all", "-o", "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_without_a_traceback(
    alone: Project, args: tuple[str, ...]
) -> None:
    done = alone.run(*args)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_a_full_disk_is_told_in_one_line(project: Project):
    project.run("run", "project_agents:helper", "question")
    full = project.run("events", "export", "--all", "--output", "/dev/full")
    assert (full.code, full.error) == (1, "error: the output cannot be written: No space left on device")
