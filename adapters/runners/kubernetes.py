"""Run commands as Kubernetes Jobs: the cluster keeps the outcome, so it survives the worker that waits for it.

A Job is named after its call. A worker that repeats the call after a crash finds the Job and waits for its outcome; the
command does not run twice. Needs the extra `k8s`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import msgspec

from ...eventlog.errors import ConfigError
from ...runtime.ports.runner import NOT_FOUND, SIGNALLED, TIMED_OUT, Command, CommandOutcome
from ...runtime.ports.tools import ToolFailed
from .job import CONTAINER, JobTemplate, job_manifest, job_name
from .output import HeadAndTail

if TYPE_CHECKING:
    import aiohttp
    from kubernetes_asyncio import client

_SERVER_ERROR, _CONFLICT = 500, 409
_PASSING: Final = {408, 410, 425, 429}
"""Client errors of the API server after which a request is retried."""
_ATTEMPTS = 5
_REQUEST_S, _DELETE_S = 30.0, 5.0
_NOT_STARTED: Final = {"StartError", "ContainerCannotRun", "RunContainerError"}
_NOT_KNOWN: Final = "ContainerStatusUnknown"

T = TypeVar("T")


class _Container(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of the container. `exit_code` is None until it ends; the texts are those of Kubernetes."""

    pod: str
    running: bool = False
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


class KubernetesRunner:
    """Runs each command as a Job made from `template`, and reads its outcome from the cluster.

    A command's timeout starts when its container runs; `start_timeout_s` bounds the wait for that. A Job is kept for
    `keep_s` after its end, and deleted when its command is cancelled or times out. `configuration` is that of
    kubernetes-asyncio; None: that of the pod this process runs in, else the kubeconfig's current context.

    Commands of several runs may use one workspace at the same time: the cluster decides which pods may mount a claim.
    Raises `ConfigError` if the extra `k8s` is not installed.
    """

    outlives_worker = True

    def __init__(
        self,
        template: JobTemplate,
        *,
        configuration: client.Configuration | None = None,
        start_timeout_s: float = 300.0,
        keep_s: float = 3600.0,
        poll_s: float = 0.5,
    ) -> None:
        try:
            import kubernetes_asyncio
        except ModuleNotFoundError:
            raise ConfigError("KubernetesRunner needs the extra k8s: pip install 'foldlog[k8s]'") from None
        self._template, self._configuration = template, configuration
        self._start_timeout_s, self._keep_s, self._poll_s = start_timeout_s, keep_s, poll_s
        self._k8s = kubernetes_asyncio

    async def run(self, command: Command) -> CommandOutcome:
        """See `ToolRunner.run`."""
        name = job_name(command.key)
        deadline_s = self._start_timeout_s + command.timeout_s + 60
        manifest = job_manifest(
            self._template, command, name=name, deadline_s=deadline_s, keep_s=self._keep_s
        )
        begun_s = time.monotonic()
        async with self._cluster() as cluster:
            over = False
            try:
                await cluster.create(manifest)
                container = await self._end_of(cluster, name, command)
                over = container.exit_code is not None
                return await _outcome(cluster, container, command, begun_s)
            finally:
                if not over:  # an ended Job is kept, since another worker may need its outcome
                    await cluster.delete(name)

    async def _end_of(self, cluster: _Cluster, name: str, command: Command) -> _Container:
        """Wait until the container ends or times out. Raises `ToolFailed` if it does not start."""
        seen = _Container(pod="")
        try:
            async with asyncio.timeout(self._start_timeout_s):
                while not (seen.running or seen.exit_code is not None):
                    seen = await self._next(cluster, name, seen)
        except TimeoutError:
            why = " ".join(filter(None, (seen.reason, seen.message))) or "no reason is known"
            raise ToolFailed(
                f"the Kubernetes Job did not start within {self._start_timeout_s:g} s: {why}"
            ) from None
        with suppress(TimeoutError):
            async with asyncio.timeout(command.timeout_s):
                while seen.exit_code is None:
                    seen = await self._next(cluster, name, seen)
        return seen

    async def _next(self, cluster: _Cluster, name: str, seen: _Container) -> _Container:
        """Poll once after a pause; if the API server does not answer, return the last state."""
        await asyncio.sleep(self._poll_s)
        found = await cluster.container(name)
        if found is None:
            return seen
        if not found.pod and seen.pod:
            raise ToolFailed("the pod of the Kubernetes Job is gone, and its outcome is lost", in_doubt=True)
        return found

    @asynccontextmanager
    async def _cluster(self) -> AsyncIterator[_Cluster]:
        configuration = self._configuration or await self._configured()
        async with self._k8s.client.ApiClient(configuration) as api:
            yield _Cluster(api, self._template.namespace or "default", self._poll_s)

    async def _configured(self) -> client.Configuration:
        from kubernetes_asyncio import config

        found = self._k8s.client.Configuration()
        try:
            cast("Any", config).load_incluster_config(client_configuration=found)
        except config.ConfigException:
            try:
                await config.load_kube_config(client_configuration=found)
            except config.ConfigException as error:
                raise ToolFailed(f"no Kubernetes cluster is configured: {error}") from None
        return found


