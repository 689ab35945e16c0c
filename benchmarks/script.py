"""Workload A: a run of ten steps and 28 calls, as plain data, so that every contestant runs the same.

There are ten model calls. Each of the first nine makes a pair of tool calls with about 200 bytes of arguments and 300
bytes of result each; the tenth answers in 500 bytes. Imports only the standard library, because the peers run it in
environments of their own.
"""

import json

STEPS = 10
CALLS_PER_STEP = 2
ARGUMENT_CHARS = 190
RESULT_CHARS = 300
ANSWER_CHARS = 500
QUESTION = "question"
TOOL = "lookup"
TOOL_SAYS = "Look something up."


def call_ids(step: int) -> list[str]:
    """Return the ids of the calls that the model makes in a step (from 1)."""
    return [f"c{step}-{n}" for n in range(CALLS_PER_STEP)]


def query(call_id: str) -> str:
    """Return the argument `q` of a call."""
    return f"{call_id} " + "q" * ARGUMENT_CHARS


def arguments(call_id: str) -> str:
    """Return the arguments of a call as the model writes them, in JSON."""
    return json.dumps({"q": query(call_id)})


def found(q: str) -> str:
    """Return the result of the tool."""
    return f"{q[:5]} " + "r" * RESULT_CHARS


def answer() -> str:
    """Return the model's final answer."""
    return "z" * ANSWER_CHARS


def payload_bytes(steps: int = STEPS) -> int:
    """Return the number of bytes in the texts of user, model and tools in a run, without any envelope."""
    calls = [call for step in range(1, steps) for call in call_ids(step)]
    return len(QUESTION) + len(answer()) + sum(len(arguments(c)) + len(found(query(c))) for c in calls)
