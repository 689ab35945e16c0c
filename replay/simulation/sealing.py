"""The parties around an erased key: operators who erase it or rotate all keys, and a caller that starts another run.

Each retries its work from a new process until one gets a reply, so that any process may die anywhere. The key is erased
even while a run of its owner is open, which makes that run unreadable.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec

from ...eventlog.commits import Commit, decode
from ...eventlog.errors import FoldlogError
from ...eventlog.events import Event, Submitted
from ...eventlog.sealing import HeldKeys, SealedLog
from ...eventlog.sealing.cipher import Cipher
from ...eventlog.sealing.content import put_back
from ...eventlog.sealing.keyring import decoded, name_of
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool
from .process import Process
from .world import ANSWER_S, WORLD, World

SECRET, OWNER = "hush", "user:ada"
"""The word that all content contains, and the owner of the erased key."""
_WRAPPING, _NEXT = b"w" * 32, b"n" * 32
ROTATIONS = 6


class KnownKeys(HeldKeys):
    """Wrapping keys that remember what they wrapped, so that the properties can be checked on content."""

    def __init__(self) -> None:
        super().__init__((_WRAPPING, _NEXT), "the simulation")
        self._plain: dict[str, list[bytes]] = {}

    async def wrap(self, key: bytes, owner: str) -> bytes:
        """Return the wrapped key."""
        self._plain.setdefault(name_of(owner), []).append(key)
        return await super().wrap(key, owner)

    def opened(self, commit: Commit) -> Commit:
        """Return the commit with its content decrypted."""
        return msgspec.structs.replace(
            commit, events=tuple(self._opened(event, commit.root) for event in commit.events)
        )

    def _opened(self, event: Event, root: str) -> Event:
        if event.sealed is None:
            return event
        for key in self._plain[event.sealed.key.partition(".")[0]]:
            with contextlib.suppress(ValueError):
                cipher = Cipher(event.sealed.key, key)
                return put_back(event, cipher.open(base64.b64decode(event.sealed.data), root))
        raise AssertionError(f"nobody has made the key {event.sealed.key}")


def seal(world: World) -> None:
    """Have all processes seal what they store."""
    keys = KnownKeys()
    world.seal, world.opened = keys, keys.opened


@tool(effect="idempotent")
async def forget(ctx: ToolContext) -> str:
    """Have the key of another user erased by two people, while the keys are rotated and the user is back."""
    world = WORLD.get()
    ctx.progress(1, 2)
    parties = {
        world.say_once(f"eraser {number}", lambda: _until_done(world, _erase)) for number in range(2)
    } | {
        world.say_once("rotation", lambda: _until_done(world, _rotate)),
        world.say_once("caller", lambda: _until_done(world, _come_back)),
    }
    await asyncio.wait(parties)
    return f"{SECRET}, it is forgotten"


async def _until_done(world: World, do: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
    while True:
        person = world.person()
        with contextlib.suppress(FoldlogError):
            await person.does(do(person))
            if not person.dead.is_set():
                return
        await world.clock.sleep(ANSWER_S / 4)


async def _erase(person: Process) -> None:
    if await _sealed(person).ring.erase(OWNER, "eve", "asked"):
        WORLD.get().key_erased = True


async def _rotate(person: Process) -> None:
    """Rotate the keys back and forth, so that a rotation coincides with the erasure."""
    for number in range(ROTATIONS):
        wrapping = (_NEXT, _WRAPPING) if number % 2 == 0 else (_WRAPPING, _NEXT)
        await SealedLog(person.handle, HeldKeys(wrapping, "the simulation")).ring.rotate()


async def _come_back(person: Process) -> None:
    """Start another run of the owner, under the present key or the next one."""
    world = WORLD.get()
    agent = next(each for each in world.agents if each.name == "sealed")
    first = next(event for event in world.events_of(world.roots()[0]) if isinstance(event, Submitted))
    await person.runtime().start(
        agent, f"{SECRET} again", user="ada", idempotency_key="again", executor=first.executor
    )


def _sealed(person: Process) -> SealedLog:
    log = person.log
    assert isinstance(log, SealedLog)  # noqa: S101 - the scenario has wrapping keys
    return log


def unsealed(world: World) -> Iterator[str]:
    """Check W58 and W59: no content is stored in clear, a family has one key, and an erased key does not come back."""
    if world.seal is None:
        return
    kept = [
        *(each.data for each in world.log.events.stored),
        *world.snapshots.stored,
    ]
    if any(SECRET.encode() in data for data in kept):
        yield "W58 content is stored in clear"
    keys: dict[str, set[str]] = {}
    for each in world.log.events.stored:
        commit = decode(each.data)
        keys.setdefault(commit.root, set()).update(
            e.sealed.key for e in commit.events if e.sealed is not None
        )
    for root, several in keys.items():
        if len(several) > 1:
            yield f"W59 the family of {root} is sealed under {', '.join(sorted(several))}"
    for name, data in world.log.keys.stored.items():
        record = decoded(name, data)
        numbers = [each.number for each in record.erased]
        if len(set(numbers)) < len(numbers) or (record.key is not None and record.key.number in numbers):
            yield f"W59 an erased key of {record.owner} is back"
        if record.owner == OWNER and world.key_erased and not numbers:
            yield f"W59 the erasure of the key of {OWNER} is undone"
