"""The scenario of a user's agent: its own tools, a script for its model, and operators who answer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...eventlog.errors import ConfigError
from ...eventlog.events import ApprovalRequested
from ...runtime import Agent, Registry
from ...runtime.ports.runnable import Runnable, all_members
from ..parity.casts import CountedRegistry
from ..parity.inputs import Answer, FamilyPlaces, Input, Message, Pause
from ..parity.scripts import Script, ScriptFiles, ScriptLike, StageModel, check_plans, read_script
from ..traces.trace import trace_of
from .scenarios import Scenario
from .world import Decision, Job, World


class _Script:
    """The script of an agent, as files that exist as long as this object."""

    def __init__(self, agent: Runnable[Any], script: Script) -> None:
        directory = tempfile.mkdtemp(prefix="foldlog-simulation-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.files = ScriptFiles(script, agent.name, Path(directory))
        self.files.check()


def agent_scenario(
    agent: Runnable[Any],
    input: str | None = None,  # noqa: A002 - as in `start`
    *,
    script: ScriptLike,
    registry: Registry | None = None,
) -> Mapping[str, Scenario]:
    """Return the scenario of an agent, under its name. `script` and its inputs are as for `check_parity`.

    An approval without an answer is approved; cancels are ignored, because schedules have their own. Raises
    `ConfigError` for an agent or input that cannot be simulated.
    """
    read = read_script(script)
    asked = input if input is not None else read.input
    if asked is None:
        raise ConfigError(f"{read.source} has no `input`, and no other one is given")
    for member in all_members(agent):
        if isinstance(member, Agent) and member.config.mcp_servers:
            raise ConfigError(
                f"agent {member.name!r} has tool servers, which need real time: simulate it without them"
            )
    check_plans(read, agent)
    for item in read.inputs:
        _check(item, read.source)
    written, text = _Script(agent, read), asked

    def stage(world: World) -> list[Job]:
        people = _People(world, read.inputs)

        async def called(run: str, step: int) -> str:
            await people.say(run, step + 1)
            return people.agent_of(run)

        world.make_registry = lambda: CountedRegistry(agent, registry, StageModel(written.files, called))
        world.decide = people.decide
        world.plans = read.plans
        return [Job(agent, text)]

    return {agent.name: Scenario(agent.name, stage, told_apart=False)}


def _check(item: Input, source: str) -> None:
    if isinstance(item, Message | Pause) and item.step == 1:
        raise ConfigError(
            f"{source}: an input at step 1 cannot be simulated: a worker may claim the run before it"
        )
    if isinstance(item, Answer) and item.decision == "timed_out":
        raise ConfigError(f"{source}: an approval that times out takes days: give another answer")


class _Saying:
    """An input for a run, as a callable."""

    def __init__(self, world: World, run: str, item: Message | Pause) -> None:
        self._world, self._run, self._item = world, run, item

    async def __call__(self) -> None:
        if isinstance(self._item, Message):
            await self._world.inject(self._run, self._item.content)
        else:
            await self._world.pause(self._run)


class _People:
    """The callers and operators, who give each input at its place."""

    def __init__(self, world: World, inputs: tuple[Input, ...]) -> None:
        self._world, self._inputs = world, inputs

    def agent_of(self, run: str) -> str:
        """Return the name of a run's agent."""
        path = next(commit.path for _, commit in self._world.commits() if commit.run == run)
        return path.rpartition("/")[2]

    async def say(self, run: str, step: int) -> None:
        """Give the inputs of a step, once, even if several model calls wait for them."""
        world = self._world
        for number, item in enumerate(self._inputs):
            if not isinstance(item, Message | Pause) or item.step != step:
                continue
            if item.run == self._places(run).place_of(run):
                saying = _Saying(world, run, item)
                await asyncio.wait({world.say_once(f"{number} {run}", saying)})

    def decide(self, run: str, asked: ApprovalRequested) -> Decision:
        """Return the decision for an approval; it is approved if the inputs have no answer."""
        where = self._places(run).approval(run, asked.approval_id)
        answer = where.answer_in(self._inputs) if where is not None else None
        if answer is None:
            return Decision()
        if answer.decision == "rejected":
            return Decision(decision="rejected", note=answer.note)
        return Decision(
            arguments=answer.arguments,
            note=answer.note,
            outcome=answer.outcome,
            result=answer.result,
            always=answer.always,
        )

    def _places(self, run: str) -> FamilyPlaces:
        root = next(stored.subject.root for stored, commit in self._world.commits() if commit.run == run)
        return FamilyPlaces(trace_of(self._world.family(root)).events)
