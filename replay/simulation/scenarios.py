"""The scenarios: small families of runs that together use every feature of a run.

A new feature adds a scenario here: a function that creates agents and returns the runs to start.


    @scenario
    def pure(world: World) -> list[Job]:
        replies = calls(("look", {"at": "a"})), says("done")
        return [Job(an_agent(world, "pure", *replies), "question")]

It is played once without faults on the local executor; random schedules of it must then end in equal traces. With
`@scenario(compared=False)`, for scenarios that depend on time, only the rules are checked. With `@scenario(drawn=True)`
the stage draws what its agents do by `world.rng`, which is another for each seed. New tools belong into `cast.py`;
their external effects go through the world, which outlives processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import overload

import msgspec

from ...runtime import EventHook, File, postcondition
from ...runtime.agents.loop import RalphLoop
from ...runtime.agents.loop_config import Stop
from ...runtime.agents.swarm import Swarm
from ...runtime.core.shared_budgets import check_budgets
from ...runtime.journal.open_family import BATCH_RUNS_MAX
from ...runtime.ports.conditions import installed as conditions_are_installed
from ...runtime.shared.plans import steps_of
from .burying import erase
from .cast import (
    Call,
    a_model,
    a_scene,
    addressed,
    an_agent,
    announce,
    calls,
    charge,
    crowd,
    decide_on,
    deploy,
    dispatch,
    draw,
    engrave,
    expect,
    hope,
    ink,
    inquire,
    is_final,
    is_short,
    nap,
    order,
    outdate,
    pay,
    picture,
    press,
    remit,
    remitted,
    ring,
    says,
    wire,
    wired,
)
from .flows import at_once, in_a_table, in_branches, in_races, in_sequence, under_way
from .loop import EPOCH_S
from .programs import at_random
from .restoring import restore
from .sealing import forget, seal
from .timed import begin_in, change_clocks, change_watch, keep_watch
from .undoing import undoable
from .world import ANSWER_S, Job, World

Stage = Callable[[World], list[Job]]


class Scenario(msgspec.Struct, frozen=True):
    """A scenario. `stage` prepares a world, and returns the runs to start one after the other."""

    name: str
    stage: Stage
    compared: bool = True
    """True if its traces are compared with one without faults, because faults must not change them."""
    drawn: bool = False
    """True if what its agents do is drawn from the seed, by `World.rng`."""
    told_apart: bool = True
    """True if operators can know that an unsafe call of a dead worker has succeeded; its result is `sent` then."""


SCENARIOS: dict[str, Scenario] = {}
"""foldlog's own scenarios, by name."""


@overload
def scenario(stage: Stage) -> Stage: ...
@overload
def scenario(*, compared: bool = True, drawn: bool = False) -> Callable[[Stage], Stage]: ...
def scenario(
    stage: Stage | None = None, *, compared: bool = True, drawn: bool = False
) -> Stage | Callable[[Stage], Stage]:
    """Add a function to the scenarios under its own name."""

    def add(stage: Stage) -> Stage:
        name = stage.__name__
        SCENARIOS[name] = Scenario(name, stage, compared, drawn)
        return stage

    return add if stage is None else add(stage)


@scenario
def pure(world: World) -> list[Job]:
    """Tools that may be repeated."""
    replies = calls(("look", {"at": "a"}), ("save", {"what": "b"})), says("Final ", "answer")
    return [Job(an_agent(world, "pure", *replies), "question")]


@scenario
def pictures(world: World) -> list[Job]:
    """Files in the input, from tools and from the model, and a child that makes one."""
    an_agent(
        world, "painter", calls(("draw", {"what": "x"})), says("painted", files=("y.png",)), extra=[draw]
    )
    replies = (
        calls(("draw", {"what": "a"}), ("draw", {"what": "b"}), ("send", {"to": "c"}), files=("m.png",)),
        calls(("delegate", {"to": "painter"}), ("draw", {"what": "a"}), fails=1),
        says("done", files=("n.png",)),
    )
    agent = an_agent(world, "pictures", *replies, extra=[draw])
    given = (File.from_bytes(picture("in"), name="in.png"), File.from_url("https://example.com/out.png"))
    return [Job(agent, "question", files=given)]


@scenario
def searched(world: World) -> list[Job]:
    """Tools that the provider runs itself, beside an unsafe one of the run."""
    replies = (
        calls(("send", {"to": "a"}), searched=("x", "y"), fails=1),
        says("found", searched=("z",)),
    )
    return [Job(an_agent(world, "searched", *replies, native_tools=["web_search"]), "question")]


