"""Hypothesis strategies: scripts, tools with effects and failures, injections, answers, cancels, faults, traces.

    @given(scenarios(), faults())
    def test_executors_agree(scenario: Scenario, planned: tuple[Fault, ...]) -> None:
        report = check_simulated(scenario, faults=planned)
        assert report.equal, report.render()

For your own agent use `scripts(agent.tools)` and `check_parity`. All drawn values are plain data, so that a failing
example prints as an expression that can be pasted into a test. Needs the extra `foldlog[test]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

import msgspec
from hypothesis import strategies as st

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolEffect
from ...eventlog.faults import (
    CrashAt,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Refused,
    SpuriousConflict,
    plan_of,
)
from ...eventlog.memory import MemoryLog
from ...eventlog.ports import Log
from ...projections.run_state import SPAWN_SELF
from ...runtime import Agent, LocalExecutor, Registry
from ...runtime.agents.subagents import PARALLEL
from ...runtime.agents.tables import RetryTable
from ...runtime.ports.knowledge import KnowledgeItem
from ..parity.inputs import EVERY, Answer, Cancel, Input, Inputs, Message, Pause
from ..parity.parity import ParityReport, check_parity, staged
from ..parity.scripts import read_script
from ..parity.stage import play
from ..simulation.loop import Picks, SimulatedClock, run_simulated
from ..traces.trace import Trace
from .schemas import fitting
from .tool_plans import Outcome, ToolPlan

Turn = dict[str, Any]
Decision = Literal["approved", "rejected", "timed_out"]
WORDS = ("one", "two", "three")
"""The words of texts and arguments: so few that rounds repeat and shrunk examples are readable."""
TASK = "dig up"
"""The beginning of each sub-agent's task."""
QUESTION = "question"
FAST_RETRY: RetryTable = {"base_s": 0.001, "max_s": 0.002, "attempts": 3}
TODO = ("add_todo", "complete_todo", "get_todo")
ANSWERS: Inputs = (
    Answer(call=EVERY),
    Answer(call=EVERY, kind="policy"),
    Answer(call=EVERY, kind="elicitation", arguments={"word": WORDS[0]}),
    Answer(call=EVERY, kind="budget", arguments={"raise": 1000}),
)
"""The answers to approvals for which no other answer was drawn."""
TIME_S = 900.0
STEPS_MAX = 400_000
"""The limits of a simulated run in seconds of virtual time, and of a simulated check in steps of the loop."""
CALLS_MAX = 3
SUMMARIES_MAX = 20
OPERATIONS_MAX = 60
"""The last operation of a worker at which a fault is planned."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with its tools, the replies of its model, and its external inputs."""

    tools: tuple[ToolPlan, ...]
    turns: tuple[Turn, ...]
    inner_tools: tuple[ToolPlan, ...] = ()
    inner_turns: tuple[Turn, ...] = ()
    inputs: tuple[Input, ...] = ()
    config: dict[str, Any] = {}
    """Further configuration of the agent, as keywords of `Agent`."""
    named_tools: tuple[str, ...] = ()
    """Built-in tools, by name."""
    planner: tuple[Turn, ...] | None = None
    """The replies of the planner; None for an agent without one."""
    subagents: tuple[Turn, ...] | None = None
    """The replies of each sub-agent; None for an agent that may have none."""
    earlier: tuple[tuple[Turn, ...], ...] = ()
    """The replies of its model in earlier runs, which it remembers."""
    knows: bool = False
    """True if the knowledge store has an item that fits the question."""

    @property
    def script(self) -> dict[str, Any]:
        """The script for `check_parity`."""
        planner = {} if self.planner is None else {"planner": list(self.planner)}
        phases = {"summaries": [{"text": "In short."}] * SUMMARIES_MAX, **planner}
        scene = {"input": TASK, "turns": list(self.subagents or ()), **phases}
        agents = {"inner": list(self.inner_turns)}
        return {"turns": list(self.turns), "agents": agents, "scenes": [scene], **phases}

    def agent(self) -> Agent[Any]:
        """Return the agent, with an agent `inner` for tools that call one."""
        inner: Agent[Any] = Agent("inner", tools=[plan.make() for plan in self.inner_tools], retry=FAST_RETRY)
        return Agent(
            "outer",
            tools=[*(plan.make([inner]) for plan in self.tools), *self.named_tools],
            **{"retry": FAST_RETRY, "planning_enabled": self.planner is not None, **self.config},
        )

    async def check(self, *, log: Log | None = None, **options: Any) -> ParityReport:
        """Call `check_parity` with the scenario and these options."""
        log = log if log is not None else MemoryLog()
        return await check_parity(
            self.agent(),
            QUESTION,
            script=self.script,
            **{"inputs": self.inputs, "metadata": await self.remembered(log), **options},
            log=log,
            registry=self.registry(),
        )

    def registry(self) -> Registry:
        """Return a registry with the knowledge store."""
        return Registry(knowledge=_Shelf(known=self.knows))

    async def remembered(self, log: Log) -> dict[str, Any]:
        """Execute the earlier runs, and return the metadata of a run that remembers them."""
        if not self.earlier:
            return {}
        session = log.clock.new_id()
        for number, turns in enumerate(self.earlier):
            agent: Agent[Any] = Agent("outer", tools=[plan.make() for plan in self.tools], retry=FAST_RETRY)
            script = read_script({"turns": list(turns)})
            with staged(agent, f"question {number}", script, log=log, session=session) as case:
                await play(case, "local", LocalExecutor, ANSWERS)
        return {"memory": {"scope": {"session_id": session}}}


