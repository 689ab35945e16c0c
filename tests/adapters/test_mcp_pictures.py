"""A picture from a live MCP server reaches each provider in its form, and the log holds its digest."""

import base64
import json
import re
from typing import Any

import pytest
from foldlog import Agent, Registry, Runtime
from foldlog.eventlog import RunFailed
from foldlog.eventlog.parts import files_of
from foldlog.projections.messages import sha256_hex
from foldlog.replay import load_trace, replay, to_jsonl

from ..fakes.mcp_server import PNG
from ..fakes.openai_server import Call, Reply
from .wires import WIRES, set_keys

DATA = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{DATA}"
FORMS: dict[str, Any] = {
    "chat": {"type": "image_url", "image_url": {"url": URL}},
    "responses": {"type": "input_image", "image_url": URL, "detail": "auto"},
    "anthropic": {"type": "base64", "media_type": "image/png", "data": DATA},
    "bedrock": {"format": "png", "source": {"bytes": DATA}},
}
"""A picture in the words of a provider; of the others its base64 is looked for."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


def count_of(form: Any, sent: Any) -> int:
    """Count the form in the requests that were sent, with any other keys beside its own."""
    if isinstance(sent, list):
        return sum(count_of(form, each) for each in sent)
    if not isinstance(sent, dict):
        return 0
    here = all(sent.get(name) == each for name, each in form.items())
    return here + sum(count_of(form, each) for each in sent.values())


@pytest.mark.parametrize("name", [name for name in WIRES if name != "cohere"])
async def test_a_picture_from_a_live_mcp_server_reaches_the_provider_in_its_form(
    name: str, mcp_server: dict[str, Any]
) -> None:
    wire = WIRES[name]
    looks = [
        Reply(calls=(Call(id=f"call_{n}", name="mcp__camera__photo", arguments=("{}",)),)) for n in range(2)
    ]
    async with wire.served(*looks, Reply(text=("It is dark.",))) as (server, provider):
        agent = Agent("seer", model=f"{name}:{wire.model}", mcp_servers={"camera": mcp_server})
        registry = Registry(agents=[agent], providers={name: provider})
        async with Runtime.open("memory://", registry=registry) as rt:
            run = await rt.start(agent, "How is the weather?")
            assert (await run.result()).output == "It is dark."
            state = await run.state()
            trace = await load_trace(rt.log, run.run_id)
    bodies = [request.body for request in server.requests]
    if name in FORMS:
        assert [count_of(FORMS[name], body) for body in bodies] == [0, 1, 2]
    else:
        plain = [json.dumps(body).replace("-", "+").replace("_", "/") for body in bodies]
        assert [len(re.findall(re.escape(DATA.rstrip("=")), text)) for text in plain] == [0, 1, 2]
    artifacts = {file.artifact for message in state.messages for file in files_of(message.parts)}
    assert artifacts == {sha256_hex(PNG)}
    assert DATA.encode() not in to_jsonl(trace)
    assert replay(trace).divergence is None


async def test_a_picture_for_a_vendor_that_takes_none_ends_the_run_by_name(
    mcp_server: dict[str, Any],
) -> None:
    call = Reply(calls=(Call(id="call_a", name="mcp__camera__photo", arguments=("{}",)),))
    async with WIRES["cohere"].served(call) as (_, provider):
        agent = Agent("seer", model="cohere:command-a", mcp_servers={"camera": mcp_server})
        async with Runtime.open("memory://", registry=Registry(providers={"cohere": provider})) as rt:
            with pytest.raises(RunFailed, match="Cohere does not yet support multi-modal inputs"):
                await rt.run(agent, "How is the weather?")