@scenario
def validated(world: World) -> list[Job]:
    """Instructions from a function of the run, and answers of it and of a child that two validators look at."""
    child = an_agent(world, "checked", says("a draft"), says("final", fails=1), instructions=addressed)
    child.output_validator(is_final)
    replies = (
        calls(("delegate", {"to": "checked"}), ("send", {"to": "a"})),
        says("a draft", reasoning="so far"),
        says("a long final answer"),
        says("final"),
    )
    agent = an_agent(world, "validated", *replies, instructions=addressed)
    agent.output_validator(is_final)
    agent.output_validator(is_short)
    return [Job(agent, "question", {"user": "ada"})]


@scenario
def unsafe(world: World) -> list[Job]:
    """Tools that must not run twice."""
    replies = calls(("send", {"to": "a"}), ("look", {"at": "b"})), calls(("send", {"to": "c"})), says("done")
    return [Job(an_agent(world, "unsafe", *replies), "question")]


@scenario
def parallel(world: World) -> list[Job]:
    """Many parallel calls of all effects, some that emit events, some that run alone."""
    first: tuple[Call, ...] = (
        ("watch", {"for_s": 1.0}),
        ("send", {"to": "a"}),
        ("alone", {"n": 1}),
        ("send", {"to": "b"}),
        ("flaky", {"times": 2}),
        ("alone", {"n": 2}),
    )
    second: list[Call] = [("watch", {"for_s": 0.4}), ("nothing", {}), ("send", {"to": "c"})]
    replies = calls(*first), calls(*second, fails=1), says("done", reasoning="so it is")
    return [Job(an_agent(world, "parallel", *replies), "question")]


@scenario
def approval(world: World) -> list[Job]:
    """Calls that operators approve."""
    world.decide = decide_on
    replies = calls(("deploy", {"to": "a"}), ("deploy", {"to": "b"})), says("done")
    return [Job(an_agent(world, "approval", *replies, hitl_tools=["deploy"]), "question")]


@scenario
def deploys(world: World) -> list[Job]:
    """Approved calls of a tool that the workers of an earlier deployment do not have."""
    world.decide = decide_on
    replies = (
        calls(("look", {"at": "a"}), ("deploy", {"to": "b"})),
        calls(("deploy", {"to": "wrong"})),
        says("done"),
    )
    agent = an_agent(world, "deploys", *replies, hitl_tools=["deploy"])
    outdate(world, agent, without=deploy)
    return [Job(agent, "question"), Job(agent, "another")]


@scenario
def edited(world: World) -> list[Job]:
    """Calls that operators edit and reject, and one that needs no approval."""
    world.decide = decide_on
    first: list[Call] = [("deploy", {"to": "wrong"}), ("send", {"to": "a"}), ("deploy", {"to": "nowhere"})]
    replies = calls(*first), calls(("deploy", {"to": "b"})), says("done")
    return [Job(an_agent(world, "edited", *replies, hitl_tools=["deploy"]), "question")]


@scenario
def policy(world: World) -> list[Job]:
    """Calls that policy rules deny, and calls for which they require an approval, one of which is edited."""
    world.decide = decide_on
    rules = [
        {"tool": "dep*", "arguments": {"to": "w*"}, "action": "require_approval"},
        {"tool": "send", "arguments": {"to": "x"}, "action": "deny", "reason": "x is closed"},
    ]
    first: list[Call] = [("deploy", {"to": "wrong"}), ("send", {"to": "x"}), ("send", {"to": "y"})]
    replies = calls(*first), calls(("deploy", {"to": "b"})), says("done")
    return [Job(an_agent(world, "policy", *replies, policy={"rules": rules}), "question")]


@scenario
def exempted(world: World) -> list[Job]:
    """Calls that a rule asks about unless they are exempted, one that is approved for good, and the same again."""
    world.decide = decide_on
    rules = [{"tool": "deploy", "unless": {"to": "t*"}, "action": "require_approval"}]
    first: list[Call] = [("deploy", {"to": "test"}), ("deploy", {"to": "always"}), ("deploy", {"to": "b"})]
    replies = calls(*first), calls(("deploy", {"to": "always"}), ("deploy", {"to": "b"})), says("done")
    return [Job(an_agent(world, "exempted", *replies, policy={"rules": rules}), "question")]


def conditional(world: World) -> list[Job]:
    """Calls that a policy denies by a condition, which has another value for each of them."""
    world.decide = decide_on
    rules = [
        {"tool": "deploy", "when": "call.count == 1 || args.to == 'wrong'", "action": "require_approval"},
        {"tool": "deploy", "when": "call.count >= 2 && args.to != 'c'", "action": "deny"},
        {"tool": "send", "when": "args.nothing > 1", "action": "deny", "reason": "it cannot be judged"},
    ]
    first: list[Call] = [("deploy", {"to": "a"}), ("deploy", {"to": "wrong"}), ("send", {"to": "a"})]
    replies = calls(*first), calls(("deploy", {"to": "b"}), ("deploy", {"to": "c"})), says("done")
    return [Job(an_agent(world, "conditional", *replies, policy={"rules": rules}), "question")]


