"""Hypothesis strategies: scripts, tools with effects and failures, injections, answers, cancels, faults, traces.

    @given(scenarios(), faults())
    def test_executors_agree(scenario: Scenario, planned: tuple[Fault, ...]) -> None:
        report = asyncio.run(scenario.check(faults=planned))
        assert report.equal, report.render()

For an agent of your own take `scripts(agent.tools)` and `check_parity`. What is drawn is plain data, so that a failing
example prints as something that can be pasted into a test. Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from ..eventlog.errors import ConfigError
from ..eventlog.events import Custom, Effect
from ..eventlog.faults import (
    CrashAt,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Refused,
    SpuriousConflict,
    plan_of,
)
from ..runtime import Agent, Retryable, ToolContext, ToolFailed, tool
from ..runtime.subagents import PARALLEL
from ..runtime.toolport import Tool
from .inputs import Answer, Cancel, Input, Message, Pause
from .parity import ParityReport, check_parity
from .trace import Trace

Turn = dict[str, Any]
Decision = Literal["approved", "rejected", "timed_out"]
Outcome = Literal["returns", "fails", "recovers"]
WORDS = ("one", "two", "three")
"""What texts and arguments are made of: few words, so that rounds repeat and shrunk examples are readable."""
TASK = "dig up"
"""How the task of each sub-agent begins."""
FAST_RETRY = {"base_s": 0.001, "max_s": 0.002, "attempts": 3}
CALLS_MAX = 3
SUMMARIES_MAX = 20
OPERATIONS_MAX = 60
"""How far into a worker's life a fault is planned."""


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: what it does before it ends (`progress` notifications, a custom event, letting others run), and how.

    `recovers`: its first attempt asks to be tried again. `keeps`: it stores an artifact, and a part of it is done once.
    `asks`: the name of an agent that it runs as a child.
    """

    name: str
    effect: Effect = "unsafe"
    parallel: bool = True
    progress: int = 0
    emits: bool = False
    yields: int = 0
    keeps: bool = False
    outcome: Outcome = "returns"
    asks: str | None = None

    def make(self, agents: Iterable[Agent[Any]] = ()) -> Tool:
        """The tool; `agents` are those that it may ask."""
        plan, known, tried = self, {agent.name: agent for agent in agents}, set[str]()

        @tool(name=plan.name, effect=plan.effect, parallel=plan.parallel)
        async def planned(text: str, ctx: ToolContext) -> str:
            """Do as planned."""
            await plan.show(ctx, text)
            if plan.keeps:
                kept = await ctx.artifact(text.encode(), "text/plain")
                text = await ctx.memo("kept", lambda: f"{text} ({kept.id[:8]})")
            if plan.asks is not None:
                return await ctx.run(known[plan.asks], text)
            if plan.outcome == "fails":
                raise ToolFailed(f"{plan.name} failed: {text}")
            if plan.outcome == "recovers" and ctx.idempotency_key not in tried:
                tried.add(ctx.idempotency_key)
                raise Retryable("not yet", after_s=0.001)
            return f"{plan.name}: {text}"

        return planned

    async def show(self, ctx: ToolContext, text: str) -> None:
        """What can be seen of a call before it ends."""
        for number in range(self.progress):
            ctx.progress(number + 1, self.progress, text)
            await asyncio.sleep(0)
        if self.emits:
            ctx.emit(Custom(self.name, {"text": text}))
        for _ in range(self.yields):
            await asyncio.sleep(0)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with its tools, what its model says, and what reaches it from outside."""

    tools: tuple[ToolPlan, ...]
    turns: tuple[Turn, ...]
    inner_tools: tuple[ToolPlan, ...] = ()
    inner_turns: tuple[Turn, ...] = ()
    inputs: tuple[Input, ...] = ()
    approved: tuple[str, ...] = ()
    """The tools that need an approval."""
    planner: tuple[Turn, ...] | None = None
    """What the planner says; null for an agent without one."""
    subagents: tuple[Turn, ...] | None = None
    """What each sub-agent says; null for an agent that may have none."""
    fallbacks: tuple[str, ...] = ()
    """Models that are asked, with the same script, when the agent's own has failed too often."""
    context: dict[str, Any] | None = None
    awareness: str | None = None
    budgets: dict[str, Any] | None = None
    max_steps: int = 10

    @property
    def script(self) -> dict[str, Any]:
        """As `check_parity` takes it."""
        planner = {} if self.planner is None else {"planner": list(self.planner)}
        phases = {"summaries": [{"text": "In short."}] * SUMMARIES_MAX, **planner}
        scene = {"input": TASK, "turns": list(self.subagents or ()), **phases}
        agents = {"inner": list(self.inner_turns)}
        return {"turns": list(self.turns), "agents": agents, "scenes": [scene], **phases}

    def agent(self) -> Agent[Any]:
        """The agent, with an agent `inner` for the tools that ask one."""
        inner: Agent[Any] = Agent("inner", tools=[plan.make() for plan in self.inner_tools], retry=FAST_RETRY)
        return Agent(
            "outer",
            tools=[plan.make([inner]) for plan in self.tools],
            hitl_tools=self.approved,
            max_steps=self.max_steps,
            retry=FAST_RETRY,
            planning_enabled=self.planner is not None,
            allow_parallel_subagents=self.subagents is not None,
            fallback_models=self.fallbacks,
            context=self.context,
            budget_awareness=self.awareness,
            budgets=self.budgets,
        )

    async def check(self, **options: Any) -> ParityReport:
        """`check_parity` of the scenario; options as there."""
        return await check_parity(self.agent(), "question", script=self.script, inputs=self.inputs, **options)


