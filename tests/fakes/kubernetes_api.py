"""A real HTTP server on loopback that implements the Kubernetes API calls that a Job needs, and runs its command.

async with serve() as cluster:
    ...  # base URL: cluster.url; present Jobs: cluster.jobs; faults to answer with: cluster.faults
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

JOBS = "/apis/batch/v1/namespaces/{namespace}/jobs"
PODS = "/api/v1/namespaces/{namespace}/pods"


@dataclass
class Job:
    """A Job with its only pod, which is a process on this machine."""

    manifest: dict[str, Any]
    log: Path
    process: asyncio.subprocess.Process | None = None
    problem: str = ""
    state: dict[str, Any] | None = None
    """The reported state of the container, instead of the process's."""
    phase: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the pod's status."""

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.manifest["spec"]["template"]["spec"]["containers"]
        return dict(container)

    async def start(self) -> None:
        env = {each["name"]: each["value"] for each in self.container["env"]}
        argv = [word.replace("$$(", "$(") for word in self.container["command"]]
        with self.log.open("wb") as log:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *argv,
                    cwd=self.container["workingDir"],
                    env={"PATH": os.environ["PATH"]} | env,  # An image has a PATH of its own.
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                self.problem = f"exec: {error.filename}: executable file not found in $PATH"

    def kill(self) -> None:
        """Kill its remaining processes: a container ends with its first process."""
        if self.process is None:
            return
        with suppress(psutil.Error):
            for each in psutil.Process(self.process.pid).children(recursive=True):
                each.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)

    def status(self) -> dict[str, Any]:
        if self.state is not None:
            return self.state
        if self.problem:
            return {"terminated": {"exitCode": 128, "reason": "StartError", "message": self.problem}}
        if self.process is None:
            return {"waiting": {"reason": "ContainerCreating"}}
        code = self.process.returncode
        if code is None:
            return {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        self.kill()
        return {
            "terminated": {
                "exitCode": code if code >= 0 else 128 - code,
                "reason": "Completed" if code == 0 else "Error",
            }
        }


@dataclass
class Cluster:
    folder: Path
    url: str = ""
    jobs: dict[str, Job] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    """Every manifest that was sent."""
    deleted: list[str] = field(default_factory=list)
    faults: dict[str, list[int]] = field(default_factory=dict)
    """HTTP statuses that the next calls `create`, `list`, `log` are answered with; 0 answers as ever."""
    garbage: list[str] = field(default_factory=list)
    """Responses to the next lists of pods, instead of pods."""
    starts: bool = True
    """Pods are allowed to run."""

    def fault(self, call: str) -> Response | None:
        queue = self.faults.get(call, [])
        status = queue.pop(0) if queue else 0
        return JSONResponse({"kind": "Status", "message": "made up"}, status) if status else None

    async def create(self, request: Request) -> Response:
        manifest = await request.json()
        if (fault := self.fault("create")) is not None:
            return fault
        name = manifest["metadata"]["name"]
        self.created.append(manifest)
        if name in self.jobs:
            return JSONResponse({"kind": "Status", "reason": "AlreadyExists"}, 409)
        job = self.jobs[name] = Job(manifest, self.folder / name)
        if self.starts:
            await job.start()
        return JSONResponse(manifest, 201)

    async def pods(self, request: Request) -> Response:
        if (fault := self.fault("list")) is not None:
            return fault
        if self.garbage:
            return Response(self.garbage.pop(), media_type="application/json")
        name = request.query_params["labelSelector"].removeprefix("job-name=")
        found = [pod(name, self.jobs[name])] if name in self.jobs else []
        return JSONResponse({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": found})

    async def log(self, request: Request) -> Response:
        if (fault := self.fault("log")) is not None:
            return fault
        job = self.jobs[request.path_params["pod"].removesuffix("-pod")]
        assert request.query_params["container"] == job.container["name"]
        return Response(job.log.read_bytes(), media_type="text/plain")

    async def delete(self, request: Request) -> Response:
        name = request.path_params["job"]
        if name in self.jobs:
            self.jobs.pop(name).kill()
        self.deleted.append(name)
        return JSONResponse({"kind": "Status", "status": "Success"})


def pod(name: str, job: Job) -> dict[str, Any]:
    status = {"name": "command", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    return {
        "metadata": {"name": f"{name}-pod", "labels": {"job-name": name}},
        "status": {
            "phase": "Running",
            "containerStatuses": [{**status, "state": job.status()}],
            **job.phase,
        },
    }


@asynccontextmanager
async def serve() -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        routes = [
            Route(JOBS, cluster.create, methods=["POST"]),
            Route(f"{JOBS}/{{job}}", cluster.delete, methods=["DELETE"]),
            Route(PODS, cluster.pods),
            Route(f"{PODS}/{{pod}}/log", cluster.log),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, log_level="error", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it.
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        cluster.url = f"http://127.0.0.1:{port}"
        try:
            yield cluster
        finally:
            for job in cluster.jobs.values():
                job.kill()
                if job.process is not None:
                    await job.process.wait()
            server.should_exit = True
            await task