if conditions_are_installed():  # a user of the simulation may lack the extra
    scenario(conditional)


@scenario
def questions(world: World) -> list[Job]:
    """Calls that ask questions, and one that does not, in a run and in its child."""
    world.decide = decide_on
    asks: Call = ("inquire", {"about": "a"})
    an_agent(world, "inner", calls(asks), says("inner answer"), extra=[inquire])
    first = calls(asks, ("look", {"at": "b"}), ("inquire", {"about": "nowhere"}))
    replies = first, calls(("delegate", {"to": "inner"})), says("done")
    return [Job(an_agent(world, "questions", *replies, extra=[inquire]), "question")]


@scenario(compared=False)
def unsafe_questions(world: World) -> list[Job]:
    """Unsafe calls that ask questions; if a worker dies, the outcome of the call is asked for, not the question."""
    world.decide = decide_on
    replies = calls(("order", {"what": "a"}), ("order", {"what": "nowhere"})), says("done")
    return [Job(an_agent(world, "unsafe_questions", *replies, extra=[order]), "question")]


@scenario
def slept(world: World) -> list[Job]:
    """Calls that wait for a time, beside one that does not, in a run and in a run within a call."""
    an_agent(world, "inner", calls(("nap", {"for_s": 40.0})), says("inner answer"), extra=[nap])
    first = calls(("nap", {"for_s": 60.0}), ("look", {"at": "b"}), ("nap", {"for_s": 20.0}))
    replies = first, calls(("delegate", {"to": "inner"})), says("done")
    return [Job(an_agent(world, "slept", *replies, extra=[nap]), "question")]


@scenario
def signalled(world: World) -> list[Job]:
    """Calls that wait for signals, which come before, at and after their waits, some more than once."""
    world.decide = decide_on
    first: list[Call] = [("announce", {"name": "paid"}), ("look", {"at": "a"}), ("deploy", {"to": "b"})]
    second: list[Call] = [
        ("expect", {"name": "paid", "times": 2}),
        ("expect", {"name": "sent", "times": 1}),
        ("deploy", {"to": "c"}),
    ]
    replies = calls(*first), calls(*second), says("done")
    agent = an_agent(world, "signalled", *replies, extra=[announce, expect], hitl_tools=["deploy"])
    return [Job(agent, "question")]


@scenario
def called_back(world: World) -> list[Job]:
    """Calls that give strangers a callback, which is answered before and after they wait for it, by two at once."""
    first: list[Call] = [
        ("ring", {"name": "scan", "for_s": 0.1}),
        ("look", {"at": "a"}),
        ("ring", {"name": "scan", "for_s": 3 * ANSWER_S}),
    ]
    replies = calls(*first), calls(("ring", {"name": "print", "for_s": ANSWER_S})), says("done")
    return [Job(an_agent(world, "called_back", *replies, extra=[ring]), "question")]


@scenario(compared=False)
def signals_raced(world: World) -> list[Job]:
    """Signals that come as the time of their waits is over; and a call that waits and must not act twice."""
    first: list[Call] = [("hope", {"name": "paid", "for_s": ANSWER_S}), ("dispatch", {"name": "go"})]
    second: list[Call] = [("hope", {"name": "paid", "for_s": 2 * ANSWER_S}), ("announce", {"name": "paid"})]
    replies = calls(*first), calls(*second), says("done")
    return [Job(an_agent(world, "signals_raced", *replies, extra=[announce, dispatch, hope]), "question")]


@scenario(compared=False)
def once(world: World) -> list[Job]:
    """Runs that ask for the same at once, in one reply and in several, each of which may die or be cancelled."""
    first: list[Call] = [
        ("charge", {"invoice": "7"}),
        ("charge", {"invoice": "8"}),
        ("charge", {"invoice": "7"}),
    ]
    one = an_agent(world, "once", calls(*first), says("done"), extra=[charge])
    other = an_agent(
        world, "again", calls(("charge", {"invoice": "8"})), calls(*first[:1]), says("done"), extra=[charge]
    )
    return [Job(one, "question"), Job(other, "another"), Job(other, "third")]


@scenario(compared=False)
def verified(world: World) -> list[Job]:
    """Unsafe calls that a postcondition verifies, one only at the second probe; and one call that takes long."""
    first = calls(("wire", {"to": "a"}), ("wire", {"to": "nowhere"}), ("watch", {"for_s": 3.0}))
    replies = first, calls(("wire", {"to": "c"})), says("done")
    seen = postcondition({"text_contains": {"text": '{"wired":true}'}}, probe=wired)(wire)
    return [Job(an_agent(world, "verified", *replies, extra=[seen]), "question")]