class _Shelf:
    """A knowledge store with at most one item."""

    def __init__(self, *, known: bool) -> None:
        self._known = known

    async def search(self, query: str, limit: int) -> list[KnowledgeItem]:
        """Return the item, if the query is about it."""
        found = self._known and QUESTION in query
        return [KnowledgeItem(id="k1", text="There is an answer.", source="notes")][:limit] if found else []

    async def add(self, text: str, source: str = "") -> list[KnowledgeItem]:
        """Store nothing."""
        return []


class Checked(Protocol):
    """Any drawn scenario: it can be checked."""

    async def check(self, **options: Any) -> ParityReport:
        """Call `check_parity` with the scenario and these options."""
        ...


def check_simulated(scenario: Checked, *, seed: int | None = None, **options: Any) -> ParityReport:
    """Check a scenario in virtual time, where the result is quick and deterministic; options as for `check`.

    `seed` determines the order of the callbacks that are ready; without one they run first come, first served. It
    cannot be called within a running event loop.
    """

    async def check() -> ParityReport:
        return await scenario.check(log=MemoryLog(clock=SimulatedClock()), **{"timeout_s": TIME_S, **options})

    return run_simulated(check, picks=None if seed is None else Picks(seed), steps_max=STEPS_MAX)


# --- replies of models ------------------------------------------------------------------------------------------------

words = st.sampled_from(WORDS)
texts = st.lists(words, min_size=1, max_size=3)
"""A text, in the pieces in which it is streamed."""


jobs = st.lists(st.builds(lambda word: {"task": f"{TASK} {word}"}, words), min_size=1, max_size=4)
"""Jobs of one `parallel_subagents` call; four are more than an agent may start at once."""

_BUILT_IN: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    PARALLEL: st.builds(lambda jobs: {"jobs": jobs}, jobs),
    SPAWN_SELF: st.builds(lambda word: {"task": f"{TASK} {word}"}, words),
    "add_todo": st.builds(lambda word: {"text": word}, words),
    "complete_todo": st.builds(
        lambda step, index: {"id": f"{step}.{index}"}, st.integers(1, 2), st.integers(0, 1)
    ),
    "get_todo": st.just({}),
}
"""Arguments of built-in tools."""


