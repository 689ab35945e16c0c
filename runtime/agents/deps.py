"""Dependencies of tools' code, such as a database connection: opened once per process, or once per run.

A registry is given a factory that returns an async context manager. If the factory takes no argument, the dependencies
are opened when the process first drives a run, and closed with the registry. If it takes one, that is the `RunContext`
of a run: they are opened when the run first needs them in this process, and closed when this process stops driving the
run, for any reason. A child run is a run of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeGuard, TypeVar, cast

from ...eventlog.errors import ConfigError
from ..ports.tools import Tool
from ..tools.run_context import RunContext

logger = logging.getLogger("foldlog.deps")

CLOSE_S = 10.0
"""The time that closing may take, so that code that hangs there does not hold a run for ever."""

T = TypeVar("T")
DepsFactory = (
    Callable[[], AbstractAsyncContextManager[T]]
    | Callable[[RunContext[None]], AbstractAsyncContextManager[T]]
)


class Opened(Generic[T]):
    """The value of a context manager, which is entered at the first use and left by `aclose`.

    A separate task enters and leaves it: many context managers have to be left by the task that entered them.
    """

    def __init__(self, whose: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._whose, self._make = whose, make
        self._value: asyncio.Future[T] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def value(self) -> T:
        """Return the value, opened if necessary. Raises `ConfigError` if that fails; the next call tries again."""
        if self._value is None:
            self._value, self._leave = asyncio.get_running_loop().create_future(), asyncio.Event()
            self._holding = asyncio.create_task(self._hold(self._value, self._leave))
        return await asyncio.shield(self._value)

    async def _hold(self, value: asyncio.Future[T], leave: asyncio.Event) -> None:
        try:
            async with self._make() as opened:
                value.set_result(opened)
                await leave.wait()
        except (Exception, SystemExit) as error:
            if value.done():
                logger.warning("the dependencies of %s were closed with an error", self._whose, exc_info=True)
                return
            self._value = None
            message = f"the dependencies of {self._whose} cannot be opened: {type(error).__name__}: {error}"
            value.set_exception(ConfigError(message))
            value.exception()  # retrieved here, in case no caller waits any more

    async def aclose(self) -> None:
        """Leave the context manager, even while it is being entered, within `CLOSE_S`. Safe to repeat."""
        value, holding = self._value, self._holding
        self._value = self._holding = None
        if value is None or holding is None:
            return
        self._leave.set()
        if not value.done():
            value.cancel()
            holding.cancel()
        _, late = await asyncio.wait({holding}, timeout=CLOSE_S)
        if late:
            logger.warning(
                "the dependencies of %s are not closed after %g s; left alone", self._whose, CLOSE_S
            )
            holding.cancel()


class Deps:
    """The dependencies of a registry. Raises `ConfigError` for an invalid factory."""

    def __init__(self, factory: DepsFactory[Any] | None) -> None:
        self.factory = factory
        self.opens = _opened_type(factory)
        """The type that the factory says it opens; null if it does not say so."""
        self.of_each_run = factory is not None and _takes_run(factory)
        of_process = cast("Callable[[], AbstractAsyncContextManager[Any]]", factory)
        shared = factory is not None and not self.of_each_run
        self._shared = Opened("this process", of_process) if shared else None

    def check_tool(self, tool: Tool, *, needed: bool = False) -> None:
        """Raise `ConfigError` if a tool's context is of another type than the factory opens, as far as both say it.

        Also, with `needed`, if it takes dependencies and there is no factory.
        """
        name, wanted = tool.spec.name, getattr(tool, "deps_type", None)
        if needed and wanted is not None and self.factory is None:
            raise ConfigError(f"the tool {name!r} takes a context with dependencies: give Registry(deps=...)")
        self._check(f"the tool {name!r} takes a ToolContext[{_shown(wanted)}]", wanted)

    def check_agent(self, name: str, wanted: object, *, needed: bool = False) -> None:
        """Raise `ConfigError` as `check_tool` does, for the `deps_type` of an agent."""
        takes = f"agent {name!r} takes dependencies of type {_shown(wanted)}"
        if needed and wanted is not None and self.factory is None:
            raise ConfigError(f"{takes}: give Registry(deps=...)")
        self._check(takes, wanted)

    def _check(self, takes: str, wanted: object) -> None:
        opened = self.opens
        if is_checked(wanted) and isinstance(opened, type) and not issubclass(opened, wanted):
            raise ConfigError(f"{takes}, but Registry(deps=...) opens {opened.__name__}")

    async def shared(self) -> Any:
        """Return the process' dependencies, opened at the first call; null without any. Raises `ConfigError`."""
        return await self._shared.value() if self._shared is not None else None

    def of_run(self, run: RunContext[None]) -> Opened[Any]:
        """Return a run's dependencies, not opened yet."""
        make = cast("Callable[[RunContext[None]], AbstractAsyncContextManager[Any]]", self.factory)
        return Opened(f"run {run.run_id}", lambda: make(run))

    async def aclose(self) -> None:
        """Close the process' dependencies. Safe to repeat."""
        if self._shared is not None:
            await self._shared.aclose()


def is_checked(wanted: object) -> TypeGuard[type]:
    """Return whether dependencies can be checked against the type: a class that is not a protocol."""
    return isinstance(wanted, type) and not getattr(wanted, "_is_protocol", False)


def _shown(wanted: object) -> str:
    return wanted.__name__ if isinstance(wanted, type) else str(wanted)


def _opened_type(factory: DepsFactory[Any] | None) -> object:
    try:
        returned = (
            typing.get_type_hints(inspect.unwrap(factory)).get("return") if factory is not None else None
        )
    except Exception:  # noqa: BLE001 - an annotation is any expression
        return None
    managers = {AsyncGenerator, AsyncIterator, AbstractAsyncContextManager}
    found = typing.get_args(returned)[0] if typing.get_origin(returned) in managers else None
    return None if found is Any else found


def _takes_run(factory: Callable[..., Any]) -> bool:
    if not callable(factory):
        raise ConfigError(
            f"deps must be a function that returns an async context manager, not {factory!r:.60}"
        )
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # of a builtin
        return False
    wanted = [each for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]
    if len(wanted) > 1 or any(each.kind is each.KEYWORD_ONLY for each in wanted):
        raise ConfigError(
            f"deps must be a function without arguments, or of a run, not of {', '.join(map(str, wanted))}"
        )
    return bool(wanted)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