@scenario(compared=False)
def doubtful(world: World) -> list[Job]:
    """Unsafe calls that end in doubt by themselves: one that operators settle, one that a probe settles."""
    first: list[Call] = [("pay", {"to": "a"}), ("look", {"at": "b"}), ("remit", {"to": "c"})]
    replies = calls(*first), calls(("pay", {"to": "d"})), says("done")
    seen = postcondition({"text_contains": {"text": '{"remitted":true}'}}, probe=remitted)(remit)
    return [Job(an_agent(world, "doubtful", *replies, extra=[pay, seen]), "question")]


@scenario
def injection(world: World) -> list[Job]:
    """Messages during the run."""
    replies = calls(("poke", {"text": "hurry"})), calls(("poke", {"text": "faster"})), says("done")
    return [Job(an_agent(world, "injection", *replies), "question")]


@scenario(compared=False)
def chorus(world: World) -> list[Job]:
    """Messages of several callers at once, twice."""
    rounds = [calls(("crowd", {"text": text})) for text in ("hurry", "faster")]
    agent = an_agent(world, "chorus", *rounds, *[says("done")] * 4, extra=[crowd])
    return [Job(agent, "question")]


@scenario
def pause(world: World) -> list[Job]:
    """A pause, with a message that arrives meanwhile."""
    first: list[Call] = [("halt", {}), ("poke", {"text": "by the way"})]
    replies = calls(*first), calls(("send", {"to": "a"})), says("done")
    return [Job(an_agent(world, "pause", *replies), "question")]


@scenario
def child(world: World) -> list[Job]:
    """A child run."""
    an_agent(world, "inner", calls(("look", {"at": "deep"}), ("save", {"what": "x"})), says("inner answer"))
    return [Job(an_agent(world, "child", calls(("delegate", {"to": "inner"})), says("done")), "question")]


@scenario
def unsafe_child(world: World) -> list[Job]:
    """A child run with an unsafe tool."""
    an_agent(world, "inner", calls(("send", {"to": "deep"})), says("inner answer"))
    outer = calls(("delegate", {"to": "inner"})), says("done")
    return [Job(an_agent(world, "unsafe_child", *outer), "question")]


@scenario
def waiting_child(world: World) -> list[Job]:
    """A child run that waits for a timer and for operators."""
    world.decide = decide_on
    replies = (
        calls(("look", {"at": "deep"}), fails=1, retry_after_s=60.0),
        calls(("deploy", {"to": "a"})),
        says("inner answer"),
    )
    an_agent(world, "inner", *replies, hitl_tools=["deploy"])
    outer = calls(("delegate", {"to": "inner"}), ("send", {"to": "b"})), says("done")
    return [Job(an_agent(world, "waiting_child", *outer), "question")]


@scenario
def grandchildren(world: World) -> list[Job]:
    """Child runs with child runs, two at a time."""
    an_agent(world, "innermost", calls(("look", {"at": "deep"})), says("deep answer"))
    an_agent(world, "inner", calls(("delegate", {"to": "innermost"})), says("inner answer"))
    asked: list[Call] = [("delegate", {"to": "inner"})] * 2
    outer = calls(*asked, ("save", {"what": "x"})), says("done")
    return [Job(an_agent(world, "grandchildren", *outer), "question")]


async def _cancel_the_first(world: World, after_s: float) -> None:
    await asyncio.sleep(after_s)
    if world.runs():
        await world.cancel(world.runs()[0], "family", world.person())


@scenario(compared=False)
def throng(world: World) -> list[Job]:
    """Several child runs that are cancelled with their root; a batch cancels one run, so that a fence comes first."""
    BATCH_RUNS_MAX.set(1)
    world.outside(_cancel_the_first(world, 0.3))
    an_agent(world, "inner", calls(("watch", {"for_s": 0.5})), says("inner answer"))
    asked: list[Call] = [("delegate", {"to": "inner"})] * 3
    outer = calls(*asked), calls(("send", {"to": "a"})), says("done")
    return [Job(an_agent(world, "throng", *outer), "question")]


@scenario(compared=False)
def hurried_child(world: World) -> list[Job]:
    """A call that times out while its child waits."""
    an_agent(world, "inner", calls(("watch", {"for_s": 30.0})), says("inner answer"))
    outer = calls(("hurry", {"to": "inner"}), ("send", {"to": "a"})), says("done")
    return [Job(an_agent(world, "hurried_child", *outer), "question")]


