"""`foldlog runs delete` on a real server."""

import contextlib
import errno
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.cli.bulk import Bulk
from foldlog.adapters.cli.commands import erasing
from foldlog.adapters.cli.commands.listing import Filters
from foldlog.adapters.cli.settings import Settings
from foldlog.eventlog import ConfigError, LogUnavailable
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Subject
from foldlog.runtime import Agent, Registry, Runtime
from foldlog.runtime.burying import erasure

from tests.cli.commands import Project

WORDS = "the secret of " + "x" * 40


def started(project: Project, *options: str, text: str = WORDS) -> str:
    done = project.run("run", "project_agents:helper", text, "--json", *options)
    assert done.code == 0
    return str(done.lines[0]["run_id"])


def test_the_runs_of_a_user_are_erased_with_a_receipt(project: Project):
    runs = [started(project, "--user", "u", "--session", "s") for _ in range(2)]
    other = started(project, text="other")
    dry = project.run("runs", "delete", "--user", "u", "--dry-run", "--json").document
    assert [each["run_id"] for each in dry["erased"]] == runs
    assert project.run("runs", "show", runs[0]).code == 0
    done = project.run(
        *("runs", "delete", "--user", "u", "--by", "ann", "--reason", "request 7"),
        *("--receipt", "receipt.json"),
    )
    assert done.code == 0, done.err
    assert f"run {runs[0]}: deleted" in done.out
    receipt = (project.place / "receipt.json").read_text()
    assert '"by": "ann"' in receipt
    assert WORDS not in receipt
    shown = project.run("runs", "show", runs[0])
    assert shown.code == 1
    assert f"error: run {runs[0]} was deleted on" in shown.error
    assert "by ann (request 7)" in shown.error
    for command in (
        ("runs", "history"),
        ("runs", "stream"),
        ("runs", "cancel"),
        ("runs", "files"),
        ("events", "export"),
        ("replay",),
        ("monitor", "--once"),
    ):
        refused = project.run(*command, runs[1])
        assert (refused.code, f"run {runs[1]} was deleted on" in refused.error) == (1, True)
    rows = {row["run_id"]: row for row in project.run("runs", "list", "--json").document}
    assert [rows[run]["buried"] for run in (*runs, other)] == ["deleted", "deleted", ""]
    assert rows[runs[0]]["family"]["usage"]["total_tokens"] > 0
    verified = project.run("events", "verify", "--all")
    assert (verified.code, "2 erased" in verified.out) == (0, True), verified.out + verified.err
    whole = project.run("events", "export", "--all", "--artifacts")
    assert WORDS not in whole.out
    assert project.run("runs", "delete", "--user", "u", "--receipt", "again.json").code == 0
    first, again = (json.loads((project.place / name).read_text()) for name in ("receipt.json", "again.json"))
    assert [each["before"] for each in again["erased"]] == [True, True]
    told = ("run_id", "how", "at", "by", "reason", "digest", "runs", "user", "session")
    assert [[each[name] for name in told] for each in again["erased"]] == [
        [each[name] for name in told] for each in first["erased"]
    ]


def test_a_selection_that_selects_nothing_or_too_much_is_refused(project: Project):
    run = started(project)
    assert project.run("runs", "delete").code == 2
    assert project.run("runs", "delete", run, "--user", "u").code == 2
    nothing = project.run("runs", "delete", "--user", "nobody")
    assert (nothing.code, "no matching runs" in nothing.err) == (1, True)
    assert project.run("runs", "delete", "--before", "1h", "--json").document["erased"] == []
    Path(project.place / "taken.json").write_text("{}")
    taken = project.run("runs", "delete", run, "--receipt", "taken.json")
    assert (taken.code, taken.error) == (2, "error: taken.json exists: a receipt is not overwritten")
    nowhere = project.run("runs", "delete", run, "--archive", "nowhere")
    assert nowhere.code == 2
    assert project.run("runs", "show", run).code == 0


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_room_for_a_receipt_is_made_before_and_one_that_is_not_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path, receipt = tmp_path / "receipt.json", {"erased": ["r"] * 100}
    with erasing.reserved(path, 3) as write:
        (room,) = tmp_path.iterdir()
        assert room.stat().st_size == 3 * erasing.FAMILY_BYTES
        assert erasing.stored(write, path, receipt)
    assert json.loads(path.read_text()) == receipt
    path.unlink()
    with erasing.reserved(path, 1) as write:
        monkeypatch.setattr(os, "fsync", full_disk)
        assert not erasing.stored(write, path, receipt)
    assert "No space left on device; the receipt is on standard output" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="No space left on device"), erasing.reserved(path, 1):
        pytest.fail("there is no room")
    assert not list(tmp_path.iterdir())


async def test_an_erasure_that_loses_the_log_writes_the_receipt_of_what_it_has_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "done"}]}))
    agent, bury = Agent("helper", model=f"scripted:{script}"), erasure.bury

    async def bury_but_lose_the_log(log: Any, root: Subject, *rest: Any, **options: Any) -> Any:
        if root.id == "two":
            raise LogUnavailable("the log is gone")
        return await bury(log, root, *rest, **options)

    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:

        @contextlib.asynccontextmanager
        async def opened(_: Settings) -> AsyncIterator[Runtime]:
            yield runtime

        for name in ("one", "two", "three"):
            await runtime.run(agent, "x", run_id=name)
        monkeypatch.setattr(erasing, "opened", opened)
        monkeypatch.setattr(erasure, "bury", bury_but_lose_the_log)
        path = tmp_path / "receipt.json"
        how = erasing.Erasing(None, None, with_copies=False, receipt=path, by="ann", reason="request 7")
        with pytest.raises(LogUnavailable, match="the log is gone"):
            await erasing.delete_runs(Settings(), ["one", "two", "three"], Filters(), Bulk(), how)
    receipt = json.loads(path.read_text())
    assert [(each["run_id"], each["by"]) for each in receipt["erased"]] == [("one", "ann")]
    assert (receipt["not_begun"], receipt["asked"]) == (
        ["two", "three"],
        {"run_ids": ["one", "two", "three"]},
    )
    told = capsys.readouterr()
    assert "run one: deleted" in told.out
    assert "broken off: 1 erased, 2 not begun or not finished" in told.err


