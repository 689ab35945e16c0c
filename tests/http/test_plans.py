"""Standing plans over HTTP: written and changed by operators, read by viewers."""

from __future__ import annotations

from foldlog.eventlog import MemoryLog

from tests.http.api import api


async def test_a_plan_is_saved_with_its_actor_changed_by_a_step_and_removed() -> None:
    async with (
        api(MemoryLog()) as served,
        served.client("operator") as operator,
        served.client("viewer") as viewer,
    ):
        plan = {
            "name": "release",
            "goal": "2.0",
            "steps": [{"text": "Build"}, {"text": "Ship", "id": "ship"}],
        }
        assert (await viewer.post("/plans", json=plan)).status_code == 403
        saved = await operator.post("/plans", json={**plan, "version": 0, "note": "first"})
        assert (saved.status_code, saved.json()["version"], saved.json()["by"]) == (200, 1, "the-operator")
        assert (saved.json()["via"], saved.json()["request_id"]) == ("api", saved.headers["x-request-id"])
        step = await operator.post("/plans/release/steps/ship", json={"status": "completed", "note": "out"})
        assert (step.json()["version"], step.json()["status"]) == (2, "in_progress")
        late = await operator.post("/plans", json={**plan, "version": 1})
        assert (late.status_code, late.json()["error"], late.json()["version"]) == (409, "PlanChanged", 2)
        (row,) = (await viewer.get("/plans")).json()
        assert (row["name"], row["goal"], row["steps"][1]["note"]) == ("release", "2.0", "out")
        shown = (await viewer.get("/plans/release?version=1")).json()
        assert shown["plan"] == saved.json()
        assert [each["version"] for each in shown["versions"]] == [1, 2]
        missing = await operator.post("/plans/release/steps/nothing", json={"status": "pending"})
        assert (missing.status_code, missing.json()["error"]) == (404, "PlanNotFound")
        assert (await operator.delete("/plans/release")).json() == {"removed": True}
        assert (await viewer.get("/plans")).json() == []
        assert (await viewer.get("/plans/release")).json()["plan"]["removed"] is True