@scenario(compared=False)
def expired(world: World) -> list[Job]:
    """A run that times out while runs two levels below it are open."""
    an_agent(world, "innermost", calls(("watch", {"for_s": 30.0})), says("deep answer"))
    an_agent(world, "inner", calls(("delegate", {"to": "innermost"})), says("inner answer"))
    asked: list[Call] = [("delegate", {"to": "inner"})] * 2
    outer = calls(*asked), says("done")
    return [Job(an_agent(world, "expired", *outer, run_timeout_s=2.0), "question")]


@scenario
def planned(world: World) -> list[Job]:
    """A planner that first calls tools that it does not have, and then makes a plan."""
    looks = calls(("look", {"at": "a"}), ("send", {"to": "b"}), fails=1)
    planner = a_model(world, "planner", looks, says("1. Look."))
    replies = calls(("look", {"at": "a"})), says("done")
    agent = an_agent(world, "planned", *replies, planning_enabled=True, planning_model=planner)
    return [Job(agent, "question")]


@scenario
def followed(world: World) -> list[Job]:
    """A standing plan that a run and its child follow one after the other: they read it, and change its steps."""
    world.plans = {"move": steps_of(["Pack.", "Drive."])}
    child = (
        calls(
            ("update_plan_step", {"step": "1", "status": "completed", "note": "in boxes"}), ("read_plan", {})
        ),
        says("packed", fails=1),
    )
    an_agent(world, "packer", *child, standing_plan="move")
    replies = (
        calls(("update_plan_step", {"step": "1", "status": "in_progress"}), ("look", {"at": "a"})),
        calls(("delegate", {"to": "packer"})),
        calls(("update_plan_step", {"step": "3", "status": "completed"}), ("send", {"to": "a"})),
        calls(("update_plan_step", {"step": "2", "status": "completed"})),
        says("moved"),
    )
    return [Job(an_agent(world, "followed", *replies, standing_plan="move"), "question")]


@scenario
def subagents(world: World) -> list[Job]:
    """Parallel copies of an agent, and then a single copy."""
    jobs = [{"task": "a"}, {"task": "b", "tool_names": ["send"]}]
    a_scene(world, "subagents", "a", calls(("look", {"at": "a"})), says("a is done"))
    a_scene(world, "subagents", "b", calls(("send", {"to": "b"})), says("b is done"))
    a_scene(world, "subagents", "c", says("c is done"))
    replies = (
        calls(("parallel_subagents", {"jobs": jobs})),
        calls(("spawn_self", {"task": "c"})),
        says("done"),
    )
    agent = an_agent(world, "subagents", *replies, allow_parallel_subagents=True, allow_self_spawn=True)
    return [Job(agent, "question")]


def a_team(world: World) -> Swarm:
    """Create a swarm with a parallel group."""
    first = an_agent(world, "first", calls(("look", {"at": "a"})), says("one"))
    second = an_agent(world, "second", calls(("save", {"what": "b"})), says("two"))
    third = an_agent(world, "third", calls(("send", {"to": "c"})), says("three"))
    last = an_agent(world, "last", says("four"))
    team = Swarm([first, second, third, last], "first >> (second | third) >> last", name="team")
    world.agents.append(team)
    return team


@scenario
def swarm(world: World) -> list[Job]:
    """Nodes in sequence and in parallel."""
    return [Job(a_team(world), "question")]


def a_loop(world: World) -> RalphLoop:
    """Create a loop whose second iteration fails, and whose third is good enough."""
    writer = an_agent(world, "writer", calls(("look", {"at": "a"})), says("1"))
    a_scene(world, "writer", "question\n\nlesson 1", says("never", fails=9))
    a_scene(world, "writer", "question\n\nlesson 2", says("3"))
    loop = RalphLoop(
        writer,
        name="loop",
        scorers={"size": lambda scored: float(scored.output)},
        reflect=lambda seen: f"lesson {seen.iteration}",
        stop=Stop(score_threshold=2.0),
    )
    world.agents.append(loop)
    return loop


@scenario
def loop(world: World) -> list[Job]:
    """Iterations that are scored, fail, and reflect for the next one."""
    return [Job(a_loop(world), "question")]


@scenario
def company(world: World) -> list[Job]:
    """Everything in one family: a planner, approvals, parallel copies, a swarm and a loop."""
    world.decide = decide_on
    team, polish = a_team(world), a_loop(world)
    planner = a_model(world, "planner", says("1. Ask everybody."))
    jobs = [{"task": "a"}, {"task": "b"}]
    for task in ("a", "b"):
        a_scene(world, "company", task, calls(("save", {"what": task})), says(f"{task} is done"))
    replies = (
        calls(("parallel_subagents", {"jobs": jobs}), ("deploy", {"to": "x"})),
        calls(("delegate", {"to": team.name}), ("consult", {"to": polish.name})),
        says("done"),
    )
    agent = an_agent(
        world,
        "company",
        *replies,
        hitl_tools=["deploy"],
        allow_parallel_subagents=True,
        planning_enabled=True,
        planning_model=planner,
    )
    return [Job(agent, "start")]