# --- what a model says ------------------------------------------------------------------------------------------------

words = st.sampled_from(WORDS)
texts = st.lists(words, min_size=1, max_size=3)
"""A text in the pieces it is streamed in."""


jobs = st.lists(st.builds(lambda word: {"task": f"{TASK} {word}"}, words), min_size=1, max_size=4)
"""Jobs of one `parallel_subagents` call; four are more than an agent may start at once."""


def tool_plans(name: str, *, asks: str | None = None) -> st.SearchStrategy[ToolPlan]:
    """Tools of this name, of every effect and outcome; unsafe ones do not recover, as nobody tries them again."""
    effects: st.SearchStrategy[Effect] = st.sampled_from(["pure", "unsafe", "idempotent", "unsafe"])

    def consistent(plan: ToolPlan) -> ToolPlan:
        unsafe = plan.effect == "unsafe" and plan.outcome == "recovers"
        return msgspec.structs.replace(plan, outcome="returns") if unsafe else plan

    return st.builds(
        ToolPlan,
        name=st.just(name),
        effect=st.just("pure") if asks else effects,
        parallel=st.booleans(),
        progress=st.sampled_from([0, 1, 2, 2]),
        emits=st.booleans(),
        yields=st.integers(0, 3),
        keeps=st.booleans(),
        outcome=st.sampled_from(["returns", "returns", "fails", "recovers"]),
        asks=st.just(asks),
    ).map(consistent)


def toolboxes(
    names: Sequence[str] = ("alpha", "beta"), *, asks: str | None = None
) -> st.SearchStrategy[tuple[ToolPlan, ...]]:
    """A tool for each name, and with `asks` one more, `delegate`, that runs the agent of that name."""
    plans = [tool_plans(name) for name in names]
    return st.tuples(*plans, *([tool_plans("delegate", asks=asks)] if asks else []))


def calls(names: Iterable[str]) -> st.SearchStrategy[Turn]:
    """A tool call without its id; some have arguments that are no JSON, or name a tool that does not exist."""
    fitting = _name(names).flatmap(lambda name: _fitting(name, names))
    clumsy = st.builds(lambda name: {"name": name, "arguments": "{no json"}, _name(names))
    unknown = st.builds(lambda text: {"name": "nobody", "arguments": {"text": text}}, words)
    return _mostly(fitting, clumsy, unknown)


def _fitting(name: str, names: Iterable[str]) -> st.SearchStrategy[Turn]:
    """A call whose arguments fit: by the tool's schema if the tools are given (texts only), else a `text`."""
    if name == PARALLEL:
        return st.builds(lambda jobs: {"name": PARALLEL, "arguments": {"jobs": jobs}}, jobs)
    known = names.get(name) if isinstance(names, Mapping) else None
    properties = (
        known.spec.parameters.get("properties", {}) if known is not None else {"text": {"type": "string"}}
    )
    texts_of = {key: words for key, schema in properties.items() if schema.get("type") == "string"}
    return st.fixed_dictionaries({"name": st.just(name), "arguments": st.fixed_dictionaries(texts_of)})


