"""Scripted runs that between them use everything a run can do, and how each is played undisturbed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
from foldlog.replay import Canonical, canonical, trace_of
from foldlog.runtime import Agent

from tests.protocol.loop import simulate
from tests.protocol.world import Process, Reply, World


class Job(msgspec.Struct, frozen=True):
    """A run to start: its agent, its input, and the options of `start`."""

    agent: Agent[Any]
    text: str
    options: dict[str, Any] = {}


def says(*pieces: str) -> Reply:
    return Reply(text=pieces)


def calls(*requests: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(calls=requests)


def pure(world: World) -> list[Job]:
    replies = calls(("look", {"at": "a"}), ("save", {"what": "b"})), says("Final ", "answer")
    return [Job(world.agent("pure", *replies), "question")]


def unsafe(world: World) -> list[Job]:
    replies = calls(("send", {"to": "a"}), ("look", {"at": "b"})), calls(("send", {"to": "c"})), says("done")
    return [Job(world.agent("unsafe", *replies), "question")]


def approval(world: World) -> list[Job]:
    replies = calls(("deploy", {"to": "a"}), ("deploy", {"to": "b"})), says("done")
    return [Job(world.agent("approval", *replies, hitl_tools=["deploy"]), "question")]


def injection(world: World) -> list[Job]:
    replies = calls(("poke", {"text": "hurry"})), calls(("poke", {"text": "faster"})), says("done")
    return [Job(world.agent("injection", *replies), "question")]


def child(world: World) -> list[Job]:
    world.agent("inner", calls(("look", {"at": "deep"}), ("save", {"what": "x"})), says("inner answer"))
    return [Job(world.agent("child", calls(("delegate", {"to": "inner"})), says("done")), "question")]


def unsafe_child(world: World) -> list[Job]:
    world.agent("inner", calls(("send", {"to": "deep"})), says("inner answer"))
    return [Job(world.agent("unsafe_child", calls(("delegate", {"to": "inner"})), says("done")), "question")]


def waiting_child(world: World) -> list[Job]:
    replies = (
        Reply(calls=(("look", {"at": "deep"}),), fails=1, retry_after_s=60.0),
        calls(("deploy", {"to": "a"})),
        says("inner answer"),
    )
    world.agent("inner", *replies, hitl_tools=["deploy"])
    outer = calls(("delegate", {"to": "inner"}), ("send", {"to": "b"})), says("done")
    return [Job(world.agent("waiting_child", *outer), "question")]


def planned(world: World) -> list[Job]:
    looks = Reply(calls=(("look", {"at": "a"}), ("send", {"to": "b"})), fails=1)
    world.model.scripts["planner"] = (looks, says("1. Look."))
    replies = calls(("look", {"at": "a"})), says("done")
    fields = {"planning_enabled": True, "planning_model": "sim:planner"}
    return [Job(world.agent("planned", *replies, **fields), "question")]


def lane(world: World) -> list[Job]:
    agent = world.agent("lane", calls(("look", {"at": "a"})), says("done"))
    return [Job(agent, f"question {n}", {"session": "talk"}) for n in range(2)]


def retry(world: World) -> list[Job]:
    parked = Reply(calls=(("look", {"at": "a"}),), fails=1, retry_after_s=60.0)
    return [Job(world.agent("retry", parked, Reply(text=("done",), fails=2)), "question")]


SCENARIOS: dict[str, Callable[[World], list[Job]]] = {
    each.__name__: each
    for each in (pure, unsafe, approval, injection, child, unsafe_child, waiting_child, planned, lane, retry)
}


async def submit(process: Process, jobs: list[Job], executor: str) -> None:
    """Start all jobs, one after the other."""
    for job in jobs:
        await process.start(job.agent, job.text, executor=executor, **job.options)


def forms(world: World) -> dict[str, Canonical]:
    """The canonical form of each family, by the agent and input of its root."""
    found: dict[str, Canonical] = {}
    for root in world.roots():
        stored = [s for s, _ in world.commits() if s.subject.kind == "run" and s.subject.root == root]
        trace = trace_of(stored)
        submitted: Any = trace.events[0]
        found[f"{submitted.agent_path}: {submitted.input}"] = canonical(trace)
    return found


@functools.cache
def undisturbed(name: str) -> dict[str, Canonical]:
    """The scenario's canonical forms as the local executor writes them when nothing goes wrong."""

    async def play() -> dict[str, Canonical]:
        world = World()
        jobs = SCENARIOS[name](world)
        people = world.process("answering").spawn(world.answer_approvals())
        await submit(world.process("local"), jobs, "local")
        await world.settle()
        people.cancel()
        assert not world.open_runs()
        return forms(world)

    return simulate(play)
