from __future__ import annotations
import time, pytest
from collections import Counter
from tests.protocol.loop import simulate
from tests.protocol.world import World, crash_plan
from tests.protocol.scenarios import SCENARIOS, undisturbed, submit, forms
from tests.protocol.properties import violations, left_over

@pytest.mark.parametrize("name", SCENARIOS)
def test_smoke(name):
    expected = undisturbed(name)
    async def play():
        world = World()
        jobs = SCENARIOS[name](world)
        people = world.process("answering").spawn(world.answer_approvals())
        w = world.worker("w0")
        await submit(world.process("caller"), jobs, "durable")
        await world.settle()
        return world, w
    t=time.perf_counter()
    world, w = simulate(play)
    print(name, time.perf_counter()-t, w.handle.operations["*"], world.clock)
    assert violations(world) == []
    assert {k: f.digest for k, f in forms(world).items()} == expected
