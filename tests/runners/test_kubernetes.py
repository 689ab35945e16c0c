"""Commands as Kubernetes Jobs, against a local server that speaks the API and runs the commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.builtin import shell_tool
from foldlog.adapters.builtin.shell import OUTCOME
from foldlog.adapters.runners import JobTemplate, KubernetesRunner
from foldlog.adapters.runners.conformance import ToolRunnerSuite, sh
from foldlog.adapters.runners.job import job_manifest, job_name
from foldlog.eventlog import Memoized, MemoryLog
from foldlog.replay import load_trace
from foldlog.runtime import Agent, Runtime, ToolContext
from foldlog.runtime.ports.runner import Command, ToolRunner
from foldlog.runtime.ports.tools import ToolFailed
from foldlog.runtime.tools.context import CallFacts
from foldlog.runtime.tools.run_context import RunFacts
from kubernetes_asyncio import client

from tests.fakes.kubernetes_api import Cluster, serve

pytestmark = pytest.mark.anyio


@pytest.fixture
async def cluster(anyio_backend: str) -> AsyncIterator[Cluster]:
    async with serve() as cluster:
        yield cluster


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - requests to a server are not events here
        await asyncio.sleep(0.01)


def runner_on(cluster: Cluster, root: Path, **options: Any) -> KubernetesRunner:
    template = JobTemplate(image="debian", claim="work", mount_path=str(root), namespace="tools")
    configuration = client.Configuration(host=cluster.url)
    return KubernetesRunner(template, configuration=configuration, poll_s=0.02, **options)


class TestKubernetes(ToolRunnerSuite):
    resolves_links = False
    exclusive = False
    finds_whom_parents_left = False
    """A cluster would; the local server cannot."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def runner(self, root: Path, cluster: Cluster) -> ToolRunner:
        self.cluster = cluster
        return runner_on(cluster, root)

    def another(self, runner: ToolRunner, root: Path) -> ToolRunner:
        return runner_on(self.cluster, root)


async def test_a_second_worker_finds_the_outcome_of_a_call_whose_worker_died(
    tmp_path: Path, cluster: Cluster
) -> None:
    command = sh("echo ran >> runs; echo out; exit 7", key="run-1/c1")
    first = await runner_on(cluster, tmp_path).run(command)
    second = await runner_on(cluster, tmp_path).run(command)
    assert (first.exit_code, first.output) == (second.exit_code, second.output) == (7, "out\n")
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert cluster.deleted == []


async def test_calls_have_jobs_of_their_own(tmp_path: Path, cluster: Cluster) -> None:
    runner = runner_on(cluster, tmp_path)
    for key in ("run-1/c1", "run-1/c2", "", ""):
        assert (await runner.run(sh("echo x >> runs", key=key))).exit_code == 0
    assert (tmp_path / "runs").read_text() == "x\n" * 4


async def test_a_cancelled_or_late_command_is_deleted_and_an_ended_one_is_kept(
    tmp_path: Path, cluster: Cluster
) -> None:
    runner = runner_on(cluster, tmp_path)
    await runner.run(sh("true", key="ended"))
    await runner.run(sh("sleep 120", key="late", timeout_s=0.1))
    task = asyncio.create_task(runner.run(sh("sleep 120", key="cancelled")))
    await until(lambda: job_name("cancelled") in cluster.jobs)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.deleted == [job_name("late"), job_name("cancelled")]
    assert set(cluster.jobs) == {job_name("ended")}


async def test_an_api_server_that_is_away_for_a_while_costs_nothing(tmp_path: Path, cluster: Cluster) -> None:
    cluster.faults = {"create": [429, 503], "list": [503, 500, 429, 410], "log": [429, 502]}
    assert (await runner_on(cluster, tmp_path).run(sh("echo hi"))).output == "hi\n"
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("answer", ["<html>a proxy's</html>", '{"items": null}', '{"items": [{"metad'])
async def test_an_answer_that_is_none_of_the_api_says_nothing(
    tmp_path: Path, cluster: Cluster, answer: str
) -> None:
    cluster.garbage = [answer] * 2
    assert (await runner_on(cluster, tmp_path).run(sh("echo hi"))).output == "hi\n"
    assert cluster.garbage == []


