"""`foldlog schedules` on a real server: files that are right or wrong, and commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.commands import Project, Running

FILE = """
[schedules.often]
agent = "helper"
every = "1s"
input = "It is ${due_at}"
overlap = "allow"

[schedules.yearly]
agent = "unserved"
cron = "@yearly"
tz = "Europe/Oslo"
jitter_s = 30
"""


def write(project: Project, text: str, name: str = "times.toml") -> str:
    (project.place / name).write_text(text)
    return name


def test_the_schedules_of_a_file_are_applied_listed_and_start_runs(
    project: Project, start: Callable[..., Running]
) -> None:
    file = write(project, FILE)
    tried = project.run("schedules", "apply", file, "--dry-run")
    assert "schedule yearly: valid; next: 20" in tried.out
    assert [
        row["name"] for row in project.run("schedules", "apply", file, "--dry-run", "--json").document
    ] == [
        "often",
        "yearly",
    ]
    applied = project.run("schedules", "apply", file, "--by", "ada")
    assert [line.split(";")[0] for line in applied.out.splitlines()] == [
        "schedule often: created",
        "schedule yearly: created",
    ]
    assert "no live worker serves unserved now" in applied.err
    again = project.run("schedules", "apply", file)
    assert again.out.count("unchanged") == 2
    worker = start("worker", "project_agents:registry")
    worker.until(": completed")
    listed = {row["name"]: row for row in project.run("schedules", "list", "--json").document}
    assert listed["often"]["counts"]["started"] >= 1
    assert listed["yearly"]["counts"]["started"] == 0
    assert project.run("schedules", "delete", "often").code == 0
    assert project.run("schedules", "show", "often").code == 1
    (trigger, *_) = (row["trigger"] for row in project.run("runs", "list", "--json").document)
    assert (trigger["kind"], trigger["name"]) == ("cron", "often")


def test_commands_to_a_schedule_are_shown_and_a_wrong_name_is_one_line(project: Project) -> None:
    project.run("schedules", "apply", write(project, FILE))
    assert project.run("schedules", "pause", "yearly", "--by", "ada").code == 0
    shown = project.run("schedules", "show", "yearly")
    assert "catch-up 3600 s, jitter 30 s" in shown.out
    assert "paused" in shown.out
    assert "ada" in shown.out
    assert project.run("schedules", "resume", "yearly").code == 0
    times = project.run("schedules", "next", "yearly", "-n", "2", "--after", "2026-05-01T00:00Z").out
    assert times == "2027-01-01T00:00:00+01:00\n2028-01-01T00:00:00+01:00\n"
    for name, due_at in (("yearly", "2027-01-01T00:00:00+01:00"), ("often", "2026-01-01T00:00:01+00:00")):
        following = ("schedules", "next", name, "-n", "1", "--after", "2026-01-01")
        assert project.run(*following, TZ="Pacific/Auckland").out == f"{due_at}\n"
    minute = ("schedules", "backfill", "yearly", "2023-01-01", "2023-01-01T00:01")
    one = project.run(*minute, TZ="Pacific/Auckland")
    assert (one.code, one.out) == (0, "schedule yearly: 1 time waits for a worker\n")
    filled = project.run("schedules", "backfill", "yearly", "2024-01-01T00:00Z", "2026-01-01T00:00Z")
    assert filled.out == "schedule yearly: 3 times wait for a worker\n"
    wrong = project.run("schedules", "pause", "yearli")
    assert (wrong.code, wrong.error.count("\n")) == (1, 0)
    assert "did you mean 'yearly'" in wrong.error
    backwards = project.run("schedules", "backfill", "yearly", "2d", "3d")
    assert (backwards.code, "a start before its end" in backwards.error) == (2, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[schedules.a]\nagent = 'x'", "[schedules.a]: give either cron or every"),
        ("[schedules.a]\nagent = 'x'\ncron = '@daily'", "cron needs its time zone"),
        ("[schedules.a]\nevery = '1h'", "[schedules.a]: agent: Field required"),
        ("[schedules.a]\nagent = 'x'\nevery = '1h'\ntimezone = 'UTC'", "unknown key 'timezone'"),
        ("[schedules.a]\nagent = 'x'\nevery = '1h'\nstart = 'x'", "unknown key 'start'; known are"),
        ("[schedules.a]\nagent = 'x'\nevery = '1h'\nform = 'x'", "unknown key 'form'; did you mean 'from'?"),
        ("[schedules.a]\nagent = 'x'\nevery = 5", "every: Input should be a valid string"),
        ("[schedules.a]\nagent = 'x'\nevery = '1h'\nfrom = 2026-03-01T07:00:00", "from needs an offset"),
        ("[schedules.a]\nagent = 'x'\nevery = '1h'\noverlap = 'some'", "overlap: Input should be 'skip'"),
        ("schedules = 7", "schedules must be a table"),
        ("[schedules]\na = 7", "[schedules.a]"),
        ("nonsense", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_stores_nothing_and_names_the_place(
    alone: Project, text: str, told: str
) -> None:
    good = "[schedules.good]\nagent = 'x'\nevery = '1h'\n" if text.startswith("[schedules.a]") else ""
    refused = alone.run("schedules", "apply", write(alone, good + text))
    assert refused.code == 2
    assert told in refused.error
    assert "Traceback" not in refused.err


def test_a_file_without_schedules_is_told(alone: Project) -> None:
    refused = alone.run("schedules", "apply", write(alone, "[other]\na = 1"))
    assert (refused.code, "there is no [schedules.NAME]" in refused.err) == (1, True)
    assert alone.run("schedules", "apply", "missing.toml").code == 2
