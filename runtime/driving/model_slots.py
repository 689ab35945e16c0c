"""The limit of a model provider: a model call waits in line until fewer than so many are under way in the namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ...eventlog.errors import FoldlogError
from ..core.effects import CallModel
from ..core.limits import limit_of_model
from ..journal.outages import through_outages
from ..shared.deadlocks import limit_name
from ..shared.slots import Slots, model_call
from .cancellation import shielded
from .host import Outbox
from .tool_slots import GIVE_BACK_S


@contextlib.asynccontextmanager
async def provider_slot(driver: Outbox, effect: CallModel) -> AsyncIterator[bool]:
    """Hold a slot of the model's provider, if it has a limit. Yields false if the run was closed before its turn."""
    state = driver.state
    limit = limit_of_model(state.model.model or driver.journal.rules.model)
    size = driver.host.limits.get(limit)
    if size is None:
        yield True
        return
    slots = Slots(
        driver.host,
        driver.journal,
        limit_name(limit),
        size,
        call=model_call(effect.step, effect.attempt, effect.phase),
        claimed_at=state.owner_revision,
    )
    try:
        yield await through_outages(driver.clock, slots.until_taken)
    finally:
        await shielded(_given_back(driver, slots))


async def _given_back(driver: Outbox, slots: Slots) -> None:
    """Give the slot back; one that cannot be given back in time is found by those who wait for it."""
    with contextlib.suppress(FoldlogError, TimeoutError):
        async with asyncio.timeout(GIVE_BACK_S):
            await through_outages(driver.clock, slots.give_back)