def tool_plans(name: str, *, asks: str | None = None) -> st.SearchStrategy[ToolPlan]:
    """Draw tools of this name, with every effect and outcome."""
    effects: st.SearchStrategy[ToolEffect] = st.sampled_from(["pure", "unsafe", "idempotent", "unsafe"])
    outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
        ["returns", "returns", "returns", "fails", "recovers", "late"]
    )
    return st.builds(
        ToolPlan,
        name=st.just(name),
        effect=effects,
        attempts=st.integers(1, 3),
        parallel=st.booleans(),
        progress=st.sampled_from([0, 0, 1, 2]),
        emits=st.booleans(),
        yields=st.integers(0, 3),
        keeps=st.booleans(),
        questions=st.sampled_from([0, 0, 0, 1, 2]),
        outcome=outcomes,
        asks=st.just(asks),
        checked=st.sampled_from(["", "", "holds", "fails", "unseen"]),
    ).map(_consistent)


def _consistent(plan: ToolPlan) -> ToolPlan:
    """Exclude plans whose trace is not determined: retries of unsafe tools, and log operations before a timeout."""
    changes: dict[str, Any] = {"attempts": 1} if plan.effect == "unsafe" else {}
    if plan.outcome == "recovers" and plan.effect == "unsafe":
        changes["outcome"] = "returns"
    if plan.outcome == "late":
        changes |= {"outcome": "returns"} if plan.asks else {"keeps": False}
    return msgspec.structs.replace(plan, **changes)


def toolboxes(
    names: Sequence[str] = ("alpha", "beta"), *, asks: str | None = None
) -> st.SearchStrategy[tuple[ToolPlan, ...]]:
    """Draw a tool for each name, and with `asks` one more, `delegate`, that runs the agent of that name."""
    plans = [tool_plans(name) for name in names]
    return st.tuples(*plans, *([tool_plans("delegate", asks=asks)] if asks else []))


def calls(names: Iterable[str]) -> st.SearchStrategy[Turn]:
    """Draw tool calls without ids; some have arguments that are not JSON, or name a tool that does not exist."""
    good = _name(names).flatmap(lambda name: _fitting(name, names))
    clumsy = st.builds(lambda name: {"name": name, "arguments": "{no json"}, _name(names))
    unknown = st.builds(lambda text: {"name": "nobody", "arguments": {"text": text}}, words)
    return _mostly(good, clumsy, unknown)


def _fitting(name: str, names: Iterable[str]) -> st.SearchStrategy[Turn]:
    """Draw calls with valid arguments: by the tool's schema if the tools are given, otherwise a `text`."""
    if name in _BUILT_IN:
        return st.builds(lambda arguments: {"name": name, "arguments": arguments}, _BUILT_IN[name])
    known = names.get(name) if isinstance(names, Mapping) else None
    arguments = st.fixed_dictionaries({"text": words}) if known is None else fitting(known.spec.parameters)
    return st.fixed_dictionaries({"name": st.just(name), "arguments": arguments})