def test_an_open_run_is_left_alone_by_name(project: Project):
    open_run = project.run("run", "project_agents:careful", "x", "--user", "u", "--no-wait", "--json").lines[
        0
    ]["run_id"]
    refused = project.run("runs", "delete", open_run)
    assert (refused.code, f"run {open_run} is open" in refused.error) == (1, True)
    done = project.run("runs", "delete", "--user", "u")
    assert (done.code, f"run {open_run} is open" in done.err) == (1, True)


def test_an_archived_run_is_shown_replayed_and_written_from_its_copy(project: Project):
    run = started(project)
    shown = project.run("runs", "show", run, "--json").document
    url = f"file://{project.place}/archive"
    assert project.run("runs", "delete", run, "--archive", url).code == 0
    assert project.run("runs", "show", run, "--json").document["timeline"] == shown["timeline"]
    for command in (
        ("runs", "history"),
        ("runs", "stream"),
        ("runs", "files"),
        ("replay",),
        ("monitor", "--once"),
    ):
        assert project.run(*command, run).code == 0
    (listed,) = project.run("archive", "list", url, "--json").document
    assert listed["run_id"] == run
    for name in (run, listed["url"]):
        assert [
            each["run_id"] for each in project.run("archive", "show", name, "--json").document["runs"]
        ] == [run]
    assert project.run("archive", "get", run, "--output", "copy.jsonl").code == 0
    assert project.run("diff", run, "copy.jsonl").code == 0
    taken = project.run("archive", "get", run, "--output", "copy.jsonl")
    assert (taken.code, taken.error) == (2, "error: copy.jsonl: File exists")
    assert project.run("archive", "verify", url).code == 0
    path = project.place / "archive" / listed["url"].rpartition("/")[2]
    path.write_bytes(path.read_bytes()[:-30])
    damaged = project.run("archive", "verify", url)
    assert (damaged.code, "1 damaged" in damaged.out) == (1, True)
    path.unlink()
    assert project.run("archive", "verify", url).code == 1  # also what a wrong URL has: nothing was verified
    assert "was archived on" in project.run("runs", "show", run).error
    assert project.run("archive", "show", run).code == 1
    other = started(project)
    assert "is not archived" in project.run("archive", "show", other).error
    assert project.run("archive", "list", "nowhere").code == 2


def test_retention_erases_what_is_due_by_hand_and_in_a_worker(
    project: Project, request: pytest.FixtureRequest
):
    assert "has no [retention]" in project.run("retention", "show").error
    run = started(project)
    config = project.place / "foldlog.toml"
    request.addfinalizer(lambda: config.unlink(missing_ok=True))  # other tests share the project
    config.write_text('[retention]\nkeep = "1h"\n[retention.agents.helper]\nkeep = "1s"\n')
    shown = project.run("retention", "show", "--json").document
    assert (shown["keep_s"], shown["agents"]["helper"]["keep_s"]) == (3600.0, 1.0)
    while not (due := project.run("retention", "run", "--dry-run", "--json").document):
        pass
    assert due == [run]
    done = project.run("retention", "run", "--receipt", "retained.json")
    assert (done.code, f"run {run}: deleted" in done.out) == (0, True)
    assert run in (project.place / "retained.json").read_text()
    assert project.run("retention", "run", "--json").document["erased"] == []
    config.write_text('[retention]\nkeep = "1x"\n')
    for command in (("retention", "show"), ("worker", "project_agents:registry")):
        refused = project.run(*command)
        assert (refused.code, "keep is a duration" in refused.error) == (2, True)
    config.write_text('[retention]\nkeep = "1s"\n')
    refused = project.run("worker", "project_agents:registry")
    assert (refused.code, "but an approval of it waits for 7 days" in refused.error) == (2, True)


def test_many_runs_are_erased_a_few_at_a_time_and_the_erased_ones_are_passed_over(project: Project):
    one, two, three = (started(project) for _ in range(3))
    waits = project.run("run", "project_agents:careful", "x", "--no-wait", "--json").lines[0]["run_id"]
    assert project.run("runs", "delete", "--all", one).code == 2
    wrong = project.run("runs", "delete", "--all", "--rate", "fast")
    assert (wrong.code, "a rate is written 10/s" in wrong.err) == (2, True)
    dry = project.run("runs", "delete", "--agent", "helper", "--limit", "2", "--dry-run", "--json").document
    assert [each["run_id"] for each in dry["erased"]] == [two, three]
    few = ("runs", "delete", "--status", "completed", "--limit", "2", "--rate", "50/s", "--json")
    assert [each["run_id"] for each in project.run(*few).document["erased"]] == [two, three]
    again = project.run(*few).document
    assert ([each["run_id"] for each in again["erased"]], again["asked"]["limit"]) == ([one], 2)
    assert project.run(*few).code == 1
    assert project.run("runs", "delete", "--all", "--json").document["open"] == []
    assert project.run("runs", "retry", "--status", "completed", "--dry-run").err == "no matching runs\n"
    assert project.run("runs", "show", waits).code == 0
