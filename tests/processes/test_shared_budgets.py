"""SIGKILL around the replies of a run under budgets: each reply that is stored is counted, and once (W65)."""

import pytest
from foldlog.eventlog import Usage
from foldlog.runtime.shared.spending import all_spent

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, submitted

POINTS = [
    "in model call 1",
    "before append 2",
    "after append 2",
    "in model call 2",
    "before append 9",
    "after append 9",
]
"""Around the calls of the clerk's model and the commits with its replies, the last of which ends the run."""


@pytest.mark.parametrize("executor", ["durable", "local"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_reply_of_a_killed_worker_is_counted_if_it_is_stored(place: Place, point: str, executor: str):
    config = place.directory / "budgets.toml"
    config.write_text('[budgets]\n"agent:clerk" = { tokens = 1_000_000, per = "total" }\n')
    environment = {"FOLDLOG_CONFIG": str(config)}
    if executor == "durable":
        for _ in range(2):
            await place.worker(serves=["clerk"], WORKSHOP_KILL=point, **environment)
        run = await place.runtime.start(workshop.clerk, "question", executor="durable")
    else:
        await place.worker(serves=["clerk"], **environment)
        await place.local_process("clerk", "mine", WORKSHOP_KILL=point, **environment)
        run = await submitted(place, "mine")
    assert (await run.result(timeout_s=PATIENCE_S)).output
    assert sum(not process.is_alive() for process in place.processes.values()) == 1
    replies = [event for event in (await place.trace(run)).events if isinstance(event, Usage)]
    (parts,) = (await all_spent(place.log)).values()
    assert sum(part.calls for part in parts) == len(replies) == 2
    assert sum(part.tokens for part in parts) == sum(reply.usage.total_tokens for reply in replies)
