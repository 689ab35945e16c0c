"""The runtime of a command that only looks or speaks: the same log, and nothing registered unless named."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from ...runtime import Registry, Runtime


@contextlib.asynccontextmanager
async def opened(settings: Settings, registry: Registry | None = None) -> AsyncIterator[Runtime]:
    """A runtime on the log that the user chose. Raises `ConfigError`, `LogUnavailable`."""
    from ...runtime import Runtime
    from .records import show_logs

    show_logs()
    async with Runtime.open(settings.server, namespace=settings.namespace, registry=registry) as runtime:
        yield runtime
