"""What a run can remember of earlier ones, read from the log on both logs and executors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from foldlog.eventlog import AppendUnsure, ConfigError, LogUnavailable, MemoryLog, SessionBusy
from foldlog.eventlog.events import Submitted
from foldlog.eventlog.ports import Log, Stored, Subject
from foldlog.runtime import Agent, Registry, Runtime, sessions, tool
from foldlog.runtime.log_memory import LogMemory
from foldlog.runtime.memory import MemoryItem, MemoryKeys, MemoryUse, Scope, memory_use

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str) -> str:
    """Search for something."""
    return f"found {query}"


def said(items: Sequence[MemoryItem]) -> list[list[tuple[str, str]]]:
    return [[(message.role, message.content) for message in item.messages] for item in items]


@pytest.fixture
def helper(script: Script) -> Agent:
    return Agent("helper", model=script(calls(call("search", query="x")), says("It is x")), tools=[search])


@pytest.fixture
def clerk(script: Script) -> Agent:
    return Agent("clerk", model=script(says("Noted")))


@pytest.fixture
def waiting(script: Script) -> Agent:
    """Its run stays at the head of its lane."""
    model = script(calls(call("search", query="x")), says("late"))
    return Agent("waiting", model=model, tools=[search], hitl_tools=["search"])


async def test_a_run_sees_all_that_was_said_in_its_session_before_it_and_nothing_else(
    place: Place, helper: Agent, clerk: Agent, waiting: Agent
) -> None:
    await place.open(helper, clerk, waiting)
    first = await place.start(helper, "first", session="s")
    await (await place.start(clerk, "elsewhere", session="other")).result(timeout_s=10)
    second = await place.start(clerk, "second", session="s")
    now = await place.start(waiting, "now", session="s")
    behind = await place.start(clerk, "behind", session="s")
    async for event in now.stream():
        if event.type == "approval_requested":
            break

    memory = LogMemory(place.log)
    keys = MemoryKeys(run=now.run_id, agent="clerk", own_session="s", session="s")
    whole = await memory.recall("session", keys, 10)
    assert [item.id for item in whole] == [first.run_id, second.run_id]
    assert said(whole) == [
        [("user", "first"), ("assistant", ""), ("tool", "found x"), ("assistant", "It is x")],
        [("user", "second"), ("assistant", "Noted")],
    ]
    assert [item.id for item in await memory.recall("session", keys, 1)] == [second.run_id]
    assert await memory.recall("session", keys, 0) == ()
    assert said(await memory.recall("task", keys, 10)) == [[("user", "second"), ("assistant", "Noted")]]

    history = await place.runtime.history("s")
    assert (history.turn_count(), history.raw_items()) == (2, whole[0].messages + whole[1].messages)
    await now.cancel()
    await behind.result(timeout_s=10)
    assert [turn.status for turn in (await place.runtime.history("s")).turns] == [
        "completed",
        "completed",
        "cancelled",
        "completed",
    ]


async def test_a_user_is_remembered_over_sessions_by_what_was_asked_and_answered(
    place: Place, helper: Agent, clerk: Agent
) -> None:
    await place.open(helper, clerk)

    def of(user: str) -> dict[str, Any]:
        return {"memory": {"scope": {"user_id": user}}}

    for number, (agent, user) in enumerate([(helper, "ada"), (clerk, "bob"), (clerk, "ada")]):
        run = await place.start(agent, f"question {number}", session=f"s{number}", metadata=of(user))
        await run.result(timeout_s=10)
    store = place.registry.memory("log", place.log)
    keys = MemoryKeys(run="none", agent="clerk", user="ada")
    assert said(await store.recall("user", keys, 10)) == [
        [("user", "question 0"), ("assistant", "It is x")],
        [("user", "question 2"), ("assistant", "Noted")],
    ]
    assert said(await store.recall("user", keys, 1)) == [[("user", "question 2"), ("assistant", "Noted")]]
    own = MemoryKeys(run=run.run_id, agent="clerk", user="ada")
    assert [m[0][1] for m in said(await store.recall("user", own, 1))] == ["question 0"]


async def test_turns_are_taken_back_only_while_no_run_of_the_session_is_open(
    place: Place, clerk: Agent, waiting: Agent
) -> None:
    rt = await place.open(clerk, waiting)
    for text in ("one", "two", "three"):
        await (await place.start(clerk, text, session="s")).result(timeout_s=10)

    async def asked() -> list[str]:
        return [turn.messages[0].content for turn in (await rt.history("s")).turns]

    assert await rt.drop_last_user_turns("s", 0) == 0
    assert await rt.drop_last_user_turns("nobody", 2) == 0
    assert await rt.drop_last_user_turns("s", 1) == 1
    assert await asked() == ["one", "two"]
    now = await place.start(waiting, "now", session="s")
    async for event in now.stream():
        if event.type == "approval_requested":
            break
    with pytest.raises(SessionBusy, match=f"the run {now.run_id} of the session 's' is open"):
        await rt.drop_last_user_turns("s", 1)
    keys = MemoryKeys(run=now.run_id, agent="clerk", own_session="s", session="s")
    remembered = await LogMemory(place.log).recall("session", keys, 10)
    assert [item.messages[0].content for item in remembered] == ["one", "two"]
    await now.cancel()
    assert await rt.drop_last_user_turns("s", 9) == 3
    assert await asked() == []
    await (await place.start(clerk, "again", session="s")).result(timeout_s=10)
    assert await asked() == ["again"]
    with pytest.raises(ConfigError, match="-1 turns cannot be dropped"):
        await rt.drop_last_user_turns("s", -1)


async def test_turns_are_dropped_once_though_the_answer_is_lost(clerk: Agent) -> None:
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[clerk])) as rt:
        for text in ("one", "two", "three"):
            await rt.run(clerk, text, session="s")
        append = log.events.append

        async def unsure(*writes: Any) -> tuple[int, ...]:
            log.events.append = append  # type: ignore[method-assign]
            await append(*writes)
            raise AppendUnsure("no answer")

        log.events.append = unsure  # type: ignore[method-assign]
        assert await rt.drop_last_user_turns("s", 1) == 1
        assert (await rt.history("s")).turn_count() == 2


class Lagging:
    """A log whose reads hide the last commits of each subject for the first few looks at it."""

    def __init__(self, log: Log, looks: int) -> None:
        self._log, self._looks, self._left = log, looks, dict[Subject, int]()
        self.events = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log.events if name == "shards" else self._log, name)

    async def read(self, subject: Subject) -> AsyncIterator[Stored]:
        left = self._left[subject] = self._left.get(subject, self._looks) - 1
        everything = [stored async for stored in self._log.events.read(subject)]
        for stored in everything[:-1] if left >= 0 else everything:
            yield stored


@pytest.mark.parametrize(("looks", "seen"), [(3, True), (1000, False)])
async def test_a_stale_read_is_repeated_and_never_taken_for_the_whole_session(
    clerk: Agent, waiting: Agent, looks: int, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "STALE_READ_S", 0.001)
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[clerk, waiting])) as rt:
        await rt.run(clerk, "first", session="s")
        await rt.run(clerk, "second", session="s")
        now = await rt.start(waiting, "now", session="s")
        async for event in now.stream():
            if event.type == "approval_requested":
                break
        keys = MemoryKeys(run=now.run_id, agent="clerk", own_session="s", session="s")
        lagging: Any = Lagging(log, looks)
        if seen:
            items = await LogMemory(lagging).recall("session", keys, 5)
            assert [text for ((_, text), _) in said(items)] == ["first", "second"]
        else:
            with pytest.raises(LogUnavailable, match="not seen at the head of its lane"):
                await LogMemory(lagging).recall("session", keys, 5)
        await now.cancel()


async def test_calls_of_several_runs_keep_apart_in_what_is_remembered(helper: Agent) -> None:
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[helper])) as rt:
        for _ in range(3):
            await rt.run(helper, "again", session="s")
        items = await LogMemory(log).recall("session", MemoryKeys(run="r", agent="a", session="s"), 9)
    ids = [called.id for item in items for message in item.messages for called in message.tool_calls]
    answered = [message.tool_call_id for item in items for message in item.messages if message.tool_call_id]
    assert ids == answered
    assert len(set(ids)) == 3


def submitted(configured: Any = None, session: str | None = None, **metadata: Any) -> Submitted:
    config = {"name": "helper", **({"memory": configured} if configured else {})}
    return Submitted(
        kind="agent",
        config=config,
        config_digest="",
        input="x",
        input_digest="",
        session=session,
        metadata=metadata,
    )


def use(scope: Scope, backend: str = "log", **keys: Any) -> MemoryUse:
    return MemoryUse(backend=backend, scope=scope, keys=MemoryKeys(run="r", agent="helper", **keys))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (submitted(), None),
        (submitted(session="s", other=1), None),
        (submitted({"scope": "session"}, "s"), use("session", own_session="s", session="s")),
        (submitted({"scope": "task", "backend": "b"}, "s"), use("task", "b", own_session="s", session="s")),
        (submitted({"scope": "user"}, memory={"scope": {"user_id": "u"}}), use("user", user="u")),
        (submitted(memory={"scope": {"user_id": "u"}}), use("user", user="u")),
        (
            submitted(memory={"scope": {"user_id": "u", "session_id": "t"}, "backend": "b"}, session="s"),
            use("session", "b", own_session="s", session="t", user="u"),
        ),
        (submitted(memory={}, session="s"), use("session", own_session="s", session="s")),
    ],
)
def test_metadata_goes_before_the_agents_memory(event: Submitted, expected: MemoryUse | None) -> None:
    assert memory_use(event, "r") == expected


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (submitted({"scope": "session"}), "scope 'session' needs a session"),
        (submitted({"scope": "user"}, "s"), "scope 'user' needs a user"),
        (submitted(memory={}), "scope 'user' needs a user"),
        (submitted(memory={"scope": "user"}), "metadata['memory']: Expected `object | null`, got `str`"),
        (submitted(memory={"scop": {}}), "metadata['memory']: Object contains unknown field `scop`"),
        (submitted(memory=[]), "metadata['memory']: Expected `object`"),
    ],
)
def test_memory_that_cannot_be_recalled_is_refused_by_name(event: Submitted, told: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        memory_use(event, "r")
    assert told in str(refusal.value)


async def test_a_backend_is_found_by_its_name_and_closed_with_the_registry() -> None:
    class Store:
        def __init__(self, log: Log) -> None:
            self.log, self.closed = log, False

        async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
            return ()

        async def aclose(self) -> None:
            self.closed = True

    log, registry = MemoryLog(), Registry(memories={"notes": Store})
    store = registry.memory("notes", log)
    assert isinstance(store, Store)
    assert store.log is log
    assert registry.memory("notes", log) is store
    assert registry.memory("notes", MemoryLog()) is not store
    with pytest.raises(ConfigError, match="there is no memory backend 'note'; did you mean 'notes'"):
        registry.memory("note", log)
    await registry.aclose()
    assert store.closed
