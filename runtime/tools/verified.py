"""Tools with a postcondition: after a call, or instead of a call whose outcome is lost, its effect is verified.

@postcondition({"json_path": {"path": "$.state", "equals": "paid"}}, probe=look_up)
@tool(effect="unsafe")
async def pay(invoice: str) -> str:
    "Pay an invoice."
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, cast

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolSpec
from ..core.postconditions import Bound, Postcondition, Report, Written, judge
from ..ports.evidence import Evidence, FileSeen, sound_evidence
from ..ports.runnable import DepsT, DepsT_contra
from ..ports.tools import Tool, ToolContextPort, ToolFailed
from .decorator import tool
from .functions import call_function

Probe = Callable[[Mapping[str, Any], ToolContextPort], Awaitable[Evidence]]
"""Observes the effect of a call with these arguments. Raises any error that prevents that."""


class Files(Protocol):
    """The files that assertions may look at (`foldlog.adapters.builtin.Workspace`). Both methods may block."""

    def kind(self, path: str) -> str | None:
        """Return the kind of the path: file, directory, link, other; None for nothing. Raises `ToolFailed`."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content. Raises `ToolFailed`."""
        ...


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification. `seen` is null if the evidence is stored already; no findings: nothing checked."""

    report: Report
    seen: Evidence | None = None


class Verifiable(Protocol):
    """A tool whose calls can be verified, as all whose specification has a postcondition."""

    async def verify(
        self, arguments: Mapping[str, Any], context: ToolContextPort, own: Evidence | None
    ) -> Verification:
        """Verify whether a call achieved its purpose. `own`: the call's own evidence; null if that is lost.

        Raises any error that prevents the verification.
        """
        ...


class VerifiedTool(Generic[DepsT_contra]):
    """A tool and its postcondition. Made by `postcondition`, and from the entry of an MCP server."""

    def __init__(
        self,
        inner: Tool[DepsT_contra],
        condition: Postcondition,
        probe: Probe | None,
        workspace: Files | None,
    ) -> None:
        functools.update_wrapper(cast("Any", self), cast("Any", inner), updated=())
        self.inner = inner
        self.spec: ToolSpec = msgspec.structs.replace(inner.spec, postcondition=condition.written)
        self.starts = getattr(inner, "starts", None)
        self.deps_type = getattr(inner, "deps_type", None)
        self.wants_deps = getattr(inner, "wants_deps", False)
        self.once = getattr(inner, "once", None)
        self.compensate = getattr(inner, "compensate", None)
        self.rollback_hint: str = getattr(inner, "rollback_hint", "")
        self._condition, self._probe, self._workspace = condition, probe, workspace

    @property
    def seen_by(self) -> tuple[Probe | None, Files | None]:
        """The observers of a call's effect: its probe, and its workspace."""
        return self._probe, self._workspace

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function: nothing is verified."""
        return cast("Any", self.inner)(*args, **kwargs)

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort[DepsT_contra]) -> Any:
        """Run one attempt of the tool itself."""
        return await self.inner.call(arguments, context)

    async def verify(
        self, arguments: Mapping[str, Any], context: ToolContextPort, own: Evidence | None
    ) -> Verification:
        """Verify the call (see `Verifiable`)."""
        arguments = with_defaults(self.inner.spec, arguments)
        bound = self._condition.bound(arguments)
        seen = own if self._probe is None else await self._probe(arguments, context)
        seen = msgspec.structs.replace(seen or Evidence(), files=await self._files(bound))
        return Verification(report=judge(bound, seen), seen=seen)

    async def _files(self, bound: list[Bound]) -> dict[str, FileSeen]:
        wanted: dict[str, bool] = {}
        for each in bound:
            for path, read in each.assertion.files.items() if each.assertion is not None else ():
                wanted[path] = wanted.get(path, False) or read
        return {path: await call_function(self._file, path, read=read) for path, read in wanted.items()}

    def _file(self, path: str, *, read: bool) -> FileSeen:
        if self._workspace is None:
            return FileSeen(problem="the tool has no workspace")
        try:
            kind = self._workspace.kind(path)
            content = self._workspace.read(path) if read and kind == "file" else None
        except ToolFailed as error:
            return FileSeen(problem=str(error))
        return FileSeen(kind=kind, content=content)


class Verify(Protocol):
    """Gives a tool its postcondition."""

    def __call__(self, inner: Tool[DepsT], /) -> VerifiedTool[DepsT]:
        """Return the tool with it. Raises `ConfigError`."""
        ...


def _python_probe(tool_name: str, probe: Callable[..., Any], parameters: Collection[str]) -> Probe:
    """Return the function as a probe. Raises `ConfigError` if it has parameters that the tool lacks."""
    function = tool(name=tool_name, description="", timeout_s=None)(probe)
    wanted = function.spec.parameters.get("properties", {})
    if unknown := sorted(set(wanted) - set(parameters)):
        known = ", ".join(parameters) or "none"
        raise ConfigError(
            f"tool {tool_name!r}: its probe has a parameter {unknown[0]!r} that the tool lacks (it has: {known})"
        )

    async def look(arguments: Mapping[str, Any], context: ToolContextPort) -> Evidence:
        seen = await function.value({name: arguments[name] for name in wanted if name in arguments}, context)
        if seen is None:
            return Evidence()
        if not isinstance(seen, Evidence):
            raise ToolFailed(f"a probe must return Evidence, or None for nothing, not {seen!r:.60}")
        return sound_evidence(seen)

    return look


def with_step(tool: Tool, assertions: Sequence[Written]) -> VerifiedTool:
    """Return the tool with the assertions of a workflow's step after its own. Raises `ConfigError`."""
    inner = tool.inner if isinstance(tool, VerifiedTool) else tool
    probe, workspace = tool.seen_by if isinstance(tool, VerifiedTool) else (None, None)
    condition = Postcondition(tool.spec.name, [*tool.spec.postcondition, *assertions])
    return VerifiedTool(inner, condition, probe, workspace)


def with_defaults(spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with the defaults of those that the model left out, as far as the schema has them."""
    properties = spec.parameters.get("properties", {})
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    return {**defaults, **arguments}


def postcondition(
    *assertions: Written, probe: Callable[..., Any] | None = None, workspace: Files | None = None
) -> Verify:
    """Give a tool a postcondition: all assertions must hold after a call, or its attempt has failed.

    `probe` observes the effect: a function of some of the tool's parameters, by their names, and optionally of a
    `ToolContext`, that returns `Evidence`, or None for nothing. Without a probe the evidence is the call's own result,
    plus what it reported by `ToolContext.observe`; a call whose outcome is lost has none. `workspace` is where
    assertions about files look.

    Raises `ConfigError`, which names the tool, for an assertion that is unknown, malformed, or not installed; for one
    about files without a workspace; and for a probe with parameters that the tool lacks.
    """

    def decorate(inner: Tool[DepsT]) -> VerifiedTool[DepsT]:
        spec = getattr(inner, "spec", None)
        if spec is None:
            raise ConfigError(f"{inner!r:.60} is not a tool: @postcondition(...) goes above @tool")
        if spec.postcondition:
            raise ConfigError(f"tool {spec.name!r} already has a postcondition")
        parameters = spec.parameters.get("properties", {})
        condition = Postcondition(spec.name, assertions, parameters)
        if condition.reads_files and workspace is None:
            raise ConfigError(f"tool {spec.name!r}, postcondition: an assertion about files needs workspace=")
        look = None if probe is None else _python_probe(spec.name, probe, parameters)
        return VerifiedTool(inner, condition, look, workspace)

    return decorate
