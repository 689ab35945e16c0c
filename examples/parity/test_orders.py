"""Copy this directory: what an agent does is the same on every executor, whatever befalls its worker.

pip install "foldlog[test]"
pytest --foldlog-golden golden --golden-update
"""

import asyncio
import json
from pathlib import Path

import pytest
from foldlog import Agent, Registry, Runtime
from foldlog.replay import Answer, Cancel, check_parity
from foldlog.replay.strategies import approvals, faults, scripts
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import AGENT

SCRIPT = Path(__file__).with_name("refund.json")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("planned", [None, "crash@8", "crash@12,lost-ack@2"])
async def test_an_order_is_refunded_on_every_executor(assert_parity, planned):
    report = await assert_parity(AGENT, script=SCRIPT, faults=planned)
    assert report.boundaries == (20, 20)


@pytest.mark.anyio
async def test_a_cancelled_refund_is_the_beginning_of_a_whole_one():
    report = await check_parity(AGENT, script=SCRIPT, inputs=[Answer(call="2.0"), Cancel(after=7)])
    assert report.equal, report.render()


@settings(max_examples=10, deadline=None)
@given(st.data(), scripts(AGENT.tools), faults())
def test_executors_agree_about_any_order(data, turns, planned):
    inputs = data.draw(approvals(turns, ["refund"]))
    report = asyncio.run(check_parity(AGENT, "question", script=turns, inputs=inputs, faults=planned))
    assert report.equal, report.render()


@pytest.mark.anyio
async def test_workers_serve_the_agent_on_a_real_server_and_in_memory(
    foldlog_runtime, foldlog_server, tmp_path
):
    path = tmp_path / "hello.json"
    path.write_text(json.dumps({"turns": [{"text": ["hello"]}]}))
    agent = Agent("greeter", model=f"scripted:{path}")
    async with foldlog_runtime(agent, workers=1) as runtime:
        assert (await runtime.run(agent, "hi", executor="durable", timeout_s=30)).output == "hello"
    async with Runtime.open(foldlog_server.url, namespace="greeter", registry=Registry([agent])) as runtime:
        assert (await runtime.run(agent, "hi", timeout_s=30)).output == "hello"