def _mostly(usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual one in four of five draws (`one_of` would draw them all alike, also one that stands there twice)."""
    return st.sampled_from([usual] * (4 * len(others)) + list(others)).flatmap(lambda chosen: chosen)


def _name(names: Iterable[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(names))


usages = st.builds(
    lambda read, written: {"input_tokens": read, "output_tokens": written},
    st.integers(0, 9),
    st.integers(0, 9),
)
errors = _mostly(
    st.none(),
    st.builds(
        lambda kind, times, after: {"type": kind, "times": times, "after_chunks": after},
        st.sampled_from(["transient", "rate_limit"]),
        st.integers(1, 2),
        st.integers(0, 2),
    ),
    st.builds(
        lambda after: {"type": "context_overflow", "times": 1, "after_chunks": after}, st.integers(0, 2)
    ),
)
"""How a turn fails first, if it does: mostly so that a further attempt mends it."""


@st.composite
def turns(draw: st.DrawFn, names: Iterable[str], number: int = 1, *, final: bool = False) -> Turn:
    """The `number`-th answer of a model; `final`: without tool calls."""
    turn: Turn = {"text": draw(texts) if final or draw(st.booleans()) else [], "usage": draw(usages)}
    if draw(st.integers(0, 4)) == 0:
        turn["reasoning"] = draw(texts)
    asked = [] if final else draw(st.lists(calls(names), min_size=1, max_size=CALLS_MAX))
    turn["tool_calls"] = [{"id": f"call-{number}-{index}", **each} for index, each in enumerate(asked)]
    error = draw(errors)
    if error is not None:
        turn["error"] = error
    return turn


@st.composite
def scripts(
    draw: st.DrawFn, names: Iterable[str], *, rounds_max: int = 3, answers: int = 1
) -> tuple[Turn, ...]:
    """Rounds of tool calls, then `answers` final ones: a run that is told something after its answer needs another.

    `names`: of the tools that may be called, or the `tools` of an agent, whose schemas the arguments then fit.
    """
    known = names if isinstance(names, Mapping) else list(names)
    rounds = draw(st.sampled_from([*range(1, rounds_max + 1), 0]))
    every = [draw(turns(known, number + 1)) for number in range(rounds)]
    last = [draw(turns(known, rounds + number + 1, final=True)) for number in range(answers)]
    return (*every, *last)


@st.composite
def contexts(draw: st.DrawFn) -> tuple[dict[str, Any] | None, str | None]:
    """How a prompt is kept in bounds (mostly not at all), and what is told of its window."""
    bounds = {
        "history_messages_max": draw(st.integers(1, 6)),
        "summary_at_messages": draw(st.integers(1, 3)),
        "overflow": draw(st.sampled_from(["summarize", "summarize", "truncate", "none"])),
        "window_tokens": draw(st.sampled_from([40, 200, 100_000])),
    }
    context = draw(st.sampled_from([None, None, bounds]))
    awareness = draw(st.sampled_from([None, "per-message", "limit:50"])) if context is not None else None
    return context, awareness


def _outlasting(turn: Turn, attempts: float) -> Turn:
    """The turn; where it fails at first, then so often that a model with these attempts is given up with."""
    error = turn.get("error")
    if error is None or error["type"] == "context_overflow":
        return turn
    return {**turn, "error": {**error, "times": error["times"] + int(attempts)}}


# --- what comes from outside ------------------------------------------------------------------------------------------


def injections(steps: int) -> st.SearchStrategy[tuple[Message, ...]]:
    """At most two messages, each carried by one of the steps 1 to `steps`."""
    message = st.builds(Message, step=st.integers(1, steps), content=words)
    return st.lists(message, max_size=2).map(tuple)


def pauses(steps: int) -> st.SearchStrategy[tuple[Pause, ...]]:
    """At most one manual pause, at the boundary before one of the steps 1 to `steps`."""
    return st.lists(st.builds(Pause, step=st.integers(1, steps)), max_size=1).map(tuple)


@st.composite
def approvals(draw: st.DrawFn, script: Sequence[Turn], approved: Iterable[str]) -> tuple[Answer, ...]:
    """An answer for each call of a tool that needs an approval: approved, edited, made by hand, rejected, timed out."""
    needing = set(approved)
    found: list[tuple[Answer, dict[str, Any]]] = []
    for step, turn in enumerate(script, start=1):
        for index, asked in enumerate(turn.get("tool_calls", ())):
            if asked["name"] in needing and isinstance(asked["arguments"], dict):
                decision: Decision = draw(st.sampled_from(["approved", "approved", "rejected", "timed_out"]))
                found.append((Answer(call=f"{step}.{index}", decision=decision), asked["arguments"]))
    approvals = [each.decision == "approved" for each, _ in found]
    changes = [draw(_changes(asked)) if yes else {} for yes, (_, asked) in zip(approvals, found, strict=True)]
    return tuple(
        msgspec.structs.replace(each, **changed) for (each, _), changed in zip(found, changes, strict=True)
    )


def _changes(arguments: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What else an approval says: nothing, other arguments, or what came of a call that was made by hand."""
    return st.one_of(
        st.just({}),
        st.fixed_dictionaries({"arguments": _other_words(arguments)}),
        st.just({"outcome": "succeeded", "result": "by hand"}),
        st.just({"outcome": "failed", "note": "not even by hand"}),
    )


def _other_words(arguments: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The same arguments with other texts, so that they fit where those did."""
    return st.fixed_dictionaries(
        {name: words if isinstance(value, str) else st.just(value) for name, value in arguments.items()}
    )


def cancels(after_max: int = 30) -> st.SearchStrategy[Cancel]:
    """A cancel somewhere between the first and the `after_max`-th observable event."""
    return st.builds(Cancel, after=st.integers(1, after_max), reason=st.sampled_from(["", "enough"]))


@st.composite
def faults(draw: st.DrawFn, *, operations_max: int = OPERATIONS_MAX) -> tuple[Fault, ...]:
    """What befalls a worker: usually its death at some operation, and up to three misfortunes of its log before."""
    appends = st.integers(1, 12)
    misfortune: st.SearchStrategy[Fault] = st.one_of(
        st.builds(LostAck, appends),
        st.builds(Refused, appends),
        st.builds(SpuriousConflict, appends),
        st.builds(LateAppend, appends),
        st.builds(DuplicateDelivery, st.integers(1, 3)),
    )
    planned = draw(st.lists(misfortune, max_size=3, unique_by=lambda fault: (fault.operation, fault.call)))
    if draw(st.integers(0, 3)):
        planned.append(CrashAt(draw(st.integers(1, operations_max)), after=draw(st.booleans())))
    plan_of(planned)
    return tuple(planned)


# --- all of it --------------------------------------------------------------------------------------------------------


@st.composite
def scenarios(draw: st.DrawFn, *, cancelled: bool = False) -> Scenario:
    """An agent with everything that an agent can have: tools, a child, approvals, messages, pauses; or a cancel."""
    tools, inner = draw(toolboxes(asks="inner")), draw(toolboxes(("gamma",)))
    names = [plan.name for plan in tools]
    approved = draw(st.sampled_from([(), ("alpha",), ("beta",)]))
    subagents = draw(st.none() | scripts(names[:2], rounds_max=1))
    script = draw(scripts([*names, *([] if subagents is None else [PARALLEL])], answers=4))
    fallbacks = draw(st.sampled_from([(), (), ("openai:spare",)]))
    if fallbacks:
        script = tuple(_outlasting(turn, FAST_RETRY["attempts"]) for turn in script)
    said: list[Input] = [
        *draw(injections(len(script) - 3)),
        *draw(pauses(len(script) - 3)),
        *draw(approvals(script, approved)),
    ]
    if cancelled:
        said.append(draw(cancels()))
    context, awareness = draw(contexts())
    budgets = draw(st.sampled_from([None, None, {"max_tokens": 12}, {"step": {"max_tokens": 6}}]))
    if subagents is not None:  # they would ask for more, each at a place of its own
        budgets = None
    if budgets is not None:
        said.append(Answer(call="", kind="budget", arguments={"raise": 1000}))
    return Scenario(
        tools=tools,
        turns=script,
        inner_tools=inner,
        inner_turns=draw(scripts(["gamma"], rounds_max=1)),
        inputs=tuple(said),
        approved=approved,
        max_steps=draw(st.sampled_from([10, 10, 10, 2])),
        planner=draw(st.none() | scripts(names, rounds_max=2)),
        subagents=subagents,
        fallbacks=fallbacks,
        context=context,
        awareness=awareness,
        budgets=budgets,
    )


def traces() -> st.SearchStrategy[Trace]:
    """Legal traces: what the local executor writes of a scenario. Each is made in a thread with a loop of its own."""
    return scenarios().map(_trace_of)


def _trace_of(scenario: Scenario) -> Trace:
    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(asyncio.run, scenario.check()).result()
    if "local" not in report.traces:
        raise ConfigError("the scenario was not run")
    return report.traces["local"]
