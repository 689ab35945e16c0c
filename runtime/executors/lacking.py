"""The check for what this process lacks for a run: made before the claim, so that another process may take the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...eventlog.errors import ConfigError
from ..agents.readiness import Readiness
from ..journal.family import family_of

if TYPE_CHECKING:
    from ..driving.host import Host
    from ..journal.journal import Journal


async def lacking(host: Host, journal: Journal) -> str | None:
    """Return what the process lacks for the run, or for open runs below it, as text; null for nothing.

    Raises `LogUnavailable`.
    """
    try:
        await check_fit(host, journal)
        await host.registry.deps.shared()
    except ConfigError as error:
        return str(error)
    return None


async def check_fit(host: Host, journal: Journal) -> None:
    """Check that the registry has all that the run and the open runs below it need; opens no dependencies.

    Raises `ConfigError`, which says what is missing or has changed, and `LogUnavailable`.
    """
    family = await family_of(journal) if journal.state.open_children else {}
    Readiness(host.registry, family).check(journal, host.runnable_of(journal.state))
