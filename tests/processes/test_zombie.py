"""A worker that sleeps through its lease and wakes up: it appends nothing more, and nobody hears of what it had."""

from foldlog.eventlog import ApprovalRequested, ChildStarted, McpProgress, Status, is_terminal
from foldlog.replay import Trace, compare

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, Process, stored, undisturbed

LEASE_S = 1.0


async def awakened(zombie: Process) -> None:
    """Let it end all that it had begun: a worker that ends well has nothing left."""
    workshop.open_gate()
    zombie.go_on()
    zombie.terminate()
    await zombie.gone()


def assert_silent(before: Trace, after: Trace) -> None:
    """Nothing was stored in between, and nothing of what came too late was ever stored."""
    assert after.stored == before.stored
    assert sum(isinstance(event, Status) and is_terminal(event) for event in after.events) == 1
    assert all(b"much too late" not in stored.data for stored in after.stored)


async def test_a_zombie_appends_nothing_and_its_tools_late_result_is_nowhere(place: Place):
    for _ in range(2):
        await place.worker(lease_s=LEASE_S)
    run = await place.runtime.start(workshop.holder, "question", executor="durable")
    await stored(run, McpProgress)
    zombie = await place.owner(run)
    zombie.stop()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "Let go"
    before = await place.trace(run)
    await awakened(zombie)
    assert_silent(before, await place.trace(run))
    await place.form(run)


async def test_a_zombie_with_an_unsafe_call_leaves_the_decision_as_it_is(place: Place):
    for _ in range(2):
        await place.worker(lease_s=LEASE_S)
    run = await place.runtime.start(workshop.keeper, "question", executor="durable")
    await stored(run, McpProgress)
    zombie = await place.owner(run)
    zombie.stop()
    approval = await stored(run, ApprovalRequested)
    waiting = await place.trace(run)
    await awakened(zombie)
    assert (await place.trace(run)).stored == waiting.stored
    await run.resolve(approval.approval_id, "rejected", note="it never rang")
    assert (await run.result(timeout_s=PATIENCE_S)).output == "Let go"
    assert_silent(await place.trace(run), await place.trace(run))
    await place.form(run)


async def test_a_zombie_with_a_child_run_appends_to_neither(place: Place):
    for _ in range(2):
        await place.worker(lease_s=LEASE_S)
    run = await place.runtime.start(workshop.sender, "question", executor="durable")
    child = place.runtime.get_run((await stored(run, ChildStarted)).child_run)
    await stored(child, McpProgress)
    zombie = await place.owner(run)
    zombie.stop()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "Seen to"
    before = await place.trace(run)
    await awakened(zombie)
    assert (await place.trace(run)).stored == before.stored
    ends = [event for event in before.events if is_terminal(event)]
    assert [event.agent_path for event in ends] == ["sender/holder", "sender"]
    await place.form(run)


async def test_a_worker_that_is_fenced_goes_on_to_serve(place: Place):
    for _ in range(2):
        await place.worker(lease_s=LEASE_S)
    run = await place.runtime.start(workshop.holder, "question", executor="durable")
    await stored(run, McpProgress)
    zombie = await place.owner(run)
    zombie.stop()
    await run.result(timeout_s=PATIENCE_S)
    workshop.open_gate()
    zombie.go_on()
    for other in place.processes.values():
        if other is not zombie:
            other.kill()
    later = await place.runtime.start(workshop.clerk, "question", executor="durable")
    await later.result(timeout_s=PATIENCE_S)
    assert (await place.owner(later)) is zombie
    assert compare(await place.form(later), await undisturbed(workshop.clerk)).equal