@pytest.mark.parametrize(
    ("call", "status", "problem"),
    [
        ("create", 403, "cannot be created: HTTP 403"),
        ("create", 500, "cannot be created: HTTP 500"),
        ("list", 403, "cannot be watched: HTTP 403"),
        ("log", 500, "cannot be read: HTTP 500"),
    ],
)
async def test_what_the_api_server_refuses_is_told(
    tmp_path: Path, cluster: Cluster, call: str, status: int, problem: str
) -> None:
    cluster.faults[call] = [status] * 5
    with pytest.raises(ToolFailed, match=problem):
        await runner_on(cluster, tmp_path).run(sh("true"))


async def test_an_outcome_whose_output_could_not_be_read_is_there_for_another_attempt(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.faults["log"] = [500] * 5
    runner = runner_on(cluster, tmp_path)
    with pytest.raises(ToolFailed):
        await runner.run(sh("echo once", key="k"))
    assert (await runner.run(sh("echo once", key="k"))).output == "once\n"
    assert len(cluster.jobs) == 1


async def test_a_cluster_that_cannot_be_reached_is_told(tmp_path: Path, cluster: Cluster) -> None:
    cluster.url = "http://127.0.0.1:1"
    with pytest.raises(ToolFailed, match="cannot be created"):
        await runner_on(cluster, tmp_path).run(sh("true"))


async def test_a_job_that_does_not_start_says_why(tmp_path: Path, cluster: Cluster) -> None:
    cluster.starts = False
    with pytest.raises(ToolFailed, match=r"did not start within 0\.1 s: ContainerCreating"):
        await runner_on(cluster, tmp_path, start_timeout_s=0.1).run(sh("true", key="k"))
    assert cluster.deleted == [job_name("k")]


async def test_a_container_that_is_killed_for_its_memory_says_so(tmp_path: Path, cluster: Cluster) -> None:
    cluster.starts = False
    task = asyncio.create_task(runner_on(cluster, tmp_path).run(sh("true", key="k")))
    await until(lambda: bool(cluster.jobs))
    job = cluster.jobs[job_name("k")]
    job.log.write_text("much")
    job.state = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    outcome = await task
    assert (outcome.exit_code, outcome.limit, outcome.output) == (137, "memory", "much")


@pytest.mark.parametrize(
    ("phase", "terminated", "problem"),
    [
        ({"reason": "Evicted", "message": "low on memory"}, None, "Evicted low on memory"),
        ({"reason": "Evicted", "message": "low on memory"}, {"exitCode": 137}, "Evicted low on memory"),
        ({}, {"exitCode": 137, "reason": "ContainerStatusUnknown"}, "ContainerStatusUnknown"),
    ],
)
async def test_a_pod_that_its_node_gave_up_has_no_outcome(
    tmp_path: Path, cluster: Cluster, phase: dict[str, Any], terminated: dict[str, Any] | None, problem: str
) -> None:
    cluster.starts = False
    task = asyncio.create_task(runner_on(cluster, tmp_path).run(sh("true", key="k")))
    await until(lambda: bool(cluster.jobs))
    job = cluster.jobs[job_name("k")]
    job.phase = {"phase": "Failed", **phase}
    job.state = {"terminated": terminated} if terminated is not None else {}
    with pytest.raises(ToolFailed, match=f"the pod failed: {problem}"):
        await task


async def test_a_pod_that_succeeded_did_so_also_where_nothing_is_said_of_its_container(
    tmp_path: Path, cluster: Cluster
) -> None:
    task = asyncio.create_task(runner_on(cluster, tmp_path).run(sh("echo hi; sleep 20", key="k")))
    await until(lambda: bool(cluster.jobs) and cluster.jobs[job_name("k")].log.read_text() == "hi\n")
    cluster.jobs[job_name("k")].phase = {"phase": "Succeeded", "containerStatuses": None}
    outcome = await task
    assert (outcome.exit_code, outcome.output) == (0, "hi\n")


async def test_a_pod_that_vanishes_is_told(tmp_path: Path, cluster: Cluster) -> None:
    task = asyncio.create_task(runner_on(cluster, tmp_path).run(sh("touch started; sleep 120", key="k")))
    await until(lambda: bool((tmp_path / "started").exists()))
    cluster.faults["list"] = [0, 503]  # It has been seen by then.
    await until(lambda: not cluster.faults["list"])
    cluster.jobs.pop(job_name("k")).kill()
    with pytest.raises(ToolFailed, match="pod of the Kubernetes Job is gone"):
        await task


def test_a_job_runs_one_pod_once_without_rights_and_for_a_bounded_time() -> None:
    template = JobTemplate(
        image="python:3.12",
        claim="work",
        labels={"network": "off"},
        pod={"runtimeClassName": "gvisor"},
        limits={"memory": "64Mi"},
    )
    command = Command(argv=("echo", "$(HOME)"), cwd="src", env={"A": "1"})
    job = job_manifest(template, command, name="n", deadline_s=90.5, keep_s=60)
    assert job["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "foldlog", "network": "off"}
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        0,
        91,
        60,
    )
    pod = spec["template"]["spec"]
    assert spec["template"]["metadata"]["labels"] == job["metadata"]["labels"]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["volumes"] == [{"name": "workspace", "persistentVolumeClaim": {"claimName": "work"}}]
    (container,) = pod["containers"]
    assert (container["command"], container["workingDir"]) == (["echo", "$$(HOME)"], "/workspace/src")
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["resources"] == {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_more_stdin_than_an_argument_holds_is_refused() -> None:
    with pytest.raises(ToolFailed, match="stdin"):
        job_manifest(JobTemplate(image="x"), sh("cat", stdin=b"x" * 70_000), name="n", deadline_s=1, keep_s=1)


async def test_an_outcome_that_was_seen_is_in_the_log_before_the_calls_result(
    tmp_path: Path, cluster: Cluster
) -> None:
    turns = [
        {"tool_calls": [{"id": "c1", "name": "shell", "arguments": {"command": ["echo", "out"]}}]},
        {"text": "done"},
    ]
    (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}))
    shell = shell_tool(runner_on(cluster, tmp_path))
    agent = Agent("operator", model=f"scripted:{tmp_path}/turns.json", tools=[shell])
    async with Runtime.open("memory://") as rt:
        run = await rt.start(agent, "Do it")
        await run.result()
        trace = await load_trace(rt.log, run.run_id)
    types = [event.type for event in trace.events]
    (kept,) = [event for event in trace.events if isinstance(event, Memoized)]
    assert types.index("tool_started") < types.index("memoized") < types.index("tool_result")
    assert (kept.name, kept.value["exit_code"], kept.value["output"]) == (OUTCOME, 0, "out\n")


async def test_a_call_whose_outcome_is_in_the_log_needs_no_cluster(tmp_path: Path) -> None:
    kept = {"exit_code": 7, "output": "out\n", "output_bytes": 4, "duration_s": 0.1, "limit": "memory"}
    call = CallFacts(
        run=RunFacts(run_id="run-1", agent_path="operator", input="Do it"),
        tool_call_id="c1",
        tool_name="shell",
        idempotency_key="run-1/c1",
        memos={OUTCOME: kept},
    )

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is stored, and nothing is run")

    log = MemoryLog()
    context = ToolContext(
        call,
        emit=lambda _: None,
        run_child=nothing,
        remember=nothing,
        issue=nothing,
        artifacts=log.artifacts.of("run-1"),
        skip=lambda *_: None,
        clock=log.clock,
        deps=None,
    )
    nowhere = KubernetesRunner(
        JobTemplate(image="debian"), configuration=client.Configuration(host="http://127.0.0.1:1")
    )
    result = await shell_tool(nowhere).call({"command": ["echo", "out"]}, context)
    assert result == {"exit_code": 7, "output": "out\n", "limit": "memory"}