def _mostly(usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw the usual strategy in four of five cases; `one_of` would choose all alike, even one that is listed twice."""
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
"""The failures before a turn succeeds, if any; mostly so few that a retry succeeds."""


@st.composite
def turns(draw: st.DrawFn, names: Iterable[str], number: int = 1, *, final: bool = False) -> Turn:
    """Draw the `number`-th reply of a model; `final`: without tool calls."""
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
    """Draw rounds of tool calls, then `answers` final ones: a run that gets a message after its answer needs another.

    `names` are those of the tools that may be called, or the `tools` of an agent, whose schemas the arguments then fit.
    """
    known = names if isinstance(names, Mapping) else list(names)
    rounds = draw(st.sampled_from([*range(1, rounds_max + 1), 0]))
    every = [draw(turns(known, number + 1)) for number in range(rounds)]
    last = [draw(turns(known, rounds + number + 1, final=True)) for number in range(answers)]
    return (*every, *last)


@st.composite
def contexts(draw: st.DrawFn) -> tuple[dict[str, Any] | None, str | None]:
    """Draw limits of the prompt (mostly none), and the model's awareness of its budget."""
    bounds = {
        "history_messages_max": draw(st.integers(1, 6)),
        "summary_at_messages": draw(st.integers(1, 3)),
        "overflow": draw(st.sampled_from(["summarize", "summarize", "truncate", "none"])),
        "window_tokens": draw(st.sampled_from([40, 200, 100_000])),
    }
    context = draw(st.sampled_from([None, None, bounds]))
    awareness = draw(st.sampled_from([None, "per-message", "limit:50"])) if context is not None else None
    return context, awareness


def outlasting(turn: Turn, attempts: float) -> Turn:
    """Return the turn; if it fails at first, then more often than the attempts of one model."""
    error = turn.get("error")
    if error is None or error["type"] == "context_overflow":
        return turn
    return {**turn, "error": {**error, "times": error["times"] + int(attempts)}}


# --- external inputs --------------------------------------------------------------------------------------------------


def injections(steps: int) -> st.SearchStrategy[tuple[Message, ...]]:
    """Draw at most two messages, each carried by one of the steps 1 to `steps`."""
    message = st.builds(Message, step=st.integers(1, steps), content=words)
    return st.lists(message, max_size=2).map(tuple)


def pauses(steps: int) -> st.SearchStrategy[tuple[Pause, ...]]:
    """Draw at most one manual pause, at the boundary before one of the steps 1 to `steps`."""
    return st.lists(st.builds(Pause, step=st.integers(1, steps)), max_size=1).map(tuple)


@st.composite
def approvals(draw: st.DrawFn, script: Sequence[Turn], approved: Iterable[str]) -> tuple[Answer, ...]:
    """Draw an answer for each call that needs an approval: approved, edited, made by hand, rejected, timed out."""
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
    """Draw the rest of an approval: nothing, other arguments, or the outcome of a call that was made by hand."""
    return st.one_of(
        st.just({}),
        st.fixed_dictionaries({"arguments": _other_words(arguments)}),
        st.just({"outcome": "succeeded", "result": "by hand"}),
        st.just({"outcome": "failed", "note": "not even by hand"}),
    )


def _other_words(arguments: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the same arguments with other texts, so that they are still valid."""
    return st.fixed_dictionaries(
        {name: words if isinstance(value, str) else st.just(value) for name, value in arguments.items()}
    )


def cancels(after_max: int = 30) -> st.SearchStrategy[Cancel]:
    """Draw a cancel between the first and the `after_max`-th observable event."""
    return st.builds(Cancel, after=st.integers(1, after_max), reason=st.sampled_from(["", "enough"]))


@st.composite
def faults(draw: st.DrawFn, *, operations_max: int = OPERATIONS_MAX) -> tuple[Fault, ...]:
    """Draw a worker's faults: usually its death at some operation, and up to three faults of its log before it."""
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


# --- scenarios --------------------------------------------------------------------------------------------------------


@st.composite
def policies(draw: st.DrawFn, names: Sequence[str]) -> dict[str, Any] | None:
    """Draw policy rules on calls of these tools; mostly none."""
    actions = ["allow", "deny", "require_approval"]
    patterns = st.sampled_from([*names, "*", f"{names[0][0]}*"])
    texts = st.sampled_from([{}, {"text": WORDS[0]}, {"text": "t*"}])
    rule = st.fixed_dictionaries({"tool": patterns, "arguments": texts, "action": st.sampled_from(actions)})
    rules = draw(st.lists(rule, min_size=1, max_size=3))
    default = draw(st.sampled_from(["allow", "allow", "require_approval"]))
    return draw(st.sampled_from([None, None, {"rules": rules, "default": default}]))


@st.composite
def configs(draw: st.DrawFn, names: Sequence[str]) -> dict[str, Any]:
    """Draw further configuration of an agent with these tools, except settings that depend on time."""
    context, awareness = draw(contexts())
    chosen = {
        "hitl_tools": draw(st.sampled_from([(), (), *((name,) for name in names)])),
        "policy": draw(policies(names)),
        "max_steps": draw(st.sampled_from([10, 10, 10, 2])),
        "fallback_models": draw(st.sampled_from([(), (), ("openai:spare",)])),
        "context": context,
        "budget_awareness": awareness,
        "budgets": draw(st.sampled_from([None, None, {"max_tokens": 12}, {"step": {"max_tokens": 6}}])),
        "output_schema": draw(st.sampled_from([None, None, None, {"type": "integer"}])),
        "retry": {**FAST_RETRY, "exhausted": draw(st.sampled_from(["error", "error", "pause"]))},
    }
    return {key: value for key, value in chosen.items() if value is not None}


@st.composite
def answered(draw: st.DrawFn, tools: Sequence[ToolPlan], script: Sequence[Turn]) -> tuple[Answer, ...]:
    """Draw answers to the questions of tools that the script calls; some are left to `ANSWERS`."""
    asked = {plan.name: plan.questions for plan in tools}
    found: list[Answer] = []
    for step, turn in enumerate(script, start=1):
        for index, call in enumerate(turn.get("tool_calls", ())):
            for ordinal in range(asked.get(call["name"], 0)):
                decision: Decision = draw(st.sampled_from(["approved", "rejected", "timed_out"]))
                form = {"word": draw(words)} if decision == "approved" else None
                answer = Answer(call=f"{step}.{index}", decision=decision, arguments=form)
                found.append(msgspec.structs.replace(answer, kind="elicitation", ordinal=ordinal))
    return tuple(answer for answer in found if draw(st.booleans()))


@st.composite
def scenarios(draw: st.DrawFn, *, cancelled: bool = False) -> Scenario:
    """Draw an agent with every feature: tools, children, memory, answers, messages, pauses; `cancelled`: a cancel."""
    tools, inner = draw(toolboxes(asks="inner")), draw(toolboxes(("gamma",)))
    names = [plan.name for plan in tools]
    config = draw(configs(names))
    named = draw(st.sampled_from([(), (), TODO]))
    subagents = draw(st.none() | scripts(names[:2], rounds_max=1))
    spawning = (
        [] if subagents is None else draw(st.sampled_from([[PARALLEL], [SPAWN_SELF], [PARALLEL, SPAWN_SELF]]))
    )
    config |= {"allow_parallel_subagents": PARALLEL in spawning, "allow_self_spawn": SPAWN_SELF in spawning}
    script = draw(scripts([*names, *named, *spawning], answers=4))
    if "fallback_models" in config or config["retry"]["exhausted"] == "pause":
        script = tuple(outlasting(turn, FAST_RETRY["attempts"]) for turn in script)
    if "output_schema" in config:
        script = draw(_structured(script))
    stops = str(config.get("budget_awareness", "")).startswith("limit")
    said: list[Input] = [  # if a limit ends the run, a message has no step that carries it
        *(() if stops else draw(injections(len(script) - 3))),
        *draw(pauses(len(script) - 3)),
        *_uncensored(draw(approvals(script, config["hitl_tools"])), config),
        *draw(answered(tools, script)),
        *ANSWERS,
    ]
    if cancelled:
        said.append(draw(cancels()))
    earlier = draw(st.lists(scripts(names[:2], rounds_max=1), max_size=2).map(tuple))
    if earlier:
        config["memory"] = {"scope": draw(st.sampled_from(["session", "task"]))}
    return Scenario(
        tools=tools,
        turns=script,
        inner_tools=inner,
        inner_turns=draw(scripts(["gamma"], rounds_max=1)),
        inputs=tuple(said),
        config=config,
        named_tools=named,
        planner=draw(st.none() | scripts(names, rounds_max=2)),
        subagents=subagents,
        earlier=earlier,
        knows=draw(st.booleans()),
    )


def _uncensored(answers: Sequence[Answer], config: Mapping[str, Any]) -> list[Answer]:
    """Return the answers; with a policy, none may edit a call, because the policy could deny the edited one."""
    return [msgspec.structs.replace(each, arguments=None) if "policy" in config else each for each in answers]


@st.composite
def _structured(draw: st.DrawFn, script: Sequence[Turn]) -> tuple[Turn, ...]:
    """Draw the script with some answers replaced by integers, which the schema requires."""
    return tuple(
        {**turn, "text": ["1"]} if not turn["tool_calls"] and draw(st.booleans()) else turn for turn in script
    )


def traces() -> st.SearchStrategy[Trace]:
    """Draw legal traces of the local executor. Each is made in a thread with its own event loop."""
    return scenarios().map(_trace_of)


def _trace_of(scenario: Scenario) -> Trace:
    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(check_simulated, scenario).result()
    if "local" not in report.traces:
        raise ConfigError("the scenario was not run")
    return report.traces["local"]