class _Cluster:
    """The API calls that a Job needs."""

    def __init__(self, api: client.ApiClient, namespace: str, pause_s: float) -> None:
        import aiohttp
        from kubernetes_asyncio import client

        self._jobs, self._pods = client.BatchV1Api(api), client.CoreV1Api(api)
        self._namespace, self._pause_s = namespace, pause_s
        self._failures = (client.ApiException, aiohttp.ClientError, TimeoutError, ValueError)
        """`ValueError` is raised for a response that is not from the API."""

    async def _asked(self, what: str, ask: Callable[[], Awaitable[T]], *, seen: bool) -> T:
        """Return the result of `ask`, retried while the API server is unavailable or overloaded. Raises `ToolFailed`.

        `seen`: the Job exists already, so any failure leaves its outcome in doubt.
        """
        attempt = 1
        while True:
            try:
                return await ask()
            except self._failures as error:
                if attempt == _ATTEMPTS or not _passes(error):
                    raise ToolFailed(
                        f"{what}: {_described(error)}", in_doubt=seen or _passes(error)
                    ) from None
            await asyncio.sleep(self._pause_s * 2**attempt)
            attempt += 1

    async def create(self, manifest: dict[str, Any]) -> None:
        """Create the Job, unless it exists. Raises `ToolFailed`."""

        async def ask() -> None:
            try:
                await self._jobs.create_namespaced_job(
                    self._namespace, cast("Any", manifest), _request_timeout=_REQUEST_S
                )
            except self._failures as error:
                if getattr(error, "status", None) != _CONFLICT:
                    raise

        await self._asked("the Kubernetes Job cannot be created", ask, seen=False)

    async def container(self, name: str) -> _Container | None:
        """Return the Job's container, with an empty pod name if there is none; None if that is unknown for now.

        Raises `ToolFailed` if the API server refuses the request.
        """
        try:
            pods = await self._pods.list_namespaced_pod(
                self._namespace, label_selector=f"job-name={name}", _request_timeout=_REQUEST_S
            )
        except self._failures as error:
            if _passes(error):
                return None
            raise ToolFailed(
                f"the Kubernetes Job cannot be watched: {_described(error)}", in_doubt=True
            ) from None
        return _container(pods.items[0]) if pods.items else _Container(pod="")

    async def read_log(self, pod: str, output_bytes_max: int) -> HeadAndTail:
        """Return the container's output so far. Raises `ToolFailed`."""

        async def ask() -> HeadAndTail:
            output = HeadAndTail(output_bytes_max)
            answer = await self._pods.read_namespaced_pod_log(
                pod, self._namespace, container=CONTAINER, _preload_content=False, _request_timeout=_REQUEST_S
            )
            async with cast("aiohttp.ClientResponse", answer) as response:
                response.raise_for_status()
                async for chunk in response.content.iter_chunked(64 * 1024):
                    output.feed(chunk)
            return output

        return await self._asked("the output of the Kubernetes Job cannot be read", ask, seen=True)

    async def delete(self, name: str) -> None:
        """Delete the Job with its pod; if that fails, the Job's own deadline ends it."""
        with anyio.CancelScope(shield=True), suppress(*self._failures):
            await self._jobs.delete_namespaced_job(
                name, self._namespace, propagation_policy="Background", _request_timeout=_DELETE_S
            )


async def _outcome(
    cluster: _Cluster, container: _Container, command: Command, begun_s: float
) -> CommandOutcome:
    exit_code = container.exit_code
    if container.reason in _NOT_STARTED:
        output = HeadAndTail(command.output_bytes_max)
        output.feed(f"{command.argv[0]}: cannot be started: {container.message}\n".encode())
        exit_code = NOT_FOUND
    else:
        output = await cluster.read_log(container.pod, command.output_bytes_max)
    return CommandOutcome(
        exit_code=TIMED_OUT if exit_code is None else exit_code,
        output=output.text(),
        output_bytes=output.size_bytes,
        duration_s=time.monotonic() - begun_s,
        timed_out=exit_code is None,
        limit="memory" if container.reason == "OOMKilled" else "",
    )


def _container(pod: Any) -> _Container:
    """Return the container's state from its pod. Raises `ToolFailed` if its end can never be known."""
    name, status = pod.metadata.name, pod.status
    if status is None:
        return _Container(pod=name)
    state = next((each.state for each in status.container_statuses or [] if each.name == CONTAINER), None)
    end = state.terminated if state is not None else None
    if end is not None and end.reason == _NOT_KNOWN:
        raise ToolFailed(f"the pod failed: {end.reason} {end.message or ''}".strip(), in_doubt=True)
    # A pod that failed only because its command did has no reason.
    if status.phase == "Failed" and (end is None or status.reason):
        raise ToolFailed(
            f"the pod failed: {status.reason or ''} {status.message or ''}".strip(), in_doubt=True
        )
    if end is not None:
        code = end.exit_code if end.exit_code is not None else SIGNALLED + (end.signal or 0)
        return _Container(pod=name, exit_code=code, reason=end.reason or "", message=end.message or "")
    if status.phase == "Succeeded":  # even without container statuses
        return _Container(pod=name, exit_code=0)
    waiting = state.waiting if state is not None else None
    return _Container(
        pod=name,
        running=state is not None and state.running is not None,
        reason=(waiting.reason if waiting else status.reason) or "",
        message=(waiting.message if waiting else status.message) or "",
    )


def _passes(error: BaseException) -> bool:
    """Return whether a retry may help."""
    status = getattr(error, "status", None)
    return not status or status >= _SERVER_ERROR or status in _PASSING


def _described(error: BaseException) -> str:
    status, reason = getattr(error, "status", None), getattr(error, "reason", None)
    return f"HTTP {status} {reason or ''}".strip() if status else f"{type(error).__name__}: {error}"
