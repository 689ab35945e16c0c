"""Build the Kubernetes Job of a command."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...runtime.ports.runner import Command
from ...runtime.ports.tools import ToolFailed

CONTAINER: Final = "command"
_STDIN_BYTES_MAX: Final = 64 * 1024
# A pod reads stdin only from an attached client, and none is attached: the input is passed as an argument.
_WITH_STDIN: Final = ("sh", "-c", 'input=$1; shift; printf %s "$input" | base64 -d | "$@"', "sh")


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all Jobs of a runner.

    `image` is the container image. `claim` names the persistent volume claim that is the workspace (None: an empty
    directory for each command), mounted at `mount_path`. `namespace`: None is that of the configuration, else
    `default`. `limits` are the container's resource limits and requests. `pod` is merged into the pod's
    specification (`nodeSelector`, `runtimeClassName`, `serviceAccountName`, ...), `labels` go to Job and pod, so that
    network policies can select them.
    """

    image: str
    claim: str | None = None
    mount_path: str = "/workspace"
    namespace: str | None = None
    limits: Mapping[str, str] = msgspec.field(default_factory=lambda: {"cpu": "1", "memory": "1Gi"})
    pod: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}


def job_name(key: str) -> str:
    """Return the name of a call's Job, the same for every attempt of the call; without a key, a new name."""
    return f"foldlog-{hashlib.sha256((key or uuid.uuid4().hex).encode()).hexdigest()[:32]}"


def job_manifest(
    template: JobTemplate, command: Command, *, name: str, deadline_s: float, keep_s: float
) -> dict[str, Any]:
    """Return the Job `name`: one pod, never restarted, stopped by the cluster `deadline_s` after its creation.

    It is kept for `keep_s` after its end. Raises `ToolFailed` for a `cwd` outside the workspace, and for more stdin
    than fits into an argument.
    """
    labels = {"app.kubernetes.io/managed-by": "foldlog", **template.labels}
    volume: dict[str, Any] = {"name": "workspace", "emptyDir": {}}
    if template.claim is not None:
        volume = {"name": "workspace", "persistentVolumeClaim": {"claimName": template.claim}}
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [_container(template, command)],
        "volumes": [volume],
        **template.pod,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(deadline_s) + 1,
            "ttlSecondsAfterFinished": int(keep_s),
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(template: JobTemplate, command: Command) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": template.image,
        "command": _argv(command),
        "workingDir": _cwd(template, command),
        "env": [{"name": name, "value": value} for name, value in command.env.items()],
        "resources": {"limits": dict(template.limits), "requests": dict(template.limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "workspace", "mountPath": template.mount_path}],
    }


def _argv(command: Command) -> list[str]:
    # Kubernetes expands $(NAME) in arguments, but not $$(NAME).
    argv = [word.replace("$(", "$$(") for word in command.argv]
    if not command.stdin:
        return argv
    if len(command.stdin) > _STDIN_BYTES_MAX:
        raise ToolFailed(f"a Kubernetes Job takes at most {_STDIN_BYTES_MAX:,} bytes of stdin")
    return [*_WITH_STDIN, base64.b64encode(command.stdin).decode(), *argv]


def _cwd(template: JobTemplate, command: Command) -> str:
    """Return the working directory. Symbolic links are followed inside the container, which is the boundary."""
    root = posixpath.normpath(template.mount_path)
    path = posixpath.normpath(posixpath.join(root, command.cwd))
    if path != root and not path.startswith(f"{root.rstrip('/')}/"):
        raise ToolFailed(f"{command.cwd}: is outside the workspace")
    return path
