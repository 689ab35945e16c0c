"""A program of the Synadia client, in an environment of its own: `URL NAMESPACE AGENT PROMPT ANSWER [RUN]`.

It prompts an agent and writes a line of JSON for each message, and for the error that ends the stream. A query is
answered with ANSWER; if that is empty, the program leaves at the first one.
"""

import asyncio
import json
import sys

import nats
from synadia_ai.agents import Agents, Envelope, ProtocolError, Query, ResponseChunk


def tell(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def main(url: str, namespace: str, agent: str, prompt: str, answer: str, run: str = "") -> None:
    client = await nats.connect(url)
    agents = Agents(nc=client)
    found = [
        each for each in await agents.discover() if (each.owner, each.session_name) == (namespace, agent)
    ]
    envelope = Envelope(prompt=prompt, **({"run": run} if run else {}))
    try:
        async for message in found[0].prompt(envelope):
            if isinstance(message, Query):
                tell(query=message.prompt)
                if not answer:
                    break
                await message.reply(answer)
            elif isinstance(message, ResponseChunk):
                tell(text=message.text)
            else:
                tell(status=message.status)
    except ProtocolError as error:
        tell(error=str(error))
    await agents.close()
    await client.close()


asyncio.run(main(*sys.argv[1:]))