@scenario
def bounded(world: World) -> list[Job]:
    """A history that is summarised, a request that is too long, and a budget that must be raised."""
    world.decide = decide_on
    looks = [calls(("look", {"at": str(n)})) for n in range(3)]
    context = {"history_messages_max": 5, "summary_at_messages": 2}
    full = says("done", fails=1, overflows=True)
    agent = an_agent(world, "bounded", *looks, full, context=context, budgets={"max_tokens": 8})
    return [Job(agent, "question")]


@scenario
def lane(world: World) -> list[Job]:
    """The turns of one session."""
    agent = an_agent(world, "lane", calls(("look", {"at": "a"})), says("done"))
    return [Job(agent, f"question {n}", {"session": "talk"}) for n in range(3)]


@scenario(compared=False)
def buried(world: World) -> list[Job]:
    """The first turn of a session is erased by two reapers during the second, while its key is used again."""
    agent = an_agent(world, "buried", calls(("send", {"to": "a"})), says("done"))
    eraser = an_agent(world, "eraser", calls(("erase", {})), says("erased"), extra=[erase])
    first = {"session": "talk", "idempotency_key": "k"}
    return [Job(agent, "question", first), Job(eraser, "erase it", {"session": "talk"})]


@scenario(compared=False)
def sealed(world: World) -> list[Job]:
    """A user's key is erased by two people while a run of the user is under way, and another is submitted."""
    seal(world)
    replies = (
        calls(("look", {"at": "hush"})),
        calls(("save", {"what": "hush"})),
        says("hush, done"),
    )
    agent = an_agent(world, "sealed", *replies)
    forgetful = an_agent(world, "forgetful", calls(("forget", {})), says("hush"), extra=[forget])
    return [
        Job(agent, "hush", {"user": "ada"}),
        Job(forgetful, "hush now", {"user": "bob"}, at_once=True),
    ]


@scenario(compared=False)
def restored(world: World) -> list[Job]:
    """All processes die, a restore holds what is open, and a person lets it go on later."""
    world.outside(restore(world))
    an_agent(world, "inner", calls(("send", {"to": "deep"})), says("inner answer"))
    replies = (
        calls(("look", {"at": "a"})),
        calls(("send", {"to": "a"}), ("delegate", {"to": "inner"})),
        calls(("send", {"to": "b"})),
        says("done"),
    )
    return [Job(an_agent(world, "restored", *replies), "question", {"idempotency_key": "k"})]


@scenario(compared=False)
def scheduled(world: World) -> list[Job]:
    """A schedule starts runs one after the other, while workers die around the times that are due."""
    an_agent(world, "watcher", calls(("look", {"at": "a"})), says("seen"))
    return [
        Job(an_agent(world, "scheduled", calls(("keep_watch", {})), says("done"), extra=[keep_watch]), "go")
    ]


@scenario(compared=False)
def edited_schedule(world: World) -> list[Job]:
    """People edit, pause, resume and trigger a schedule while its times come."""
    an_agent(world, "watcher", calls(("look", {"at": "a"})), says("seen"))
    agent = an_agent(
        world, "edited_schedule", calls(("change_watch", {})), says("done"), extra=[change_watch]
    )
    return [Job(agent, "go")]


@scenario(compared=False)
def spring(world: World) -> list[Job]:
    """Schedules go on while clocks are put forward: the times of an hour that does not exist come right after it."""
    return _in_season(world, "spring")


@scenario(compared=False)
def autumn(world: World) -> list[Job]:
    """Schedules go on while clocks are put back: the times of an hour that exists twice come once, or in both."""
    return _in_season(world, "autumn")


def _in_season(world: World, season: str) -> list[Job]:
    begin_in(world, season)
    an_agent(world, "watcher", says("seen"))
    agent = an_agent(world, season, calls(("change_clocks", {})), says("done"), extra=[change_clocks])
    return [Job(agent, "go")]


@scenario(compared=False)
def hooked(world: World) -> list[Job]:
    """The ends of runs start others, whose ends start others again; some ends are not meant."""
    world.decide = decide_on
    an_agent(world, "reader", calls(("send", {"to": "a"})), says("read"))
    an_agent(world, "filer", says("filed"))
    writer = an_agent(world, "hooked", calls(("deploy", {"to": "a"})), says("written"), hitl_tools=["deploy"])
    broken = an_agent(world, "broken", calls(("look", {"at": "a"})), max_steps=1)
    world.hooks = [
        EventHook(name="read", on="run.completed", of=("hooked", "broken"), agent="reader"),
        EventHook(name="file", on="run.ended", of=("reader", "broken"), agent="filer", input="${run.id}"),
    ]
    return [Job(writer, "question"), Job(broken, "question"), Job(writer, "another")]


