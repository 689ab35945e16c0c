"""Stored agents over HTTP: saved by admins, checked and started by operators, read by viewers."""

from __future__ import annotations

import tomllib
from typing import Any

from foldlog.eventlog import MemoryLog

from tests.http.api import api

CLERK = {"name": "clerk", "model": "scripted:triage.json", "tools": ["refund"]}


async def test_an_agent_is_saved_with_its_actor_compared_exported_started_and_removed() -> None:
    async with (
        api(MemoryLog()) as served,
        served.client("admin") as admin,
        served.client("operator") as operator,
    ):
        saved = await admin.post("/agents", json={"config": CLERK, "version": 0, "note": "first"})
        assert (saved.status_code, saved.json()["version"]) == (200, 1)
        assert (saved.json()["by"], saved.json()["via"]) == ("the-admin", "api")
        assert saved.json()["request_id"] == saved.headers["x-request-id"]
        second = await admin.post("/agents", json={"config": {**CLERK, "max_steps": 3}, "version": 1})
        assert second.json()["version"] == 2
        late = await admin.post("/agents", json={"config": {**CLERK, "max_steps": 4}, "version": 1})
        assert (late.status_code, late.json()["error"], late.json()["version"]) == (409, "AgentChanged", 2)
        (row,) = (await operator.get("/agents")).json()
        assert (row["name"], row["version"], row["workers"]) == ("clerk", 2, [])
        shown = (await operator.get("/agents/clerk")).json()
        assert [(each["kind"], each["version"]) for each in shown["changes"]] == [("saved", 1), ("saved", 2)]
        (change,) = (await operator.get("/agents/clerk/diff?before=1")).json()
        assert (change["key"], change["after"]) == ("max_steps", 3)
        whole = await operator.get("/agents/clerk/export?version=1")
        assert whole.headers["content-disposition"] == 'attachment; filename="clerk.toml"'
        again = {"text": whole.text, "format": "toml"}
        assert tomllib.loads(whole.text)["name"] == "clerk"
        assert (await operator.post("/agents/check", json=again)).json() == {"problems": []}
        started = await operator.post("/runs", json={"agent": "clerk", "version": 1, "input": "Help"})
        run = served.runtime.get_run(started.json()["run_id"])
        assert (await run.result()).output == "triaged"
        state = await run.state()
        assert state.submitted is not None
        assert state.submitted.config_digest == saved.json()["digest"]
        assert (await admin.delete("/agents/clerk?version=1")).status_code == 409
        assert (await admin.delete("/agents/clerk")).json() == {"removed": True}
        assert (await operator.get("/agents/clerk")).json()["removed"] is True
        gone = await operator.post("/runs", json={"agent": "clerk", "input": "Help"})
        assert (gone.status_code, gone.json()["error"]) == (404, "AgentNotFound")


async def test_all_problems_are_told_with_their_keys_and_nothing_is_saved() -> None:
    async with api(MemoryLog()) as served, served.client("admin") as admin:
        wrong: dict[str, Any] = {**CLERK, "tools": ["refunds"], "max_steps": 0}
        refused = await admin.post("/agents", json={"config": wrong})
        assert refused.status_code == 422
        assert {each["key"]: each["nearest"] for each in refused.json()["problems"]} == {
            "max_steps": None,
            "tools": "refund",
        }
        checked = (await admin.post("/agents/check", json={"config": wrong})).json()
        assert checked["problems"] == refused.json()["problems"]
        for text in ("name = ", "", "[" * 100_000):
            answer = await admin.post(
                "/agents/check", json={"text": text, "format": "json" if "[" in text else "toml"}
            )
            assert (answer.status_code, len(answer.json()["problems"])) == (200, 1)
        assert (await admin.get("/agents")).json() == []
        assert (await admin.get("/agents/schema.json")).json()["properties"]["model"]
