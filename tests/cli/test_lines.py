"""`foldlog slots`, `lanes` and `budgets`: who is at work under a limit, who waits for a turn, and what is left."""

from __future__ import annotations

import json
import re
import urllib.request

from tests.cli.commands import Project


def test_who_is_at_work_and_who_waits_is_listed_with_the_limit(project: Project) -> None:
    assert "no slots are held" in project.run("slots", "list").err
    assert "no lane has open runs" in project.run("lanes", "list").err
    config = project.place / "one_at_a_time.toml"
    config.write_text('[limits]\nnamespace = 1\n"lane:mail" = 1\n')
    project.environ["FOLDLOG_CONFIG"] = str(config)
    session = ("--session", "ada", "--lane", "mail")
    first = project.start("run", "project_agents:hanging", "x", "--run-id", "first", *session)
    try:
        first.until("hang")
        second = project.start("run", "project_agents:helper", "x", "--run-id", "second")
        try:
            told = second.until("waiting for")
            assert "a slot of namespace (number 1 in the queue; 1 of 1 slots held)" in told
            rows = {row["name"]: row for row in project.run("slots", "list", "--json").document}
            assert {name: [h["run_id"] for h in row["holders"]] for name, row in rows.items()} == {
                "limit:lane:mail": ["first"],
                "limit:namespace": ["first"],
            }
            assert [waiter["run_id"] for waiter in rows["limit:namespace"]["waiting"]] == ["second"]
            assert "1 of 1" in project.run("slots", "list").out
            cleared = project.run("slots", "clear")
            assert (cleared.code, "no run that is over" in cleared.err) == (1, True)
            del project.environ["FOLDLOG_CONFIG"]
            told = project.run("slots", "list").err
            assert "limit:namespace is no longer configured; see: foldlog slots clear" in told
            (lane,) = project.run("lanes", "list", "--json").document
            assert (lane["lane"], [run["run_id"] for run in lane["runs"]]) == ("lane:mail:ada", ["first"])
            assert "first" in project.run("lanes", "list").out
            pending = project.run("runs", "pending", "second").out
            assert "Waits for the limit `namespace`: place 1, all 1 taken." in pending
        finally:
            second.kill()
    finally:
        first.kill()


def test_a_limit_that_is_none_is_refused_before_anything_is_driven(project: Project) -> None:
    config = project.place / "wrong_limits.toml"
    config.write_text('[limits]\n"provider" = 2\n')
    done = project.run("run", "project_agents:helper", "x", FOLDLOG_CONFIG=str(config))
    assert done.code == 2
    assert "'provider' is not a limit" in done.error
    assert project.run("runs", "list", "--json").document == []


def test_what_is_spent_of_budgets_and_what_is_left_is_listed(project: Project) -> None:
    assert "the project has no [budgets]" in project.run("budgets", "list").err
    config = project.place / "budgets.toml"
    config.write_text(
        '[budgets]\n"user:*" = { tokens = 1_000_000, per = "month", time_zone = "Asia/Tokyo" }\n'
        '"user:bob" = { cost_usd = 2, per = "day" }\nnamespace = { tokens = 1, per = "total" }\n'
    )
    project.environ["FOLDLOG_CONFIG"] = str(config)
    refused = project.run("run", "project_agents:helper", "x", "--user", "ada")
    assert refused.code == 1
    assert "the budget namespace: 1 tokens in total is used up" in refused.err
    all_runs, each, bob = project.run("budgets", "list", "--json").document
    assert (each["owner"], each["calls"], bob["owner"], bob["left_usd"]) == ("user:ada", 1, "user:bob", "2")
    assert each["left_tokens"] == 1_000_000 - each["tokens"]
    assert (all_runs["tokens"], all_runs["left_tokens"], all_runs["until"]) == (each["tokens"], 0, None)
    assert "1,000,000 tokens a month" in project.run("budgets", "list").out
    config.write_text("")
    unknown = [row for row in project.run("budgets", "list", "--json").document if not row["amount"]]
    assert [row["owner"] for row in unknown] == ["namespace", "user:ada"]
    (told,) = [line for line in project.run("budgets", "list").out.splitlines() if "user:ada" in line]
    assert "unknown" in told
    assert f"0 USD and {each['tokens']} tokens" in told


def test_a_console_shows_budgets_of_models_that_only_the_workers_know(project: Project) -> None:
    config = project.place / "of_workers.toml"
    config.write_text('[budgets]\n"model:acme:large" = { cost_usd = 5, per = "day" }\n')
    serving = project.start("console", "--no-auth", "--port", "0", FOLDLOG_CONFIG=str(config))
    try:
        found = re.search(r"http://[\d.:]+", serving.until("serving"))
        assert found is not None
        with urllib.request.urlopen(f"{found[0]}/api/v1/budgets", timeout=120) as answer:
            (row,) = json.load(answer)["rows"]
    finally:
        serving.kill()
    assert (row["owner"], row["amount"], row["left_usd"]) == ("model:acme:large", "5 USD a day", "5")


def test_a_wrong_budget_is_refused_before_anything_is_driven(project: Project) -> None:
    config = project.place / "wrong.toml"
    config.write_text('[budgets]\nnamespace = { tokens = 5, per = "week" }\n')
    project.environ["FOLDLOG_CONFIG"] = str(config)
    told = f"{config}: [budgets]: the budget of 'namespace': per must be hour or day or month or total, not 'week'"
    for command in (("run", "project_agents:helper", "x"), ("budgets", "list")):
        done = project.run(*command)
        assert (done.code, told in done.error) == (2, True)