@scenario
def slots(world: World) -> list[Job]:
    """More runs than may be driven at once, which wait for operators and timers in between."""
    world.decide = decide_on
    replies = (
        calls(("look", {"at": "a"}), fails=1, retry_after_s=60.0),
        calls(("deploy", {"to": "a"})),
        calls(("send", {"to": "b"})),
        says("done"),
    )
    limit = {"runs_max": 2}
    agent = an_agent(world, "slots", *replies, hitl_tools=["deploy"], concurrency=limit)
    return [Job(agent, f"question {n}") for n in range(4)]


@scenario
def limited(world: World) -> list[Job]:
    """Runs of two agents, in lanes of one name and without, under limits of the namespace, the lanes and the model."""
    world.decide = decide_on
    world.limits = {"lane:mail": 1, "namespace": 2, "provider:sim": 1}
    replies = calls(("look", {"at": "a"}), fails=1), calls(("deploy", {"to": "a"})), says("done")
    agent = an_agent(world, "limited", *replies, hitl_tools=["deploy"])
    narrow = an_agent(
        world, "narrow", calls(("look", {"at": "b"})), says("narrow"), concurrency={"runs_max": 1}
    )
    mail = [Job(agent, f"mail {n}", {"session": f"s{n}", "lane": "mail"}) for n in range(2)]
    return [*mail, Job(narrow, "first"), Job(narrow, "second")]


@scenario(compared=False)
def budgeted(world: World) -> list[Job]:
    """Runs of two users, and runs below them, under a total of each and a budget of an hour that some wait for."""
    world.clock.begins_at = (
        EPOCH_S - 30.0
    )  # the next hour begins soon, and the one after it is waited for, too
    world.settled_after_s = 5400.0
    each, hourly = {"tokens": 10_000, "per": "total"}, {"tokens": 45, "per": "hour"}
    world.budgets = check_budgets({"user:*": each, "namespace": hourly}, "budgets")
    an_agent(world, "inner", says("inner answer"))
    replies = calls(("look", {"at": "a"})), calls(("delegate", {"to": "inner"})), says("done")
    agent = an_agent(world, "budgeted", *replies)
    return [Job(agent, f"question {n}", {"user": ("ada", "bob")[n % 2]}, at_once=n > 0) for n in range(4)]


@scenario
def prioritized(world: World) -> list[Job]:
    """Runs of three priorities in line for two slots, which some leave for operators and timers in between."""
    world.decide = decide_on
    replies = (
        calls(("look", {"at": "a"}), fails=1, retry_after_s=60.0),
        calls(("deploy", {"to": "a"})),
        says("done"),
    )
    agent = an_agent(world, "prioritized", *replies, hitl_tools=["deploy"], concurrency={"runs_max": 2})
    given = ("background", "normal", "urgent", "background", "urgent")
    return [Job(agent, f"question {n}", {"priority": each}) for n, each in enumerate(given)]


@scenario
def slots_below(world: World) -> list[Job]:
    """Child runs of an agent with `runs_max` 1, and one root run of the same agent."""
    a_scene(world, "narrow", "again", says("again"))
    replies = calls(("look", {"at": "deep"}), ("spawn_self", {"task": "again"})), says("inner answer")
    narrow = an_agent(world, "narrow", *replies, allow_self_spawn=True, concurrency={"runs_max": 1})
    asked: list[Call] = [("delegate", {"to": "narrow"})] * 2
    outer = an_agent(world, "slots_below", calls(*asked), says("done"))
    return [Job(outer, "question"), Job(narrow, "sub question"), Job(outer, "another")]


@scenario
def one_press(world: World) -> list[Job]:
    """Parallel calls of several runs that share one slot."""
    an_agent(world, "inner", calls(("ink", {"what": "x"})), says("inner answer"), extra=[press, ink])
    first = calls(("press", {"what": "a"}), ("ink", {"what": "b"}), ("look", {"at": "c"}))
    replies = first, calls(("delegate", {"to": "inner"}), ("press", {"what": "d"})), says("done")
    agent = an_agent(world, "one_press", *replies, extra=[press, ink])
    return [Job(agent, f"question {n}") for n in range(2)]


@scenario(compared=False)
def circles(world: World) -> list[Job]:
    """A deadlock: calls that hold a slot wait for an agent with `runs_max` 1 that needs it; and a run of that agent."""
    inking = calls(("ink", {"what": "x"})), says("drawn")
    artist = an_agent(world, "artist", *inking, extra=[ink], concurrency={"runs_max": 1})
    replies = calls(("engrave", {"to": "artist"}), ("look", {"at": "a"})), says("done")
    engraver = an_agent(world, "circles", *replies, extra=[engrave])
    return [Job(engraver, "question"), Job(artist, "sub question"), Job(engraver, "another")]


