"""A scenario of an agent that somebody else wrote: its own tools, a script for its model, and people who answer."""

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
from ..parity.scripts import Script, ScriptFiles, ScriptLike, StageModel, read_script
from ..traces.trace import trace_of
from .scenarios import Scenario
from .world import Decision, Job, World


class _Script:
    """The script of an agent, as files that last as long as this object."""

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
    """The scenario of an agent, under its name. `script` and its inputs are those of `check_parity`.

    An approval without an answer is approved; cancels are left out, the schedules have their own. Raises `ConfigError`
    for what cannot be simulated.
    """
    read = read_script(script)
    asked = input if input is not None else read.input
    if asked is None:
        raise ConfigError(f"{read.source} has no `input`, and none is given: what is the agent asked?")
    for member in all_members(agent):
        if isinstance(member, Agent) and member.config.mcp_servers:
            raise ConfigError(
                f"agent {member.name!r} has tool servers, which live in real time: simulate it without them"
            )
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
        return [Job(agent, text)]

    return {agent.name: Scenario(agent.name, stage, told_apart=False)}


def _check(item: Input, source: str) -> None:
    if isinstance(item, Message | Pause) and item.step == 1:
        raise ConfigError(
            f"{source}: what is pinned to step 1 cannot be simulated: a worker may be there before it"
        )
    if isinstance(item, Answer) and item.decision == "timed_out":
        raise ConfigError(f"{source}: an approval that times out does so after days: answer it")


class _Saying:
    """Something that is said to a run."""

    def __init__(self, world: World, run: str, item: Message | Pause) -> None:
        self._world, self._run, self._item = world, run, item

    async def __call__(self) -> None:
        if isinstance(self._item, Message):
            await self._world.inject(self._run, self._item.content)
        else:
            await self._world.pause(self._run)


class _People:
    """Those who tell the run something, each time at the same place."""

    def __init__(self, world: World, inputs: tuple[Input, ...]) -> None:
        self._world, self._inputs = world, inputs

    def agent_of(self, run: str) -> str:
        """The name of the agent that a run is of."""
        path = next(commit.path for _, commit in self._world.commits() if commit.run == run)
        return path.rpartition("/")[2]

    async def say(self, run: str, step: int) -> None:
        """Say what the step carries, once, whoever's model call waits for it."""
        world = self._world
        for number, item in enumerate(self._inputs):
            if not isinstance(item, Message | Pause) or item.step != step:
                continue
            if item.run == self._places(run).place_of(run):
                saying = _Saying(world, run, item)
                await asyncio.wait({world.say_once(f"{number} {run}", saying)})

    def decide(self, run: str, asked: ApprovalRequested) -> Decision:
        """The answer that is meant for an approval; approved without one."""
        where = self._places(run).approval(run, asked.approval_id)
        answer = where.answer_in(self._inputs) if where is not None else None
        if answer is None:
            return Decision()
        if answer.decision == "rejected":
            return Decision(decision="rejected", note=answer.note)
        return Decision(
            arguments=answer.arguments, note=answer.note, outcome=answer.outcome, result=answer.result
        )

    def _places(self, run: str) -> FamilyPlaces:
        root = next(stored.subject.root for stored, commit in self._world.commits() if commit.run == run)
        return FamilyPlaces(trace_of(self._world.family(root)).events)