@scenario
def keyed(world: World) -> list[Job]:
    """The same submission twice concurrently, and once more."""
    agent = an_agent(world, "keyed", calls(("send", {"to": "a"})), says("done"))
    return [Job(agent, "question", {"idempotency_key": "k"}, at_once=number == 1) for number in range(3)]


@scenario
def retry(world: World) -> list[Job]:
    """A model that is unavailable, for a short and for a long time."""
    parked = calls(("look", {"at": "a"}), fails=1, retry_after_s=60.0)
    return [Job(an_agent(world, "retry", parked, says("done", fails=2)), "question")]


@scenario
def failing(world: World) -> list[Job]:
    """Runs that end with an error: too many steps, too many failures, a loop."""
    looking = [calls(("look", {"at": str(n)})) for n in range(3)]
    return [
        Job(an_agent(world, "endless", *looking, max_steps=2), "question"),
        Job(an_agent(world, "hopeless", says("never", fails=9), retry={"attempts": 2}), "question"),
        Job(an_agent(world, "looping", *[calls(("alone", {"n": 1}))] * 4), "question"),
    ]


@scenario
def branches(world: World) -> list[Job]:
    """A branch by a predicate, into a loop in an inner swarm."""
    a = an_agent(world, "a", calls(("send", {"to": "a"})), says("said a"))
    b, c, d = (an_agent(world, name, says(f"said {name}")) for name in "bcd")
    inner = Swarm([c], "c*2", name="inner")
    flow = '(a | b) >> {"never": d, talked: inner, else: pass}'
    outer = Swarm([a, b, d, inner], flow, name="branches", predicates={"talked": lambda text: "said" in text})
    world.agents.append(outer)
    return [Job(outer, "question")]


@scenario
def group(world: World) -> list[Job]:
    """A swarm that ends with parallel nodes: its output joins all of theirs."""
    first = an_agent(world, "first", calls(("save", {"what": "a"})), says("one"))
    second = an_agent(world, "second", calls(("look", {"at": "b"})), says("two"))
    swarm = Swarm([first, second], "(first | second)", name="group")
    world.agents.append(swarm)
    return [Job(swarm, "question")]


@scenario
def handoff(world: World) -> list[Job]:
    """Agents that hand off to each other and to a team, whose lead calls one agent twice in parallel."""
    asks = ("clerk", {"input": "one"}), ("clerk", {"input": "two"})
    lead = an_agent(world, "lead", calls(*asks), says("led"))
    clerk = an_agent(world, "clerk", calls(("save", {"what": "x"})), says("asked"))
    desk = an_agent(
        world, "desk", calls(("send", {"to": "a"})), says('{"handoff_to": "team", "message": "you"}')
    )
    team = Swarm([lead, clerk], name="team", mode="team")
    outer = Swarm([desk, team], name="handoff", mode="handoff")
    world.agents.append(outer)
    return [Job(outer, "question")]


@scenario
def sequence(world: World) -> list[Job]:
    """A workflow that uses every operation, one after the other."""
    world.decide = decide_on
    # The id seeds the random numbers of the run, which are in its output; one that is made has the time in it.
    return [Job(in_sequence(world), "question", {"run_id": "sequence"})]


@scenario
def tabled(world: World) -> list[Job]:
    """A table whose steps run side by side, wait, ask, fail, and go on."""
    world.decide = decide_on
    return [Job(in_a_table(world), "question")]


@scenario
def undone(world: World) -> list[Job]:
    """A table that rolls itself back when a step fails, and an agent that two callers roll back at once."""
    table, clerk, undoer = undoable(world)
    return [Job(table, "question"), Job(clerk, "question", at_once=True), Job(undoer, "question")]


@scenario
def gathered(world: World) -> list[Job]:
    """A workflow with branches in branches, one of which fails while others are at work."""
    return [Job(in_branches(world), "question")]


@scenario
def raced(world: World) -> list[Job]:
    """A workflow with races, whose losers wait."""
    return [Job(in_races(world), "question")]


@scenario(drawn=True)
def random_programs(world: World) -> list[Job]:
    """Workflows of any operations, gathers and races, in each other."""
    world.decide = decide_on
    return [Job(at_random(world), "question")]


@scenario(compared=False)
def raced_at_once(world: World) -> list[Job]:
    """A workflow with races that any branch may win, some of which run when another has won."""
    world.decide = decide_on
    return [Job(at_once(world), "question")]


@scenario(compared=False)
def changed(world: World) -> list[Job]:
    """A workflow whose code is changed while it waits: first it no longer fits, then it fits and does more."""
    return [Job(under_way(world), "question")]
